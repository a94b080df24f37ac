"""Launches of unusual size: one rank, no bytes, more than 2^31 elements, more than 4 GiB."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hccc.base.diagnostics import Source
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit import directory
from hccc.emit.targets import CPU
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.collective import PROGRAMMABLE, OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.ir.program import Program
from hccc.lang.transfer import load as transfer
from hccc.runtime.cpu import CpuLauncher
from hccc.runtime.layout import shape_of
from hccc.runtime.measure import patterns
from hccc.runtime.measure.patterns import Pattern
from hccc.runtime.network import RankNetwork, Wire
from hccc.runtime.request import LaunchRequest
from hccc.testing.kernels import wrong_elements
from tests.emit import plans
from tests.marks import slow, some

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
QUICK = ("ring_allreduce", "direct_gather")
BETWEEN_NODES = ("hm_allgather", "hm_allreduce", "hm_reducescatter")
WIRE = Wire(copy_on_arrival=True)
TRANSPORTS = {
    "direct": Options(transport=Transport.DIRECT),
    "staged": Options(transport=Transport.STAGED),
    "slots": Options(network_lowering="slots"),
    "put": Options(network_lowering="put"),
}


def communicator(plan: Plan, place: Path, wire: Wire = WIRE) -> CpuLauncher:
    """Makes a launcher of a plan's kernel; a network joins a mixed plan's memory domains."""
    directory.write(place, directory.files(Catalogue.of(plan), [CPU], plan_json.dumps(plan)))
    mixed = plan.transport is Transport.MIXED
    domain = tuple(map(int, plan.memory_domain))
    network = RankNetwork(domain, tuple(range(plan.n_ranks)), wire) if mixed else None
    source = place / f"{plan.name}{CPU.suffix}"
    return CpuLauncher(source, plan.name, shape_of(plan), plan.collective, network=network)


# One rank


ALWAYS = (OpType.ALLREDUCE, OpType.ALLGATHER, OpType.SCATTER)


@pytest.mark.slow
@pytest.mark.parametrize("op", [op if op in ALWAYS else slow(op) for op in PROGRAMMABLE])
def test_one_rank_keeps_what_it_has(op: OpType) -> None:
    source = Source("one.rccl", f'ResCCLAlgo(nRanks=1, OpType="{op.value}"):\n')
    plan = driver.compile_text(source, Options()).plan
    assert len(plan) and not len(plan.waits.index)
    for count in (0, 1, 1000):
        assert wrong_elements(plan, LaunchRequest(count, "float32", "avg" if count else "sum")) == 0


def test_a_program_for_any_number_of_ranks_serves_one() -> None:
    text = (EXAMPLES / "ring_allreduce.rccl").read_text()
    for key in ("nRanks", "GPUPerNode", "NICPerNode"):
        text = text.replace(f"{key}=8", f"{key}=1")
    plan = driver.compile_text(Source("ring.rccl", text), Options()).plan
    assert plan.n_ranks == 1
    assert wrong_elements(plan, LaunchRequest(1000, "bfloat16", "sum")) == 0


# No bytes


def examples() -> list[Any]:
    """Lists every example with every transport that it has connections for."""
    found = []
    for path in sorted(EXAMPLES.glob("*.rccl")):
        for transport in TRANSPORTS if path.stem in BETWEEN_NODES else ("direct", "staged"):
            mark = (path, transport)
            found.append(pytest.param(*mark) if path.stem in QUICK else slow(*mark))
    return found


@pytest.mark.quick(2)
@pytest.mark.parametrize(("path", "transport"), examples(), ids=lambda v: getattr(v, "stem", v))
def test_few_or_no_elements(path: Path, transport: str, tmp_path: Path) -> None:
    plan = driver.compile_text(transfer.read(path), TRANSPORTS[transport]).plan
    kernel, c = communicator(plan, tmp_path), plan.collective
    for count in (0, 1, 0, 3):
        p = Pattern(c, "uint32", "sum", count, count)
        send = [patterns.inputs(p, r) for r in range(c.n_ranks)]
        receive = [np.zeros(c.output_blocks(r) * count, np.uint32) for r in range(c.n_ranks)]
        kernel.launch(send, receive, LaunchRequest(count, "uint32", "sum"))
        want = patterns.expected(p)
        assert sum(patterns.wrong(receive[r], want.at(r)) for r in range(c.n_ranks)) == 0


@pytest.mark.slow
def test_a_proxy_ring_with_room_for_few_transfers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a network that takes 16 µs for each message: who takes one too early has another's."""
    plan = driver.compile_program(plans.ring_allreduce(4, gpus=2), TRANSPORTS["slots"]).plan
    slow = Wire(bandwidth=0.001, copy_on_arrival=True)
    p = Pattern(plan.collective, "uint32", "sum", 99, 1)
    send = [patterns.inputs(p, r) for r in range(4)]
    for length in (1, 2):
        monkeypatch.setattr("hccc.runtime.network.RING", length)
        receive = [np.zeros(99, np.uint32) for _ in range(4)]
        request = LaunchRequest(99, "uint32", "sum", micro_batch=16, timeout=5)
        communicator(plan, tmp_path, slow).launch(send, receive, request)
        want = patterns.expected(p)
        assert sum(patterns.wrong(receive[r], want.at(r)) for r in range(4)) == 0


# Many

TILE = mmap.PAGESIZE * 251  # a prime number of pages, so no power of two is a multiple
COUNT = 2**31 + 4097


@contextmanager
def cyclic(rank: int, size: int) -> Iterator[tuple[NDArray[np.int8], NDArray[np.int8]]]:
    """Yields `size` bytes that repeat a tile, in the tile's memory, and the tile."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    whole = -(-size // TILE) * TILE
    file = os.memfd_create("tile")
    os.truncate(file, TILE)
    tile = np.frombuffer(mmap.mmap(file, TILE), np.int8)
    tile[:] = np.random.default_rng(rank).integers(-50, 50, TILE)
    no_access, fixed = 0, 0x10  # PROT_NONE, MAP_FIXED
    base = libc.mmap(None, whole, no_access, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    try:
        for at in range(0, whole, TILE):
            flags = mmap.MAP_SHARED | fixed
            assert libc.mmap(base + at, TILE, mmap.PROT_READ, flags, file, 0) == base + at
        memory = (ctypes.c_int8 * size).from_address(base)
        yield np.ctypeslib.as_array(memory), tile
    finally:
        libc.munmap(base, whole)
        os.close(file)


def repeats(memory: NDArray[np.int8], tile: NDArray[np.int8]) -> bool:
    """Tells whether memory is the tile over and over."""
    return all(
        np.array_equal(memory[at : at + TILE], tile[: len(memory[at : at + TILE])])
        for at in range(0, len(memory), TILE)
    )


def need(free: int) -> None:
    """Skips where so many bytes are not free."""
    available = next(
        int(line.split()[1]) << 10
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable")
    )
    if available < free:
        pytest.skip(f"{available >> 30} GiB of memory are free, {free >> 30} are needed")


def two_ranks(program: Program, transport: str) -> Plan:
    plan = driver.compile_program(program, TRANSPORTS[transport]).plan
    assert (plan.transport is Transport.MIXED) == (transport in ("slots", "put"))
    return plan


@pytest.mark.slow
@pytest.mark.usefixtures("flags_of_users")
@pytest.mark.parametrize("transport", some(list(TRANSPORTS), 4))
def test_more_elements_than_an_int_counts(transport: str, tmp_path: Path) -> None:
    need(3 * COUNT)
    kernel = communicator(two_ranks(plans.ring_allreduce(2, gpus=1), transport), tmp_path)
    output = [np.empty(COUNT, np.int8) for _ in range(2)]
    with cyclic(0, COUNT) as (a, x), cyclic(1, COUNT) as (b, y):
        kernel.launch([a, b], output, LaunchRequest(COUNT, "int8", "sum", timeout=300))
        total = x + y
    assert all(repeats(memory, total) for memory in output)


@pytest.mark.slow
@pytest.mark.usefixtures("flags_of_users")
@pytest.mark.parametrize("transport", some(list(reversed(TRANSPORTS)), 4))
def test_buffers_beyond_4_gib(transport: str, tmp_path: Path) -> None:
    """The root's receive buffer is 4 GiB and 8 KiB; bytes past 4 GiB come over the network."""
    need(3 * COUNT)
    rows = [(1, 0, 0, 1, 2, 0)]
    program = plans.program("gather", OpType.GATHER, 2, rows, gpus=1)
    kernel = communicator(two_ranks(program, transport), tmp_path)
    output = np.empty(2 * COUNT, np.int8)
    with cyclic(0, COUNT) as (a, x), cyclic(1, COUNT) as (b, y):
        kernel.launch([a, b], [output, None], LaunchRequest(COUNT, "int8", timeout=300))
        assert repeats(output[:COUNT], x) and repeats(output[COUNT:], y)
