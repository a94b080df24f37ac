"""Results of calls: every collective, in shared and in other memory."""

from __future__ import annotations

import threading
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.runtime.communicator import Communicator, CommunicatorError, unique_id
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.device.stream import Stream
from tests.communicator.conftest import Library
from tests.communicator.world import alone, loaded, run, start
from tests.emit import plans
from tests.marks import slow

COUNT, LONG_COUNT = 1003, 150_001  # the latter are copied in slices
SHARED_AT = (lambda rank: True, lambda rank: False, lambda rank: rank != 0)


def pattern(rank: int, count: int, blocks: int = 1) -> np.ndarray[Any, Any]:
    """Returns elements that differ by rank and place; sums of a few are exact."""
    return (np.arange(count * blocks, dtype=np.int32) * 31 + rank * 7919) % 100_003


def placed(communicator: Communicator, values: Any, shared: bool) -> Any:
    """Copies the values into an array that peers can reach (shared) or cannot."""
    made = communicator.empty(values.shape, "int32") if shared else np.empty_like(values)
    made[:] = values
    return made


def all_reduces(communicator: Communicator, place: Path) -> bool:
    """Checks AllReduce in and out of place, in both kinds of memory, of several sizes."""
    c, n = loaded(communicator, place), communicator.n_ranks
    for count in (COUNT, 1, 70_001, 300_001):
        wanted = sum(pattern(r, count) for r in range(n))
        for shared in (at(c.rank) for at in SHARED_AT):
            send = placed(c, pattern(c.rank, count), shared)
            receive = placed(c, np.zeros(count, np.int32), shared)
            c.all_reduce(send, receive)
            assert np.array_equal(receive, wanted), (count, shared)
            assert np.array_equal(send, pattern(c.rank, count))
            c.all_reduce(send, op="max")
            assert np.array_equal(send, np.max([pattern(r, count) for r in range(n)], axis=0))
    return True


def test_all_reduce(sums: Path) -> None:
    assert run(3, all_reduces, sums) == [True] * 3


def staged(communicator: Communicator, place: Path) -> bool:
    return all_reduces(communicator, place)


@pytest.mark.slow
def test_queues_between_processes(library: Library) -> None:
    plan = plans.compiled(plans.ring_allreduce(2), transport=Transport.STAGED)
    assert run(2, staged, library(plan)) == [True] * 2


def one_of_all(communicator: Communicator, place: Path, name: str, root: int) -> bool:
    c = loaded(communicator, place)
    return all(performs(c, name, root, count) for count in (COUNT, LONG_COUNT))


def performs(c: Communicator, name: str, root: int, count: int) -> bool:
    n, me = c.n_ranks, c.rank
    blocks = [pattern(r, count, n) for r in range(n)]
    parts = [b.reshape(n, count) for b in blocks]
    sent = {  # (this rank's input, its expected result)
        "all_gather": (parts[me][0], np.concatenate([p[0] for p in parts])),
        "reduce_scatter": (blocks[me], sum(p[me] for p in parts)),
        "all_to_all": (blocks[me], np.concatenate([p[me] for p in parts])),
        "gather": (parts[me][0], np.concatenate([p[0] for p in parts])),
        "scatter": (blocks[me], parts[root][me]),
        "reduce": (parts[me][0], sum(p[0] for p in parts)),
    }
    for shared in (at(me) for at in SHARED_AT):
        if name == "broadcast":
            buffer = placed(c, parts[me][0], shared)
            c.broadcast(buffer, root)
            assert np.array_equal(buffer, parts[root][0])
            continue
        send = placed(c, sent[name][0], shared)
        receive = placed(c, np.zeros_like(sent[name][1]), shared)
        if name in ("gather", "reduce"):
            getattr(c, name)(send, receive if me == root else None, root)
        elif name == "scatter":
            c.scatter(send if me == root else None, receive, root)
        else:
            getattr(c, name)(send, receive)
        if name not in ("gather", "reduce") or me == root:
            assert np.array_equal(receive, sent[name][1]), (name, shared)
    return True


def plan_of(name: str, n: int, root: int) -> Plan:
    """Returns a plan of the collective for n ranks."""
    others = [r for r in range(n) if r != root]
    made = {
        "broadcast": lambda: plans.broadcast(n, root),
        "all_gather": lambda: plans.ring_allgather(n),
        "all_to_all": lambda: plans.alltoall(n),
        "reduce_scatter": lambda: plans.program(
            "rs",
            OpType.REDUCESCATTER,
            n,
            [((r + k) % n, r, k, r, 1, 1) for r in range(n) for k in range(1, n)],
        ),
        "gather": lambda: plans.program(
            "gather", OpType.GATHER, n, [(r, root, 0, r, 1, 0) for r in others], root=root
        ),
        "scatter": lambda: plans.program(
            "scatter", OpType.SCATTER, n, [(root, r, 0, r, 1, 0) for r in others], root=root
        ),
        "reduce": lambda: plans.program(
            "reduce", OpType.REDUCE, n, [(r, root, 0, 0, 1, 1) for r in others], chunks=1, root=root
        ),
    }
    return plans.compiled(made[name]())


ROOTED = ("gather", "scatter", "reduce")
SLOW = ("all_gather", "all_to_all", "reduce_scatter", *ROOTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["broadcast", *map(slow, SLOW)])
def test_every_collective(library: Library, name: str) -> None:
    n, root = 3, 1
    assert run(n, one_of_all, library(plan_of(name, n, root)), name, root) == [True] * n


def in_place(communicator: Communicator, gather: Path, scatter: Path) -> bool:
    """Checks NCCL's in-place calls: one buffer is part of the other."""
    c, n, me = loaded(communicator, gather, scatter), communicator.n_ranks, communicator.rank
    for count, at in product((COUNT, LONG_COUNT), SHARED_AT):
        every = placed(c, np.zeros(n * count, np.int32), at(me))
        own = every[me * count : (me + 1) * count]
        own[:] = pattern(me, count)
        c.all_gather(own, every)
        assert np.array_equal(every, np.concatenate([pattern(r, count) for r in range(n)]))
        every[:] = pattern(me, count, n)
        c.reduce_scatter(every, own)
        wanted = sum(pattern(r, count, n).reshape(n, count)[me] for r in range(n))
        assert np.array_equal(own, wanted)
    return True


@pytest.mark.slow
def test_in_place(library: Library) -> None:
    places = [library(plan_of(name, 3, 0)) for name in ("all_gather", "reduce_scatter")]
    assert run(3, in_place, *places) == [True] * 3


def several(communicator: Communicator, sums: Path, star: Path) -> bool:
    """Checks two communicators, two libraries in each, by turns."""
    c = loaded(communicator, sums, star)
    with Communicator.from_environment() as other:
        loaded(other, star, sums)
        for k in range(20):
            one = (c, other)[k % 2]
            x = placed(one, pattern(one.rank + k, COUNT), bool(k % 3))
            one.all_reduce(x)
            assert np.array_equal(x, sum(pattern(r + k, COUNT) for r in range(3)))
            y = placed(one, pattern(one.rank - k, COUNT), bool(k % 3))
            one.broadcast(y, 1)
            assert np.array_equal(y, pattern(1 - k, COUNT))
    return True


@pytest.mark.slow
def test_several_communicators_and_libraries(sums: Path, library: Library) -> None:
    star = library(plans.compiled(plans.broadcast(3, 1)))
    assert run(3, several, sums, star) == [True] * 3


def of_threads(sums: Path) -> bool:
    id, n = unique_id(), 3
    found: list[Any] = [None] * n

    def rank(me: int) -> None:
        with Communicator.join(id, n, me) as c:
            loaded(c, sums)
            x = pattern(me, COUNT)
            for _ in range(3):
                found[me] = np.zeros_like(x)
                c.all_reduce(x, found[me])

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(n)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    return all(np.array_equal(x, sum(pattern(r, COUNT) for r in range(n))) for x in found)


def test_ranks_may_be_threads(sums: Path) -> None:
    """Then every array is reached, and none is copied."""
    assert alone(of_threads, sums)


def refused(communicator: Communicator, sums: Path) -> list[str]:
    """Checks that bad arguments are reported and the communicator goes on."""
    c = loaded(communicator, sums)
    x = c.empty(COUNT, "int32")
    whole = np.zeros(2 * COUNT, np.int32)
    calls: list[Any] = [
        lambda: c.all_reduce(whole[:COUNT], whole[1 : COUNT + 1]),
        lambda: c.broadcast(x, 0),
        lambda: c.run("nothing", x, x, COUNT),
    ]
    texts = []
    for call in calls:
        with pytest.raises(CommunicatorError) as caught:
            call()
        texts.append(caught.value.text)
    x[:] = pattern(c.rank, COUNT)
    c.all_reduce(x)
    assert np.array_equal(x, sum(pattern(r, COUNT) for r in range(3))) and c.error is Result.SUCCESS
    return texts


@pytest.mark.slow
def test_bad_arguments_lose_nothing(sums: Path) -> None:
    overlap, missing, unknown = run(3, refused, sums)[0]
    assert "overlap" in overlap
    assert "no library is loaded that does Broadcast with root 0" in missing
    assert "no library is loaded that is called nothing" in unknown


def of_other_types(communicator: Communicator, sums: Path) -> bool:
    """Reduces what is no number, or a complex one, in both kinds of memory."""
    c, n = communicator, communicator.n_ranks
    c.load(str(sums), ["bool", "uint16", "complex64", "complex128"], ["sum", "bxor", "land"])
    for dtype, op in product(
        ("bool", "uint16", "complex64", "complex128"), ("sum", "bxor", "land")
    ):
        if dtype.startswith("complex") and op != "sum":
            with pytest.raises(CommunicatorError, match=f"there is no {op} of {dtype}"):
                c.all_reduce(np.zeros(3, dtype), op=op)
            continue
        given = [(pattern(r, COUNT) % 3).astype(dtype) for r in range(n)]
        given = [x * (1 - 2j) if dtype.startswith("complex") else x for x in given]
        fold = {"sum": np.add, "bxor": np.bitwise_xor, "land": np.logical_and}[op]
        wanted = fold(fold(given[0], given[1]), given[2]).astype(dtype)
        for shared in (True, False):
            x: Any = c.empty(COUNT, dtype) if shared else np.empty(COUNT, dtype)
            x[:] = given[c.rank]
            c.all_reduce(x, op=op)
            assert np.array_equal(x, wanted), (dtype, op, shared)
    return True


@pytest.mark.slow
def test_types_and_reductions_that_nccl_lacks(sums: Path) -> None:
    assert run(3, of_other_types, sums) == [True] * 3


def wrong_at_some(communicator: Communicator, sums: Path) -> bool:
    """Makes right calls, and between them what no library is built for: at all ranks, or at one."""
    c, n = loaded(communicator, sums), communicator.n_ranks
    x: Any = c.empty(LONG_COUNT, "int32")
    wrongs: list[Any] = [
        lambda: c.all_reduce(np.zeros(COUNT)),  # float64
        lambda: c.all_reduce(x, op="prod"),
        lambda: c.broadcast(x, 0),
        lambda: c.all_reduce(x[:9], x[1:10]),
    ]
    with Stream() as stream:
        for turn in range(40):
            x[:] = pattern(c.rank + turn, LONG_COUNT)
            c.all_reduce(x, stream=stream if turn % 3 == 0 else None)
            if turn % 2 or turn % n == c.rank:
                with pytest.raises(CommunicatorError):
                    wrongs[turn % 4]()
            stream.synchronize()
            assert np.array_equal(x, sum(pattern(r + turn, LONG_COUNT) for r in range(n)))
            assert c.error is Result.SUCCESS
        with pytest.raises(CommunicatorError, match="not built for float64, sum"):
            c.all_reduce(np.zeros(COUNT), stream=stream)
        c.check()
    return True


@pytest.mark.slow
def test_a_call_that_is_refused_costs_no_other(sums: Path) -> None:
    """Neither the call before it, which other ranks may still be in, nor the communicator."""
    assert run(3, wrong_at_some, sums) == [True] * 3


def test_a_communicator_says_which_rank_it_is() -> None:
    first, second = Communicator.init_all(2)
    assert [repr(first), repr(second)] == [f"<Communicator rank {r} of 2, cpu>" for r in (0, 1)]
    for one in (first, second):
        one.destroy()
    assert repr(first) == "<Communicator destroyed>"


def counted(communicator: Communicator, place: Path) -> int:
    """Loads a library for another number of ranks."""
    loaded(communicator, place)
    return 0


def test_a_library_for_other_ranks_is_refused(sums: Path) -> None:
    found = run(2, counted, sums)
    assert all("is for 3 ranks, the communicator has 2" in one.text for one in found)


def logged(communicator: Communicator, sums: Path) -> bool:
    loaded(communicator, sums).all_reduce(np.zeros(2 * COUNT, np.int32))  # no short one
    return True


@pytest.mark.slow
def test_what_is_done_can_be_read(sums: Path, tmp_path: Path) -> None:
    log = {
        "HCCC_DEBUG": "INFO",
        "HCCC_DEBUG_SUBSYS": "COLL,MEM",
        "HCCC_DEBUG_FILE": str(tmp_path / "%p"),
    }
    start(3, logged, sums, environment=log).outcomes()
    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert len(texts) == 3
    for text in texts:
        assert f"HCCC INFO Allreduce of {2 * COUNT} int32 (sum) in place by mesh, call 2" in text
        assert "buffers are not of hcccMemAlloc" in text and "ranks, " not in text
