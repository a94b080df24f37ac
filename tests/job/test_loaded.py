"""Jobs on real data: ranks in processes, libraries of vendors, every collective."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.base.dtypes import NAMES, reduces
from hccc.ir.collective import UNEVEN as UNEVEN_OPS
from hccc.ir.collective import Collective, OpType
from hccc.ir.job import Job, VendorClusters, vendor_clusters
from hccc.ir.uneven import SKEWS, modes_of, table_of
from hccc.launch.job_runs import OPS as JOB_OPS
from hccc.runtime.communicator import Communicator, CommunicatorError, group
from hccc.runtime.communicator.communicator import allocate
from hccc.runtime.communicator.premul import premul_sum
from hccc.runtime.communicator.rank import Can
from hccc.runtime.device.stream import Stream
from hccc.runtime.job.loaded import LoadedJob
from hccc.runtime.measure import perf
from hccc.runtime.measure.patterns import Pattern, scalar_of
from hccc.synth.builtin.hetccl import OPS, hetccl
from tests.communicator.world import run, start

# Interleaved ranks, a vendor cluster of one, borders of unlike numbers and weights.
UNEVEN = vendor_clusters(
    [("a", [0, 2, 5], [0, 5], [1, 2]), ("b", [1], [1], [1]), ("c", [3, 4], [3, 4], [1, 1])]
)
EVEN = vendor_clusters([("a", [0, 1], [0, 1], [1, 1]), ("b", [2, 3], [2, 3], [1, 1])])
ALONE = vendor_clusters([(name, [r], [r], [1]) for r, name in enumerate("abc")])
CALLS = ((0, "float32", "sum"), (1, "int32", "avg"), (61, "float32", "sum"), (4099, "int32", "sum"))


def wrong_calls(
    c: Communicator, jobs: list[Job], batches: int, vendors: Sequence[tuple[str, str]] = ()
) -> list[str]:
    """Returns the calls whose results are wrong at this rank: of all jobs, in place and not."""
    wrong = []
    vendor, file = vendors[c.rank] if vendors else (None, None)
    for job in jobs:
        c.load(job, micro_batches=[(0, batches)], vendor=vendor, file=file)
    for seed, (job, (count, dtype, op)) in enumerate((job, one) for job in jobs for one in CALLS):
        reduction = op if job.collective.reduces else "sum"
        for in_place in (False, True):
            pattern = Pattern(job.collective, dtype, reduction, count, seed)
            made = call_of(c, job, pattern, in_place)
            if made:
                wrong.append(f"{job.name} of {count} {dtype}, {op}, in place {in_place}: {made}")
    return wrong


def call_of(c: Communicator, job: Job, p: Pattern, in_place: bool) -> int:
    """Makes a call of a job; returns how many values are wrong at this rank."""
    memory = perf.allocate(p, c.rank, in_place, lambda n: allocate(n, "uint8"))
    perf.fill(p, c.rank, memory)
    base, size = memory.slab.ctypes.data, memory.slab.itemsize
    send = base + memory.send_at * size if memory.sends else None
    receive = base + memory.receive_at * size if memory.receives else None
    if p.blocks is None:
        op = p.op if p.op != "premul_sum" else premul_sum(scalar_of(p.dtype, c.rank)[0])
        c.prepared(job.name, send, receive, p.count, p.dtype, op)()
    else:
        c.prepared_blocks(p.blocks, send, receive, p.dtype, p.op)()
    with np.errstate(all="ignore"):
        return perf.wrong_at(p, c.rank, memory, perf.wanted(p), not in_place)


def jobs_of(v: VendorClusters, ops: Any, root: int, uneven: bool = False) -> list[Job]:
    rooted = {op: root if Collective(op, 2, 4).rooted else 0 for op in ops}
    return [hetccl(v, op, rooted[op], uneven) for op in ops]


def wrong_uneven_calls(
    c: Communicator, jobs: list[Job], batches: int, vendors: Sequence[tuple[str, str]] = ()
) -> list[str]:
    """Returns the calls whose results are wrong at this rank, of blocks with lengths of their own,
    in place and not."""
    wrong = []
    vendor, file = vendors[c.rank] if vendors else (None, None)
    loaded = [LoadedJob(c.handle, c.rank, job, vendor, file, [(0, batches)]) for job in jobs]
    for one in loaded:
        one.use()
    seed = 0
    for job, skew in ((job, skew) for job in jobs for skew in SKEWS):
        for in_place in modes_of(job.collective, (False, True), skew):
            seed, count = seed + 1, 4099 if seed % 2 else 13
            table = table_of(job.collective, count, skew)
            p = Pattern(job.collective, "int32", "sum", count, seed, blocks=table)
            made = call_of(c, job, p, in_place)
            wrong += [f"{job.name}, {skew} of {count}, in place {in_place}: {made}"] * bool(made)
    border = jobs[0].clusters.borders.index
    if c.rank in border and not all(one.sent for one in loaded if not one.job.collective.rooted):
        wrong.append("no job has made the calls")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize(
    ("v", "batches", "root"),
    [(UNEVEN, 1, 4), (UNEVEN, 3, 0), (EVEN, 2, 1)],
    ids=["uneven", "uneven-3", "even-2"],
)
def test_every_collective_by_own_plans(v: VendorClusters, batches: int, root: int) -> None:
    job = jobs_of(v, OPS, root)
    found = start(v.n_ranks, wrong_calls, job, batches, environment=STANDARD).outcomes(300)
    assert list(found.values()) == [[]] * v.n_ranks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("v", "batches", "root"),
    [(UNEVEN, 1, 4), (UNEVEN, 3, 0), (EVEN, 2, 1)],
    ids=["uneven", "uneven-3", "even-2"],
)
def test_blocks_of_their_own_lengths_by_own_plans(
    v: VendorClusters, batches: int, root: int
) -> None:
    jobs = jobs_of(v, UNEVEN_OPS, root, uneven=True)
    found = start(v.n_ranks, wrong_uneven_calls, jobs, batches, environment=STANDARD).outcomes(300)
    assert list(found.values()) == [[]] * v.n_ranks


def lengths_that_differ(c: Communicator) -> list[list[str]]:
    """Makes calls of which two ranks say different things, and a right one behind each."""
    c.load(hetccl(ALONE, OpType.ALLGATHER, uneven=True))
    said, own = list[str](), np.full(4, c.rank, "int32")
    wrong: list[tuple[list[int], Any]] = [([1, 2, 3 + (c.rank == 1)], own[: c.rank + 1])]
    wrong += [([1, 2, 3], own[: c.rank + 1].astype("int32" if c.rank else "float32"))]
    for lengths, send in wrong:
        with pytest.raises(CommunicatorError) as raised:
            c.all_gather_v(send, np.zeros(9, send.dtype), lengths)
        said.append(str(raised.value))
        receive = np.zeros(6, "int32")
        c.all_gather_v(own[: c.rank + 1], receive, [1, 2, 3])
        assert receive.tolist() == [0, 1, 1, 2, 2, 2]
    return [said]


@pytest.mark.slow
def test_lengths_that_differ_are_told_to_all() -> None:
    found = run(3, lengths_that_differ)
    assert found[0] == found[1] == found[2]
    assert "rank 2 sends 3 elements to rank 1, which receives 4 from it" in found[0][0][0]
    assert "ranks 0 and 1 call it with different types or reductions" in found[0][0][1]


@pytest.mark.slow
def test_every_collective_over_vendor_clusters_of_one_rank() -> None:
    """Nothing but the border: no library is needed."""
    assert run(3, wrong_calls, jobs_of(ALONE, OPS, 2), 2) == [[]] * 3


def wrong_types(c: Communicator) -> list[str]:
    """Returns the types and reductions whose sums are wrong at this rank."""
    job = hetccl(ALONE, OpType.ALLREDUCE)
    c.load(job)
    wrong = []
    for seed, (dtype, op) in enumerate((dtype, op) for dtype in NAMES for op in JOB_OPS):
        if op == "premul_sum" and not reduces(dtype, op):
            continue  # there is no scalar either
        if reduces(dtype, op):
            made = call_of(c, job, Pattern(job.collective, dtype, op, 321, seed), seed % 2 > 0)
            wrong += [f"{op} of {dtype}: {made}"] * bool(made)
        else:
            with pytest.raises(CommunicatorError, match="a job has no"):
                c.prepared(job.name, None, None, 0, dtype, op)()
    return wrong


@pytest.mark.slow
def test_every_type_and_reduction() -> None:
    assert run(3, wrong_types) == [[]] * 3


# Seconds that calls are said to take at each rank, by micro-batches; the slowest is fastest with 8.
SAID = (
    {1: 5, 2: 4, 4: 1, 8: 3, 16: 9},
    {1: 5, 2: 2, 4: 8, 8: 3, 16: 9},
    {1: 1, 2: 1, 4: 1, 8: 1, 16: 1},
)


def tries(c: Communicator) -> list[int]:
    """Makes calls until a job knows how to cut them; returns into how many, of three sizes."""
    said = SAID[c.rank]
    clock = chain.from_iterable(
        (0, said[k] if turn else 0) for turn in range(3) for k in reversed(said)
    )
    allreduce = hetccl(ALONE, OpType.ALLREDUCE)
    job = LoadedJob(c.handle, c.rank, allreduce, clock=lambda: next(clock, 0))
    job.use()
    count = 30_000
    x = c.empty(count, "int32")
    for call in range(16):
        assert job.trials_left(count, 4) == max(0, 15 - call)
        assert (job.batches(count, 4) == 0) == (call < 15)
        x[:] = c.rank + np.arange(count) + call
        c.all_reduce(x)
        assert np.array_equal(x, 3 + 3 * (np.arange(count) + call)), call
    assert job.trials_left(32_000, 4) == 0, "they are of one size, rounded up"
    return [job.batches(of, 4) for of in (count, 16_000, 70_000)]


@pytest.mark.slow
def test_micro_batches_are_found_by_the_first_calls() -> None:
    assert run(3, tries) == [[8, 1, 0]] * 3


def threads_of_lanes(c: Communicator) -> list[int]:
    """Makes a short call, one that is cut, and a long one; returns how many threads each adds."""
    c.load(hetccl(ALONE, OpType.ALLREDUCE), micro_batches=[(0, 1), (1 << 12, 2), (1 << 13, 1)])
    added: list[int] = []
    before = len(list(Path("/proc/self/task").iterdir()))
    for length in (1 << 13, 1 << 12, 1 << 17):
        x = c.empty(length // 4, "int32")
        x[:] = c.rank
        c.all_reduce(x)
        assert (x == 3).all()
        now = len(list(Path("/proc/self/task").iterdir()))
        added.append(now - before)
        before = now
    return added


@pytest.mark.slow
def test_short_calls_wake_one_thread() -> None:
    """A call that is cut has a lane to the next rank too, and one from that before; a long one has
    these."""
    assert run(3, threads_of_lanes) == [[1, 2, 0]] * 3


def refused_calls(c: Communicator) -> None:
    """Makes calls that are refused, and a right one behind each."""
    c.load(hetccl(ALONE, OpType.ALLREDUCE))
    x = c.empty(6, "int32")
    address = x.ctypes.data
    wrong: dict[str, Callable[[], None]] = {
        "overlap": lambda: c.all_reduce(x[:4], x[2:]),
        "the send buffer is null": c.prepared("hetccl_allreduce", None, address, 6, "int32", "sum"),
        "elements are too many": c.prepared(
            "hetccl_allreduce", address, address, 1 << 62, "int32", "sum"
        ),
    }
    for why, call in wrong.items():
        with pytest.raises(CommunicatorError, match=why):
            call()
        x[:] = c.rank
        c.all_reduce(x)
        assert x.tolist() == [3] * 6


@pytest.mark.slow
def test_what_is_refused_costs_nothing() -> None:
    run(3, refused_calls)


def in_streams_and_groups(c: Communicator) -> None:
    """Makes calls in a stream, which come after what is there, and in groups. A call that is
    refused is refused when it is made; one that all ranks refuse is told later."""
    c.load(hetccl(ALONE, OpType.ALLREDUCE), micro_batches=[(0, 2)])
    c.load(hetccl(ALONE, OpType.BROADCAST, 1), micro_batches=[(0, 1)])
    assert c.can("all_reduce") is Can.NOW and c.can("broadcast", root=1) is Can.NOW
    x, y, stream = c.empty(5000, "int32"), c.empty(7), Stream()
    c.load(hetccl(ALONE, OpType.ALLGATHER, uneven=True))
    go_on = threading.Event()
    stream.then(lambda: go_on.wait())
    stream.then(lambda: x.fill(c.rank))
    c.all_reduce(x, stream=stream)
    with pytest.raises(CommunicatorError, match="overlap"):
        c.all_reduce(x[:4], x[2:], stream=stream)
    with group():
        c.all_reduce(x, stream=stream)
    assert not stream.idle and not c.done, "nothing waits for the stream"
    go_on.set()
    stream.synchronize()
    assert (x == 9).all()
    y[:] = c.rank
    with group():
        c.all_reduce(x)
        c.broadcast(y, root=1)
    assert (x == 27).all() and (y == 1).all()
    lengths, parts = [1, 2, 3 + (c.rank == 1)], c.empty(7, "int32")
    c.all_gather_v(x[: c.rank + 1], parts, lengths, stream=stream)
    stream.synchronize()
    with pytest.raises(CommunicatorError, match="rank 2 sends 3 elements to rank 1"):
        c.check()
    c.all_gather_v(x[: c.rank + 1], parts, [1, 2, 3], stream=stream)
    stream.synchronize()
    assert parts[:6].tolist() == [27] * 6


@pytest.mark.slow
def test_calls_in_streams_and_groups() -> None:
    run(3, in_streams_and_groups)


STANDARD = {"HCCC_STANDARD": "1"}
