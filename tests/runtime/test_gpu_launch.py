"""hccc_gpu_launch: its calls of the CUDA runtime, and its refusals. No GPU: the runtime is
programs/fake_cuda.h, which runs the grid with CPU threads."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit import directory
from hccc.emit.targets import CUDA, HIP
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.collective import UNEVEN, Collective, OpType, block_count
from hccc.ir.plan import Plan
from hccc.ir.uneven import RECEIVE, SEND, BlockTable, placed
from hccc.runtime.abi import (
    CallRecord,
    CommRecord,
    FaultRecord,
    LocalRecord,
    Params,
    ProxyRingRecord,
    RankRecord,
    TransferRecord,
    all_memory,
)
from hccc.runtime.cpu import aligned_zeros
from hccc.runtime.fault import WaitKind
from hccc.runtime.layout import shape_of
from hccc.runtime.recording import recording
from hccc.testing.grow import Choose, grow
from hccc.testing.judge import drawn_call, expected_of, inputs_of
from tests.emit import plans
from tests.runtime import gpu_text
from tests.runtime.handwritten import PROGRAMS

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

PLAN = plans.compiled(plans.ring_allreduce(4, channels=2))
COUNT = 1000
OK, TIMEOUT, BAD_ARGUMENT, TOO_LARGE, DEVICE, BAD_ABI = 0, 1, 2, 4, 5, 7
STREAM = 0x1230


class Record(ctypes.Structure):
    """A record that fake_cuda.h keeps."""

    _fields_ = (
        ("calls", ctypes.c_int),
        ("launches", ctypes.c_int),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_ulong),
        ("stream", ctypes.c_void_p),
        ("params", Params),
        ("loaded", ctypes.c_int),
    )


def built(plan: Plan, place: Path, *options: str) -> ctypes.CDLL:
    """Builds the emitted CUDA source, host part and all, as a library for the CPU."""
    directory.write(place, directory.files(Catalogue.of(plan), [CUDA], plan_json.dumps(plan)))
    header = place / "hccc" / "gpu_launch.h"
    fake = (PROGRAMS / "fake_cuda.h").read_text()
    header.write_text(f"{fake}\n{header.read_text()}")
    flags = ["-std=c++17", "-O0", "-shared", "-fPIC", "-pthread", "-D__device__=", "-Wall"]
    chosen = ["-DHCCC_DTYPE=int32", "-DHCCC_OP=sum", *options]
    command = ["g++", "-x", "c++", *flags, *chosen, f"{plan.name}.cu", "-o", "library.so"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(place / "library.so"))


class GpuRanks:
    """Memory of all ranks, and the library."""

    op = "sum"

    def __init__(self, library: ctypes.CDLL, plan: Plan = PLAN, kind: str = "cuda_int32") -> None:
        self.name, self.kind, shape = plan.name, kind, shape_of(plan)
        self.library, self.fault, self.window = library, FaultRecord(), all_memory()
        self.record = Record.in_dll(library, "fake_record")
        self.flags = [aligned_zeros(shape.flag_bytes) for _ in range(4)]
        window = ctypes.addressof(self.window)
        self.scratch = aligned_zeros(4 * shape.scratch_bytes(COUNT, 4))
        addresses = [f.ctypes.data for f in self.flags]
        scratch = self.scratch.ctypes.data  # of one rank, or of none
        self.ranks = (RankRecord * 4)(*[RankRecord(f, scratch, window, 1, 0) for f in addresses])
        self.inputs = [np.arange(COUNT, dtype=np.int32) * (r + 1) for r in range(4)]
        self.outputs = [np.full(COUNT, -1, np.int32) for _ in range(4)]
        memory = zip(self.inputs, self.outputs, strict=True)
        self.local = (LocalRecord * 4)(
            *[LocalRecord(i.ctypes.data, o.ctypes.data, None) for i, o in memory]
        )

    def launch(self, first: int = 0, n: int = 4, **fields: Any) -> int:
        """Returns the status of a launch of ranks [first, first + n)."""
        comm = CommRecord.of(4, ctypes.addressof(self.ranks), ctypes.addressof(self.fault))
        local = ctypes.addressof(self.local) + first * ctypes.sizeof(LocalRecord)
        call = CallRecord.of(count=COUNT, timeout_s=20, first_rank=first, n_local=n, local=local)
        for name, value in fields.items():
            setattr(comm if hasattr(comm, name) and name != "size" else call, name, value)
        entry = self.library[f"{self.name}_{self.kind}_{self.op}"]
        return int(entry(ctypes.byref(comm), ctypes.byref(call), ctypes.c_void_p(STREAM)))

    def right(self, ranks: Sequence[int] = range(4)) -> bool:
        """Tells whether these ranks have the sum."""
        return all(np.array_equal(self.outputs[r], np.arange(COUNT) * 10) for r in ranks)

    def device(self, **what: int) -> None:
        """Changes the device."""
        for name, value in what.items():
            ctypes.c_int.in_dll(self.library, f"fake_{name}").value = value


@pytest.fixture(scope="module")
def default_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the library with default options."""
    place = tmp_path_factory.mktemp("default")
    built(PLAN, place)
    return place / "library.so"


@pytest.fixture
def world(tmp_path: Path, default_library: Path) -> GpuRanks:
    """Loads a copy of the default library, with a device of its own."""
    shutil.copy(default_library, tmp_path / "library.so")
    return GpuRanks(ctypes.CDLL(str(tmp_path / "library.so")))


def test_one_cooperative_launch_and_nothing_else(world: GpuRanks) -> None:
    assert world.launch(window=3, micro_batch_bytes=1024, join_timeout_s=5) == OK
    record, shape = world.record, shape_of(PLAN)
    blocks = shape.blocks * shape.channels
    assert (record.launches, record.stream, record.shared) == (1, STREAM, 0)
    assert list(record.grid) == [blocks, 4, 1]
    assert list(record.block) == [32 * PLAN.warps, 1, 1]
    # The device and two attributes for the occupancy; no memory is set or copied.
    assert record.calls == 1 + 2 + 2 + 1
    p, sizes = record.params, shape.sizes(COUNT, 4, 1024)
    assert (p.count, p.part, p.micro) == (COUNT, sizes.part, sizes.micro)
    assert (p.batches, p.window, p.first_rank, p.in_place) == (sizes.batches, 3, 0, 0)
    assert (p.timeout, p.join_timeout) == (20 * 10**9, 5 * 10**9)
    assert (p.ranks, p.local) == (ctypes.addressof(world.ranks), ctypes.addressof(world.local))
    assert p.fault == ctypes.addressof(world.fault)
    assert world.right()


@pytest.mark.slow
def test_all_kernels_of_a_library_are_loaded_at_once(tmp_path: Path) -> None:
    """Of every type, whichever was launched."""
    built(PLAN, tmp_path)
    flags = ["-std=c++17", "-O0", "-fPIC", "-pthread", "-D__device__=", "-DHCCC_OP=sum", "-c"]
    for dtype in ("int32", "float32"):
        chosen = [f"-DHCCC_DTYPE={dtype}", f"{PLAN.name}.cu", "-o", f"{dtype}.o"]
        subprocess.run(["g++", "-x", "c++", *flags, *chosen], cwd=tmp_path, check=True)
    link = ["g++", "-shared", "-pthread", "int32.o", "float32.o", "-o", "both.so"]
    subprocess.run(link, cwd=tmp_path, check=True)
    world = GpuRanks(ctypes.CDLL(str(tmp_path / "both.so")))
    assert world.library.hccc_load_kernels() == OK and world.record.loaded == 2
    assert world.record.launches == 0 and world.launch() == OK and world.right()
    world.device(refuses=1)
    assert world.library.hccc_load_kernels() == DEVICE


def test_it_records_where_the_library_was_built_to(tmp_path: Path) -> None:
    """Every micro-batch of every primitive of the ranks that are asked for, once."""
    world, shape = GpuRanks(built(PLAN, tmp_path, "-DHCCC_TRACE")), shape_of(PLAN)
    assert world.launch() == OK and world.right()
    blocks = shape.blocks * shape.channels
    with recording(tmp_path / "library.so", range(1, 3), blocks, 64) as recorder:
        assert world.launch(micro_batch_bytes=256) == OK
    found, batches = recorder.read(), shape.sizes(COUNT, 4, 256).batches
    assert batches > 1 and found.lost == 0
    block = PLAN.block_rank()
    wanted = {
        (int(block[b]), (b - int(PLAN.n_tb[: block[b]].sum())) * PLAN.channels + channel, p, m)
        for b in np.flatnonzero((block == 1) | (block == 2)).tolist()
        for channel in range(PLAN.channels)
        for p in range(int(PLAN.tb_ptr[b + 1] - PLAN.tb_ptr[b]))
        for m in range(batches)
    }
    r = found.records
    keys = list(zip(found.rank, found.block, r["primitive"], r["micro_batch"], strict=True))
    assert len(keys) == len(wanted) and set(keys) == wanted
    assert (r["begin"] <= r["ready"]).all() and (r["ready"] <= r["end"]).all()


@pytest.mark.parametrize("field, value", [("size", 8), ("slots", 3), ("blocks", 1)])
def test_a_trace_that_makes_no_sense(tmp_path: Path, field: str, value: int) -> None:
    world = GpuRanks(built(PLAN, tmp_path, "-DHCCC_TRACE"))
    with recording(tmp_path / "library.so", range(4), 8, 64) as recorder:
        setattr(recorder.trace, field, value)
        assert world.launch() == (BAD_ABI if field == "size" else BAD_ARGUMENT)
    assert world.record.launches == 0 and world.launch() == OK


def test_launches_of_fewer_ranks(world: GpuRanks) -> None:
    """Each as a device of its own would: here, threads that launch at once."""
    world.device(units=64)
    for parts in ([(0, 2), (2, 2)], [(0, 1), (1, 3)], [(r, 1) for r in range(4)]):
        for output in world.outputs:
            output[:] = -1
        with ThreadPoolExecutor(len(parts)) as pool:
            assert set(pool.map(lambda part: world.launch(*part), parts)) == {OK}
        assert world.right()


def test_one_rank_travels_with_the_arguments(world: GpuRanks) -> None:
    """So the device's memory needs no table of launched ranks."""
    with ThreadPoolExecutor(2) as pool:
        others = pool.submit(world.launch, 0, 3)
        while not world.record.launches:
            pass
        assert world.launch(3, 1) == OK and others.result() == OK
    one = world.record.params
    assert (one.local, one.first_rank) == (None, 3)
    assert (one.one.input, one.one.output) == (world.local[3].input, world.local[3].output)


def test_one_device_takes_all_ranks(tmp_path: Path) -> None:
    world = GpuRanks(built(PLAN, tmp_path, "-DHCCC_SYSTEM_SCOPE=0"))
    assert world.launch() == OK and world.right()
    assert world.launch(0, 2) == BAD_ARGUMENT
    assert world.record.launches == 1


@pytest.mark.parametrize(
    ("device", "status"),
    [
        ({"units": 1}, TOO_LARGE),
        ({"per_unit": 0}, TOO_LARGE),
        ({"cooperative": 0}, TOO_LARGE),
        ({"no_device": 1}, TOO_LARGE),
        ({"refuses": 1}, DEVICE),
    ],
)
def test_devices_that_cannot(world: GpuRanks, device: dict[str, int], status: int) -> None:
    world.device(**device)
    assert world.launch() == status
    assert world.record.launches == 0


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"abi": 1}, BAD_ABI),
        ({"rank_size": 24}, BAD_ABI),
        ({"size": 72}, BAD_ABI),
        ({"local_size": 16}, BAD_ABI),
        ({"n_ranks": 3}, BAD_ARGUMENT),
        ({"flags_at": 64}, BAD_ARGUMENT),
        ({"flags_at": -128}, BAD_ARGUMENT),
        ({"ranks": None}, BAD_ARGUMENT),
        ({"fault": None}, BAD_ARGUMENT),
        ({"local": None}, BAD_ARGUMENT),
        ({"count": -1}, BAD_ARGUMENT),
        ({"timeout_s": float("nan")}, BAD_ARGUMENT),
        ({"n_local": 5}, BAD_ARGUMENT),
        ({"count": 1 << 61}, TOO_LARGE),
    ],
)
def test_calls_that_cannot(world: GpuRanks, change: dict[str, Any], status: int) -> None:
    assert world.launch(**change) == status
    assert world.record.calls == 0


def test_after_a_fault_a_launch_does_nothing(world: GpuRanks) -> None:
    """The first after it notes that there is one; the next leave the flags as they are, too."""
    world.fault.claimed, world.fault.kind = 1, WaitKind.ABORTED
    assert world.launch() == OK
    before = [flags.copy() for flags in world.flags]
    assert world.launch() == OK
    assert all((output == -1).all() for output in world.outputs)
    assert all(np.array_equal(a, b) for a, b in zip(before, world.flags, strict=True))


def outside_all_waits(fault: FaultRecord) -> bool:
    """Tells whether a fault names no primitive, and no counter's values."""
    return (fault.primitive, fault.micro_batch, fault.want, fault.have) == (-1, 0, 0, 0)


def test_a_network_without_a_door_is_a_fault(tmp_path: Path) -> None:
    """Tables are in the device's memory, where only the kernel looks."""
    program = plans.hierarchical_mesh(2, 2)
    plan = driver.compile_program(program, Options(network_lowering="put")).plan
    world = GpuRanks(built(plan, tmp_path), plan)
    for far in (2, 3):
        world.ranks[far].flags = None
    assert world.launch(0, 2, timeout_s=0.2, join_timeout_s=2) == OK
    assert (world.fault.claimed, world.fault.kind) == (1, WaitKind.NO_PROXY)
    assert world.fault.flag in (2, 3) and outside_all_waits(world.fault)


def test_a_rank_of_the_own_domain_without_memory_is_a_fault(world: GpuRanks) -> None:
    world.ranks[2].flags = None
    assert world.launch(0, 2, timeout_s=0.2, join_timeout_s=2) == OK
    assert (world.fault.claimed, world.fault.kind) == (1, WaitKind.UNMAPPED)
    assert world.fault.flag == 2 and outside_all_waits(world.fault)


def test_a_ring_of_no_power_of_two_is_a_fault(tmp_path: Path) -> None:
    plan = driver.compile_program(plans.hierarchical_mesh(2, 2), Options()).plan
    world = GpuRanks(built(plan, tmp_path), plan)
    for far in (2, 3):
        world.ranks[far].flags = None
    memory = aligned_zeros(4096)
    at = memory.ctypes.data
    ring = ProxyRingRecord(
        ctypes.sizeof(ProxyRingRecord), ctypes.sizeof(TransferRecord), 3, 0, at, at, at, at
    )
    for rank in (0, 1):
        world.local[rank].proxy_ring = ctypes.addressof(ring)
    assert world.launch(0, 2, timeout_s=0.2, join_timeout_s=2) == OK
    assert (world.fault.claimed, world.fault.kind) == (1, WaitKind.NO_PROXY)
    assert not memory.any()


@pytest.mark.slow
def test_fences_reach_as_far_as_the_ranks_are(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if not nvcc:
        pytest.skip("no nvcc")
    directory.write(tmp_path, directory.files(Catalogue.of(PLAN), [CUDA], plan_json.dumps(PLAN)))
    for scope, name in ((1, "sys"), (0, "gpu")):
        flags = ["-std=c++17", "-arch=sm_90", "-ptx", f"-DHCCC_SYSTEM_SCOPE={scope}"]
        command = [nvcc, *flags, f"{PLAN.name}.cu", "-o", "k.ptx"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        text = (tmp_path / "k.ptx").read_text()
        assert f"st.release.{name}." in text and f"ld.acquire.{name}." in text
        assert ("st.release.sys." in text) == bool(scope)


@pytest.mark.slow
def test_blocks_with_lengths_of_their_own(tmp_path: Path) -> None:
    """In place too: a block that is shorter both ways leaves what lies behind it as it was."""
    direct = replace(plans.alltoall(4), collective=Collective(OpType.ALLTOALL, 4, 16, uneven=True))
    plan = plans.compiled(direct)
    world = GpuRanks(built(plan, tmp_path), plan)
    scratch = [aligned_zeros(shape_of(plan).scratch_bytes(COUNT, 4)) for _ in range(4)]
    for record, one in zip(world.ranks, scratch, strict=True):
        record.scratch = one.ctypes.data
    rng = np.random.default_rng(1)
    for count, in_place in ((500, False), (37, True), (1, False)):
        lengths = rng.integers(0, count, (4, 4), endpoint=True)
        lengths[1] = 0
        if in_place:
            lengths = np.minimum(lengths, lengths.T)
        table = BlockTable.of_rows(plan.collective, lengths.ravel(), count)
        words = np.ascontiguousarray(table.words())
        sent = [rng.integers(0, 1 << 30, 4 * count, np.int32) for _ in range(4)]
        world.outputs = [a.copy() if in_place else np.full(4 * count, -1, np.int32) for a in sent]
        for local, a, b in zip(world.local, sent, world.outputs, strict=True):
            local.input, local.output = (b if in_place else a).ctypes.data, b.ctypes.data
        want = [a.copy() if in_place else np.full(4 * count, -1, np.int32) for a in sent]
        for source in range(4):
            for rank in range(4):
                n = lengths[source, rank]
                want[rank][source * count :][:n] = sent[source][rank * count :][:n]
        assert world.launch(count=count, in_place=in_place, blocks=words.ctypes.data) == OK
        for rank in range(4):
            assert np.array_equal(world.outputs[rank], want[rank]), (rank, count)


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(UNEVEN))
def test_texts_for_amd_move_blocks_of_any_length(op: OpType, tmp_path: Path) -> None:
    """With gaps between blocks that must stay as they were."""
    rng = Random(sorted(UNEVEN).index(op))
    choose: Choose = lambda bound: rng.randint(0, bound)  # noqa: E731
    c = Collective(op, 4, block_count(op, 4) * 2, 0, uneven=True)
    plan = driver.compile_program(grow(c, choose), Options()).plan
    dtype = "int32" if plan.reduces else "uint32"
    library = gpu_text.built(plan, HIP, dtype, "sum", tmp_path)
    world = GpuRanks(ctypes.CDLL(str(library)), plan, f"hip_{dtype}")
    scratch = [aligned_zeros(shape_of(plan).scratch_bytes(COUNT, 4)) for _ in range(4)]
    for record, one in zip(world.ranks, scratch, strict=True):
        record.scratch = one.ctypes.data
    for _ in range(12):
        call = replace(drawn_call(plan, choose), op="sum", in_place=False)
        table, x = call.blocks, inputs_of(c, call)
        assert table is not None
        want = expected_of(c, call, x)
        sent = [placed(table, r, SEND, a, call.count).astype(np.int32) for r, a in enumerate(x)]
        got = [np.full(int(table.sizes[r, RECEIVE]) + 1, -7, np.int32) for r in range(4)]
        for local, a, b in zip(world.local, sent, got, strict=True):
            local.input, local.output = a.ctypes.data, b.ctypes.data
        words = np.ascontiguousarray(table.words())
        how = {"micro_batch_bytes": call.micro_batch, "window": call.window or 0}
        assert world.launch(count=call.count, blocks=words.ctypes.data, **how) == OK
        for r in range(4):
            image = np.full_like(got[r], -7)
            for i, (_, first, length) in enumerate(table.spans(r, RECEIVE)):
                image[first : first + length] = want[r][i * call.count :][:length]
            assert np.array_equal(got[r], image), (r, call)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan", [PLAN, plans.compiled(plans.mesh_allreduce(4))], ids=["in registers", "shared"]
)
def test_scalars_of_a_sum(plan: Plan, tmp_path: Path) -> None:
    """Of each rank in the call or in memory, next to the kernel or read from a neighbour."""
    world = GpuRanks(built(plan, tmp_path, "-UHCCC_OP", "-DHCCC_OP=premul_sum"), plan)
    world.op, held = "premul_sum", np.array([-3, 5], np.int32)
    for r, bits in ((0, 7), (2, 2**32 - 2)):  # the latter is -2
        world.local[r].scalar = bits
    for r, at in ((1, 0), (3, 4)):
        world.local[r].scalar, world.local[r].scalar_at = 99, held.ctypes.data + at
    want = np.arange(COUNT) * (1 * 7 - 2 * 3 - 3 * 2 + 4 * 5)
    assert world.launch() == OK
    assert all(np.array_equal(one, want) for one in world.outputs)
    for local, one in zip(world.local, world.inputs, strict=True):
        local.output = one.ctypes.data
    assert world.launch(in_place=1) == OK
    assert all(np.array_equal(one, want) for one in world.inputs)
