"""Jobs in memory of a device: NCCL in streams, borders through memory of the host.

The runtime of CUDA and NCCL are stand-ins; memory that the host cannot touch is passed to calls.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from hccc.ir import job_json
from hccc.ir.collective import OpType
from hccc.ir.job import Job, VendorClusters, vendor_clusters
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.buffers import number_of_dtype, reduction_of
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.errors import check
from hccc.runtime.communicator.runtime_library import library
from hccc.runtime.device.device_layer import library as device_library
from hccc.runtime.device.device_layer import use
from hccc.runtime.measure import perf
from hccc.runtime.measure.patterns import Pattern
from hccc.runtime.transport.ucx_transport import available
from hccc.synth.builtin.hetccl import OPS, hetccl
from tests.cli.commandline import process
from tests.communicator import cuda
from tests.communicator.conftest import runtime
from tests.communicator.test_hosts import HOSTS
from tests.communicator.world import Lost, start
from tests.job.test_loaded import jobs_of
from tests.vendor.conftest import stand_in

__all__ = ["runtime", "stand_in"]  # fixtures

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not cuda.have_compiler(), reason="no g++")]
# Three pieces of 1 MiB and some, odd lengths, nothing but a few elements.
CALLS = (
    (0, "float32", "sum"),
    (5, "int32", "avg"),
    (61, "float32", "sum"),
    (900_001, "int32", "sum"),
)
PAIRS = vendor_clusters([("a", [0, 1], [0, 1], [1, 1]), ("b", [2, 3], [2, 3], [1, 1])])
UNLIKE = vendor_clusters([("a", [0, 1, 2], [0, 2], [1, 2]), ("b", [3], [3], [1])])
FOUR_BYTES = "float32"


class Device:
    """Memory of the stand-in for CUDA that this process cannot touch, and a stream."""

    def __init__(self) -> None:
        use("cuda")
        self._layer = device_library()
        self.stream = self._made("StreamCreateWithFlags", 1)

    def _made(self, call: str, *words: Any) -> int:
        made = ctypes.c_void_p()
        self._layer.call(call, ctypes.byref(made), *words)
        return made.value or 0

    def holding(self, bytes_: np.ndarray[Any, Any]) -> int:
        """Returns the address of memory with these bytes, which come there in the stream."""
        at = self._made("Malloc", max(1, bytes_.nbytes))
        self._copy(at, bytes_.ctypes.data, bytes_.nbytes)
        return at

    def read(self, at: int, into: np.ndarray[Any, Any]) -> None:
        """Copies memory to an array, at once."""
        self._copy(into.ctypes.data, at, into.nbytes)
        self._layer.call("StreamSynchronize", self.stream)

    def _copy(self, to: int, of: int, n: int) -> None:
        if n:
            self._layer.call("MemcpyAsync", to, of, n, 4, self.stream)


def wrong_calls(
    c: Communicator, jobs: list[Job], batches: int, vendors: Sequence[Any]
) -> list[str]:
    """Returns the calls whose results are wrong at this rank: of all jobs, in place and not."""
    vendor, file = vendors[c.rank]
    on_device = c.platform == "cuda"
    device = Device() if on_device else None
    for job in jobs:
        c.load(job, micro_batches=[(0, batches)], vendor=vendor, file=file)
    wrong = []
    for seed, (job, (count, dtype, op)) in enumerate((job, one) for job in jobs for one in CALLS):
        reduction = op if job.collective.reduces else "sum"
        for in_place in (False, True):
            p = Pattern(job.collective, dtype, reduction, count, seed)
            memory = perf.allocate(p, c.rank, in_place, lambda n: np.empty(n, np.uint8))
            perf.fill(p, c.rank, memory)
            slab = memory.slab
            base = device.holding(slab) if device else slab.ctypes.data
            send = base + memory.send_at * slab.itemsize if memory.sends else None
            receive = base + memory.receive_at * slab.itemsize if memory.receives else None
            words = (send, receive, count, *_numbers(job, dtype, reduction))
            run(c, job, words, device)
            if device:
                slab.view(np.uint8)[:] = 0
                device.read(base, slab)
            with np.errstate(all="ignore"):
                made = perf.wrong_at(p, c.rank, memory, perf.wanted(p), not in_place)
            if made:
                wrong.append(f"{job.name} of {count} {dtype}, {op}, in place {in_place}: {made}")
    return wrong


def run(c: Communicator, job: Job, words: tuple[Any, ...], device: Device | None) -> None:
    """Makes a call of a job. words: addresses, count, type, and a reduction if it has one."""
    send, receive, count, type_, *op = words
    every = (job.name.encode(), send, receive, count, type_, op[0] if op else 0)
    check(library().call("Run", *every, c.handle, device.stream if device else None))


def _numbers(job: Job, dtype: str, op: str) -> tuple[int, ...]:
    type_ = number_of_dtype(dtype)
    return (type_, reduction_of(op)) if job.collective.reduces else (type_,)


def of_rank(platforms: str, runtime: Path) -> Callable[[int], Mapping[str, str]]:
    """Returns the environment of each rank. platforms: of each of two hosts of two ranks."""

    def variables(rank: int) -> Mapping[str, str]:
        host = rank // 2
        on_device = platforms.split("+")[host] == "cuda"
        its = cuda.environment(runtime, "vmm descriptor apart") if on_device else {}
        return {**HOSTS, **its, "HCCC_HOST_ID": f"host{host}", "HCCC_STANDARD": "1"}

    return variables


@pytest.mark.parametrize(("v", "batches"), [(PAIRS, 2), (UNLIKE, 1)], ids=["pairs", "unlike"])
def test_every_collective_of_a_device(
    runtime: Path, stand_in: str, v: VendorClusters, batches: int
) -> None:
    """Both vendor clusters have NCCL, or one rank, on one host."""
    variables = cuda.environment(runtime, "vmm descriptor apart")
    vendors = [("nccl", stand_in)] * v.n_ranks
    found = start(4, wrong_calls, jobs_of(v, OPS, 1), batches, vendors, environment=variables)
    assert list(found.outcomes(300).values()) == [[]] * 4


def test_plans_of_hcccs_own_on_a_device(runtime: Path) -> None:
    """The vendor clusters have hccc's standard collectives, whose kernels touch a device's memory:
    of this stand-in the host can, too."""
    # What it makes is kept by its name and the kind of GPU, and is linked with that runtime.
    kind = f"{crc32(runtime.name.encode()):08x}"
    compiler = runtime.parent / f"nvcc-{kind}"
    if not compiler.exists():
        cuda.compiler(compiler, runtime)
    gpu = {"NVCC": str(compiler), "HCCC_GPU_ARCH": f"sm_{kind}", "HCCC_STANDARD": "1"}
    variables = cuda.environment(runtime) | gpu
    found = start(
        4, wrong_calls, jobs_of(PAIRS, OPS, 1), 1, [("own", None)] * 4, environment=variables
    )
    assert list(found.outcomes(300).values()) == [[]] * 4


def test_a_device_beside_a_host(runtime: Path, stand_in: str) -> None:
    """NCCL on one host, hccc's own plans in memory of the other."""
    usable, text = available()
    if not usable:
        pytest.skip(text)
    vendors = [("nccl", stand_in)] * 2 + [("own", None)] * 2
    jobs = jobs_of(PAIRS, OPS, 2)
    found = start(4, wrong_calls, jobs, 2, vendors, of_rank=of_rank("cuda+host", runtime))
    assert list(found.outcomes(300).values()) == [[]] * 4


def by_kernels(
    c: Communicator, v: VendorClusters, file: str, runtime: Path, ops: Sequence[str]
) -> list[int]:
    """Makes calls of an AllReduce; returns how many kernels of hccc's ran in each, at this rank."""
    device, reduces = Device(), hetccl(v, OpType.ALLREDUCE)
    c.load(reduces, micro_batches=[(0, 1)], vendor="nccl", file=file)
    count, ran = ctypes.CDLL(str(runtime)).workingCombines, []
    for op in ops:
        x = np.full(300_007, 1 + c.rank, np.int32)
        at, before = device.holding(x), count(0)
        run(c, reduces, (at, at, x.size, *_numbers(reduces, "int32", op)), device)
        device.read(at, x)
        assert (x == {"sum": 10, "avg": 2, "max": 4}[op]).all(), (op, x)
        ran.append(count(0) - before)
    return ran


@pytest.mark.parametrize(
    ("v", "compiles", "by"),
    [
        (PAIRS, True, {"the device": 4}),
        (PAIRS, False, {"NCCL 2.28.3, as no kernel does it: no library is loaded": 4}),
        (
            UNLIKE,
            False,
            {
                "NCCL 2.28.3, as no kernel does it: no library is loaded": 2,
                "the host, as no kernel does it: no library is loaded": 1,
            },
        ),
    ],
    ids=["kernels", "pairs", "unlike"],
)
def test_reductions_at_a_border(
    runtime: Path,
    stand_in: str,
    tmp_path: Path,
    v: VendorClusters,
    compiles: bool,
    by: dict[str, int],
) -> None:
    """Kernels make them where there is a compiler; else the vendor's library, of two ranks; else
    the host. The log says who, and why."""
    compiler, log = tmp_path / "nvcc", tmp_path / "log"
    if compiles:
        cuda.compiler(compiler, runtime)
    of_gpu = {"NVCC": str(compiler), "HCCC_GPU_ARCH": "sm_standin", "HCCC_STANDARD": "1"}
    of_log = {"HCCC_DEBUG": "INFO", "HCCC_DEBUG_FILE": f"{log}.%p"}
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}  # or what was made before would serve
    variables = cuda.environment(runtime, "vmm descriptor apart") | of_gpu | of_log | cache
    words = (v, stand_in, runtime, ("sum", "avg", "max"))
    found = start(4, by_kernels, *words, environment=variables).outcomes(300)
    # Each rank gets one piece to reduce; an average is also divided.
    assert list(found.values()) == [[1, 2, 1] if compiles else [0, 0, 0]] * 4
    said = "".join(one.read_text() for one in tmp_path.glob("log.*"))
    for op, (who, n) in product(("sum", "max"), by.items()):
        assert said.count(f"{op} of int32 at borders: by {who}") == n, said


def ran(tmp_path: Path, vendors: str, **variables: str) -> tuple[int, str, str]:
    """Runs a job by `hccc run`; returns its status, and what it prints."""
    job = tmp_path / "job.json"
    job.write_text(job_json.dumps(hetccl(PAIRS, OpType.ALLREDUCE)))
    words = ("run", job, "--vendors", vendors, "-b", "8", "-e", "9M", "-f", "1000", "-n", "2")
    ended = process(*words, "-o", "sum,avg", **variables)
    return ended.returncode, ended.stdout, ended.stderr


def test_hccc_run_on_devices(runtime: Path, stand_in: str, tmp_path: Path) -> None:
    """Every rank has a GPU of its own, in whose memory all is checked."""
    variables = cuda.environment(runtime, "vmm descriptor apart", HCCC_STANDARD="0")
    status, out, err = ran(tmp_path, f"nccl={stand_in}:2,nccl={stand_in}:2", **variables)
    assert status == 0, err
    rows = [line.split() for line in out.splitlines() if line and not line.startswith("#")]
    assert [(row[0], row[3]) for row in rows] == [
        (size, op) for op in ("sum", "avg") for size in ("8", "8000", "8000000")
    ], out
    assert "# Out of bounds values : 0 OK" in out and "a job, on cuda, 4 processes" in out, out


def test_hccc_run_without_a_gpu(tmp_path: Path, stand_in: str) -> None:
    missing = {"HCCC_PLATFORM": "cpu", "HCCC_CUDA_LIBRARY": str(tmp_path / "none.so")}
    status, _, err = ran(tmp_path, f"nccl={stand_in}:2,own:2", **missing)
    assert status == 1
    text = "has the library of nccl, which works in memory of a GPU: there is no cuda on its host: "
    assert f"error[E473]: rank 0 {text}" in err or f"error[E473]: rank 1 {text}" in err, err


def refusals(c: Communicator, file: str) -> list[str]:
    """Returns what is said of libraries that do not work in a device's memory, and of a captured
    stream; a right call works then."""
    said, device = [], Device()
    reduces = hetccl(PAIRS, OpType.ALLREDUCE)
    with pytest.raises(CommunicatorError) as caught:
        c.load(reduces, vendor="nobody")
    said.append(caught.value.text)
    c.load(reduces, vendor="nccl", file=file)
    x = np.full(7, 1 + c.rank, np.float32)
    at = device.holding(x)
    device._layer.call("StreamBeginCapture", device.stream, 2)
    words = (at, at, 7, *_numbers(reduces, FOUR_BYTES, "sum"))
    with pytest.raises(CommunicatorError) as caught:
        run(c, c.jobs[0].job, words, device)
    said.append(caught.value.text)
    graph = ctypes.c_void_p()
    device._layer.call("StreamEndCapture", device.stream, ctypes.byref(graph))
    run(c, c.jobs[0].job, words, device)
    device.read(at, x)
    assert x.tolist() == [10.0] * 7
    return said


def test_what_a_device_cannot_is_said(runtime: Path, stand_in: str) -> None:
    variables = cuda.environment(runtime, "vmm descriptor apart")
    found = start(4, refusals, stand_in, environment=variables).outcomes()
    for nobody, captured in found.values():
        assert "there is no vendor nobody" in nobody
        assert captured == "a job returns when it is done: no graph captures its calls"


def beside_memory(c: Communicator, file: str) -> str:
    """Returns what is said of NCCL in memory of the host."""
    with pytest.raises(CommunicatorError) as caught:
        c.load(hetccl(PAIRS, OpType.ALLREDUCE), vendor="nccl", file=file)
    c.load(hetccl(PAIRS, OpType.ALLREDUCE))
    with pytest.raises(CommunicatorError, match="the stream is none of the device layer's"):
        c.all_reduce(c.empty(3), stream=1)
    return caught.value.text


def test_nccl_wants_memory_of_a_device(stand_in: str) -> None:
    found = start(4, beside_memory, stand_in, environment={"HCCC_STANDARD": "1"}).outcomes()
    for text in found.values():
        assert "NCCL 2.28.3 works in memory of a device, and this rank's is the host's" in text


def meets_death(c: Communicator, file: str) -> Lost | None:
    """Has rank 3 leave before the second call; the others return what they were told."""
    device = Device()
    job = hetccl(PAIRS, OpType.ALLREDUCE)
    c.load(job, vendor="nccl", file=file)
    c.set_timeout(3)
    x = np.ones(500_000, np.float32)
    at = device.holding(x)
    words = (at, at, x.size, *_numbers(job, FOUR_BYTES, "sum"))
    run(c, c.jobs[0].job, words, device)
    if c.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    with pytest.raises(CommunicatorError) as caught:
        run(c, c.jobs[0].job, words, device)
    return Lost(caught.value.result, caught.value.text, time.monotonic() - begun)


def test_a_rank_that_dies_ends_a_call(runtime: Path, stand_in: str) -> None:
    variables = cuda.environment(runtime, "vmm descriptor apart")
    found = start(4, meets_death, stand_in, environment=variables).outcomes(silent=[3])
    for rank in range(3):
        lost = found[rank]
        assert lost.result in (Result.REMOTE_ERROR, Result.TIMEOUT), lost
        assert "rank 3 is gone" in lost.text and "step " in lost.text, lost
        assert lost.seconds < 3 + 2, lost
