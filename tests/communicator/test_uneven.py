"""Uneven collectives of communicators: blocks of any lengths, and lengths that do not fit."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.uneven import RECEIVE, SEND, SKEWS, BlockTable, scattered, skewed
from hccc.runtime.communicator import Communicator, CommunicatorError, group
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.runtime_library import library as functions
from hccc.runtime.device.stream import Stream
from tests.communicator.conftest import Uneven
from tests.communicator.world import Lost, alone, loaded, run, start
from tests.marks import LONG, slow

RANKS, ROOT = 3, 1
GAP = -7  # what lies between blocks
OPS = {
    "all_to_all": OpType.ALLTOALL,
    "all_gather": OpType.ALLGATHER,
    "reduce_scatter": OpType.REDUCESCATTER,
    "gather": OpType.GATHER,
    "scatter": OpType.SCATTER,
}
FIRST, *OTHERS = OPS


def collective(name: str, n: int = RANKS) -> Collective:
    op = OPS[name]
    root = ROOT if name in ("gather", "scatter") else 0
    return Collective(op, n, block_count(op, n), root, uneven=True)


def packed(name: str, lengths: Sequence[int], n: int = RANKS) -> BlockTable:
    return BlockTable.packed(collective(name, n), np.array(lengths, np.int64))


def data(table: BlockTable, rank: int, block: int, call: int) -> Any:
    """Returns the elements of a block that a rank sends."""
    length = int(table.lengths[block])
    return (np.arange(length, dtype=np.int32) * 31 + rank * 7919 + block * 101 + call) % 10_007


def result(table: BlockTable, block: int, call: int) -> Any:
    """Returns the elements of a block that is received."""
    c = table.collective
    if c.reduces:
        return sum(data(table, r, block, call) for r in range(c.n_ranks))
    return data(table, int(c.source_of(np.array(block))), block, call)


def images(table: BlockTable, rank: int, call: int) -> tuple[Any, Any, Any]:
    """Returns a rank's buffers before the call, and its receive buffer after it."""
    send, receive = (np.full(table.sizes[rank, which], GAP, np.int32) for which in (SEND, RECEIVE))
    after = receive.copy()
    for block, first, length in table.spans(rank, SEND):
        send[first : first + length] = data(table, rank, block, call)
    for block, first, length in table.spans(rank, RECEIVE):
        after[first : first + length] = result(table, block, call)
    return send, receive, after


def rows(table: BlockTable, rank: int, which: int) -> tuple[list[int], list[int]]:
    """Returns the lengths and the places of the blocks of a buffer."""
    spans = table.spans(rank, which)
    return [length for _, _, length in spans], [first for _, first, _ in spans]


def only(table: BlockTable, rank: int, which: int, buffer: Any) -> Any:
    """Returns the only block of a buffer."""
    (length,), (first,) = rows(table, rank, which)
    return buffer[first : first + length]


def perform(c: Communicator, table: BlockTable, send: Any, receive: Any) -> None:
    """Makes the call of a table."""
    me, op, root = c.rank, table.collective.op, table.collective.root
    (sent, sent_at), (got, got_at) = (rows(table, me, which) for which in (SEND, RECEIVE))
    if op is OpType.ALLTOALL:
        c.all_to_all_v(send, receive, sent, got, sent_at, got_at)
    elif op is OpType.ALLGATHER:
        c.all_gather_v(only(table, me, SEND, send), receive, got, got_at)
    elif op is OpType.REDUCESCATTER:
        c.reduce_scatter_v(send, only(table, me, RECEIVE, receive), sent, "sum", sent_at)
    elif op is OpType.GATHER and me == root:
        c.gather_v(only(table, me, SEND, send), receive, got, root, got_at)
    elif op is OpType.GATHER:
        c.gather_v(only(table, me, SEND, send), None, None, root)
    elif me == root:
        c.scatter_v(send, only(table, me, RECEIVE, receive), sent, root, sent_at)
    else:
        c.scatter_v(None, only(table, me, RECEIVE, receive), None, root)


def held(c: Communicator, values: Any, shared: bool) -> Any:
    """Copies values into an array that peers reach (shared) or do not."""
    made = c.empty(max(1, len(values)), "int32")[: len(values)] if shared else values.copy()
    made[:] = values
    return made


def random_tables(name: str, seed: int, n: int, ranks: int = RANKS) -> list[BlockTable]:
    rng, c = Random(seed), collective(name, ranks)
    counts = [0, 1, 40, 1000, 70_001]
    drawn = [
        (rng.choice(counts), rng.choice(SKEWS), rng.randrange(1 << 30), rng.randrange(1 << 30))
        for _ in range(n)
    ]
    return [scattered(c, skewed(c, count, skew, a), b) for count, skew, a, b in drawn]


def random_calls(c: Communicator, place: Path, name: str, seed: int, n: int) -> bool:
    loaded(c, place)
    for call, table in enumerate(random_tables(name, seed, n, c.n_ranks)):
        send, receive, after = images(table, c.rank, call)
        shared = [bool((call + which + c.rank * seed) % 3) for which in (SEND, RECEIVE)]
        s, r = held(c, send, shared[0]), held(c, receive, shared[1])
        perform(c, table, s, r)
        assert np.array_equal(r, after), (seed, call, c.rank)
        assert np.array_equal(s, send), (seed, call, c.rank)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", [FIRST, *map(slow, OTHERS)])
def test_blocks_of_any_length_and_place(uneven: Uneven, name: str) -> None:
    for seed in range(LONG):
        assert run(RANKS, random_calls, uneven(name), name, seed, 40) == [True] * RANKS


def drawn_tables() -> st.SearchStrategy[BlockTable]:
    c = collective("all_to_all")
    lengths = st.lists(st.integers(0, 5), min_size=c.blocks, max_size=c.blocks)
    return st.builds(
        lambda drawn, seed: scattered(c, np.array(drawn), seed), lengths, st.integers(0, 99)
    )


def laws(place: Path, examples: int) -> bool:
    """Draws calls of ranks that are threads: all receive what they should, or, where one is ready
    for more or less than is sent, nothing, and the next call works."""
    ranks = Communicator.init_all(RANKS)
    with group():
        for c in ranks:
            loaded(c, place)
    rank, peer, more = st.integers(0, 2), st.integers(0, 2), st.sampled_from([-1, 0, 0, 1, 5])

    @settings(max_examples=examples, deadline=None, database=None)
    @given(drawn_tables(), rank, peer, more)
    def hold(table: BlockTable, rank: int, peer: int, more: int) -> None:
        block = peer * RANKS + rank
        sent = int(table.lengths[block])
        other = table.lengths.copy()
        other[block] = max(0, sent + more)
        tables = [table] * RANKS
        if other[block] != sent:
            tables[rank] = BlockTable.packed(table.collective, other)
        sends = [images(table, r, 0)[0] for r in range(RANKS)]
        receives = [images(its, r, 0)[1] for r, its in enumerate(tables)]

        def calls() -> None:
            with group():
                for c, its, send, receive in zip(ranks, tables, sends, receives, strict=True):
                    out, at = rows(table, c.rank, SEND)
                    got, to = rows(its, c.rank, RECEIVE)
                    c.all_to_all_v(send, receive, out, got, at, to)

        if other[block] == sent:
            calls()
            for r in range(RANKS):
                assert np.array_equal(receives[r], images(table, r, 0)[2])
            return
        with pytest.raises(CommunicatorError) as caught:
            calls()
        text = f"rank {peer} sends {sent} elements to rank {rank}, which receives {other[block]}"
        assert text in caught.value.text and caught.value.result is Result.INVALID_USAGE
        assert all((receive == GAP).all() for receive in receives)
        assert all(c.error is Result.SUCCESS for c in ranks)

    hold()
    for c in ranks:
        c.destroy()
    return True


@pytest.mark.slow
def test_lengths_fit_or_nothing_moves(uneven: Uneven) -> None:
    assert alone(laws, uneven("all_to_all"), 60 * LONG)


def differing(c: Communicator, place: Path, name: str) -> str:
    """Returns the error of a call in which rank 0 (of Scatterv rank 2) has another length for a
    block than the others; then makes the right call."""
    loaded(c, place)
    n = c.n_ranks
    lengths = list(range(1, collective(name, n).blocks + 1))
    table = packed(name, lengths, n)
    if c.rank == (2 if name == "scatter" else 1 if name == "gather" else 0):
        lengths[2 * n if name == "all_to_all" else 2] += 10  # what rank 2 sends, or is sent
    own = packed(name, lengths, n)
    send, receive, _ = images(own, c.rank, 0)
    with pytest.raises(CommunicatorError) as caught:
        perform(c, own, send, receive)
    assert caught.value.result is Result.INVALID_USAGE and c.error is Result.SUCCESS
    assert (receive == GAP).all()
    send, receive, after = images(table, c.rank, 1)
    perform(c, table, send, receive)
    assert np.array_equal(receive, after)
    return caught.value.text


DIFFER = {
    "all_to_all": "rank 2 sends 7 elements to rank 0, which receives 17 from it",
    "all_gather": "rank 2 sends 3 elements to rank 0, which receives 13 from it",
    "reduce_scatter": "rank 0 has 13 elements for rank 2, and rank 1 has 3 for it",
    "gather": "rank 2 sends 3 elements to rank 1, which receives 13 from it",
    "scatter": "rank 1 sends 3 elements to rank 2, which receives 13 from it",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [FIRST, *map(slow, OTHERS)])
def test_lengths_that_differ_are_one_error_with_both_ends(uneven: Uneven, name: str) -> None:
    texts = run(RANKS, differing, uneven(name), name)
    assert len(set(texts)) == 1 and texts[0].endswith(f", call 2: {DIFFER[name]}"), texts


def joined(c: Communicator, send: Any, receive: Any, first: int, shared: bool) -> tuple[Any, Any]:
    """Returns buffers of which the shorter one lies in the longer one, from an element on."""
    if not len(send) or not len(receive):
        return held(c, send, shared), held(c, receive, shared)
    if len(send) >= len(receive):
        whole = held(c, send, shared)
        return whole, whole[first : first + len(receive)]
    whole = held(c, receive, shared)
    whole[first : first + len(send)] = send
    return whole[first : first + len(send)], whole


def in_place(c: Communicator, place: Path, name: str) -> bool:
    loaded(c, place)
    both_ways = name == "all_to_all"
    lengths = [4, 0, 3, 0, 5, 1, 3, 1, 70_000] if both_ways else [5, 2, 70_000]
    first = 0 if both_ways else sum(lengths[: c.rank])
    table = packed(name, lengths)
    for shared in (True, False):
        send, receive, after = images(table, c.rank, int(shared))
        s, r = joined(c, send, receive, first, shared)
        perform(c, table, s, r)
        assert np.array_equal(r, after), (c.rank, shared)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", [FIRST, *map(slow, OTHERS)])
def test_in_place(uneven: Uneven, name: str) -> None:
    assert run(RANKS, in_place, uneven(name), name) == [True] * RANKS


def no_elements(c: Communicator, place: Path) -> bool:
    """Makes calls without any element, and with one at one rank."""
    loaded(c, place)
    none, one, zeros = np.zeros(0, np.int32), np.full(1, 5, np.int32), [0] * RANKS
    c.all_to_all_v(none, none, zeros, zeros)
    to, by, got = [0, int(c.rank == 0), 0], [int(c.rank == 1), 0, 0], np.zeros(1, np.int32)
    send = one if c.rank == 0 else none
    c.all_to_all_v(send, got if c.rank == 1 else none, to, by)
    return bool(got[0] == (5 if c.rank == 1 else 0))


@pytest.mark.slow
def test_no_elements(uneven: Uneven) -> None:
    assert run(RANKS, no_elements, uneven("all_to_all")) == [True] * RANKS


def c_call(c: Communicator, *arguments: Any) -> str:
    """Returns the error of hcccAllToAllv: of lists, which become arrays, and addresses."""
    words = [
        (ctypes.c_size_t * len(one))(*one) if isinstance(one, list) else one for one in arguments
    ]
    result = functions().function("AllToAllv")(*words, 2, c.handle, None)  # hcccInt32
    assert result == Result.INVALID_ARGUMENT and c.error is Result.SUCCESS
    return functions().last_error()


def refused(c: Communicator, place: Path) -> list[str]:
    loaded(c, place)
    page = 1024  # elements: an allocation ends there
    x, y = c.empty(page, "int32"), c.empty(page, "int32")
    send, receive, ones = x.ctypes.data, y.ctypes.data, [1, 1, 1]
    texts = [
        c_call(c, send, ones, None, receive, [2, 1, 1], [0, 1, 5]),
        c_call(c, send, ones, None, receive, ones, [0, 5, page]),
        c_call(c, send, ones, [0, 5, page], receive, ones, None),
        c_call(c, send, ones, [0, 1, 2], send + 4, ones, [4, 1, 2]),
        c_call(c, send, [1, 1 << 62, 1], None, receive, ones, None),
        c_call(c, send, [1, -1 % (1 << 64), 1], None, receive, ones, None),
        c_call(c, send, ones, None, receive, None, None),
        c_call(c, None, ones, None, receive, ones, None),
        c_call(c, send + 2, ones, None, receive, ones, None),
    ]
    c.all_to_all_v(x, y, ones, ones)  # nobody has lost anything
    return texts


@pytest.mark.slow
def test_what_one_rank_sees_is_refused_before_others_hear_of_it(uneven: Uneven) -> None:
    whys = [
        "blocks 0 and 1 overlap in the receive buffer",
        "are in no allocation of hcccMemAlloc",
        "are in no allocation of hcccMemAlloc",
        "block 2 that is sent and block 1 that is received overlap, and not as they do in place",
        "too many, or negative",
        "too many, or negative",
        "the lengths of the blocks of the receive buffer are null",
        "the send buffer is null",
        "not aligned to 4 bytes",
    ]
    for texts in run(RANKS, refused, uneven("all_to_all")):
        for text, why in zip(texts, whys, strict=True):
            assert why in text


def refused_in_python(c: Communicator, place: Path) -> list[str]:
    loaded(c, place)
    x, ones = np.zeros(5, np.int32), [1, 1, 1]
    texts = []
    for arguments in (
        (ones, ones, None, [0, 2, 5]),
        (ones, [1, 1, 9], None, None),
        ([1, -1, 1], ones, None, None),
        ([1, 1], ones, None, None),
        (ones, ones, [0, 1], None),
    ):
        with pytest.raises(UserError) as caught:
            c.all_to_all_v(x, x.copy(), *arguments)
        assert caught.value.problem.code == "E473"
        texts.append(caught.value.problem.message)
    return texts


@pytest.mark.slow
def test_arrays_that_are_too_short_are_refused(uneven: Uneven) -> None:
    assert run(RANKS, refused_in_python, uneven("all_to_all"))[0] == [
        "AllToAllv: block 2, 1 elements from 5, is outside receive",
        "AllToAllv: block 2, 9 elements from 2, is outside receive",
        "AllToAllv: block 1, -1 elements from 1, is outside send",
        "AllToAllv: 2 lengths of blocks of send",
        "AllToAllv: 2 places of blocks of send",
    ]


def in_a_stream(c: Communicator, place: Path) -> bool:
    """Makes calls in a stream and in a graph; lengths are read before a call returns."""
    loaded(c, place)
    table = random_tables("all_to_all", 5, 3)[-1]
    send, receive, after = images(table, c.rank, 0)
    got, to = rows(table, c.rank, RECEIVE)
    with Stream() as stream:
        for captured in (False, True):
            receive[:] = GAP
            out, at = rows(table, c.rank, SEND)
            if captured:
                with stream.capture() as graph:
                    c.all_to_all_v(send, receive, out, got, at, to, stream=stream)
                graph.launch(stream)
            else:
                c.all_to_all_v(send, receive, out, got, at, to, stream=stream)
            out[:] = [0] * RANKS
            stream.synchronize()
            c.check()
            assert np.array_equal(receive, after), captured
    return True


@pytest.mark.slow
def test_calls_in_streams(uneven: Uneven) -> None:
    assert run(RANKS, in_a_stream, uneven("all_to_all")) == [True] * RANKS


def another_call(c: Communicator, places: Sequence[Path], how: str) -> str:
    """Returns the error of a call where rank 1 makes another one; then makes the same as others."""
    loaded(c, *places)
    x, y, ones = np.full(RANKS, c.rank, np.int32), np.zeros(RANKS, np.int32), [1] * RANKS
    with pytest.raises(CommunicatorError) as caught:
        if c.rank != 1:
            c.all_to_all_v(x, y, ones, ones)
        elif how == "uneven":
            c.all_gather_v(x[:1], y, ones)
        else:
            c.all_reduce(x)
    assert caught.value.result is Result.INVALID_USAGE and c.error is Result.SUCCESS
    c.all_to_all_v(x, y, ones, ones)
    assert np.array_equal(y, range(RANKS))
    return caught.value.text


ANOTHER = {
    "uneven": "rank 1 calls Allgatherv of int32",
    "even": "rank 1 calls Allreduce of 3 int32",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["uneven", slow("even")])
def test_another_call_at_one_rank_costs_nothing(uneven: Uneven, sums: Path, how: str) -> None:
    places = [uneven("all_to_all"), uneven("all_gather"), sums]
    for text in run(RANKS, another_call, places, how):
        assert ANOTHER[how] in text and "Alltoallv of int32" in text


def gone(c: Communicator, place: Path, how: str) -> None:
    loaded(c, place)
    x, ones = np.ones(RANKS, np.int32), [1] * RANKS
    if c.rank != 1:
        c.all_to_all_v(x, x.copy(), ones, ones)
    elif how == "died":
        os._exit(1)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left", "died"])
def test_a_rank_that_is_gone_ends_the_call(uneven: Uneven, how: str) -> None:
    silent = [1] if how == "died" else []
    found = start(RANKS, gone, uneven("all_to_all"), how).outcomes(silent=silent)
    text, result = {
        "left": ("rank 1 has left the communicator", Result.INVALID_USAGE),
        "died": ("rank 1 is gone", Result.REMOTE_ERROR),
    }[how]
    for rank in (0, 2):
        lost = found[rank]
        assert isinstance(lost, Lost) and lost.result is result, (rank, lost)
        assert text in lost.text and "Alltoallv of int32" in lost.text
