"""A Program printed in loops is the same Program, and one with a pattern is short."""

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source
from hccc.ir.collective import Collective, OpType
from hccc.ir.program import TRANSFER, Program, same
from hccc.ir.program import lines as plain
from hccc.lang.transfer import load, printer, tokens
from hccc.testing.strategies import correct_programs

ALGORITHMS = Path(__file__).parents[3] / "examples"


def again(p: Program) -> Program:
    return load.parse(Source("printed", printer.text(p)))


def table(n: int, chunks: int, rows: Sequence[tuple[int, ...]]) -> Program:
    """Makes a Program of any transfers, right or wrong: (src, dst, step, chunk, op)."""
    transfers = np.zeros(len(rows), TRANSFER)
    for name, column in zip(
        ("src", "dst", "step", "chunk", "op"), zip(*rows, strict=True), strict=True
    ):
        transfers[name] = column
    transfers = transfers[np.argsort(transfers["step"], kind="stable")]
    return Program("any", Collective(OpType.ALLREDUCE, n, chunks), 1, 16, n, n, transfers)


@pytest.mark.slow
@settings(deadline=None)
@given(correct_programs())
def test_printed_and_parsed_it_is_the_same(p: Program) -> None:
    assert same(again(p), p)


@st.composite
def nests(draw: st.DrawFn) -> Program:
    """Draws loop nests over lines and remainders, in any order of steps, some of their rows lost or
    repeated: regular, and broken anywhere."""
    n = draw(st.integers(2, 12))
    chunks = n * draw(st.integers(1, 3))
    rows: list[tuple[int, ...]] = []
    for _ in range(draw(st.integers(1, 3))):
        counts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
        small = st.integers(-n, n)
        slope = np.array(
            draw(
                st.lists(
                    st.tuples(small, small, small, st.integers(0, 2)),
                    min_size=len(counts),
                    max_size=len(counts),
                )
            )
        )
        begin = np.array(draw(st.tuples(small, small, small, st.integers(0, 4))))
        m = draw(st.sampled_from([n, 2, 3, 4, 8]))
        op = draw(st.integers(0, 1))
        for turns in np.ndindex(*counts):
            src, dst, chunk, step = (begin + np.array(turns) @ slope).tolist()
            dst = dst % m % n if m < n else dst % n
            if src % n != dst:
                rows.append((src % n, dst, step, chunk % chunks, op))
    for at in draw(st.lists(st.integers(0, max(0, len(rows) - 1)), max_size=3)):
        if rows:
            rows.insert(draw(st.integers(0, len(rows))), rows.pop(at % len(rows)))
    return table(n, chunks, rows or [(0, 1, 0, 0, 0)])


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(nests())
def test_any_table_in_any_order_is_the_same(p: Program) -> None:
    assert same(again(p), p)


LENGTHS = {
    "ring_allreduce": 7,
    "ring_allgather": 4,
    "direct_allreduce": 7,
    "direct_alltoall": 4,
    "hm_allreduce": 17,
    "hm_allgather": 13,
    "hm_reducescatter": 9,
    "rhd_allreduce": 23,
    "direct_gather": 3,
    "sendrecv": 3,
}


@pytest.mark.parametrize("name", LENGTHS)
def test_patterns_become_loops(name: str) -> None:
    p = load.load(ALGORITHMS / f"{name}.rccl")
    assert len(list(printer.lines(p))) == LENGTHS[name]
    assert same(again(p), p)


def test_a_ring_reads_as_one_would_write_it() -> None:
    text = printer.text(load.load(ALGORITHMS / "ring_allgather.rccl"), ["Ring", "by hand\nseed 1"])
    assert text.splitlines()[:3] == ["# Ring", "# by hand", "# seed 1"]
    assert text.splitlines()[4:] == [
        "    for s in range(nRanks - 1):",
        "        for i in range(nRanks):",
        "            transfer(i, (i + 1) % nRanks, s, (i - s) % nChunks, recv)",
    ]


def test_a_ring_in_any_order_is_a_loop_over_lists() -> None:
    n, order = 12, [0, 5, 3, 9, 1, 7, 11, 2, 4, 8, 10, 6]
    rows = [
        (order[i], order[(i + 1) % n], s, (i - s) % n, 1) for s in range(n - 1) for i in range(n)
    ]
    p = table(n, n, rows)
    lines = list(printer.lines(p))
    assert lines[0] == "src0 = [0, 5, 3, 9, 1, 7, 11, 2, 4, 8, 10, 6]"
    assert lines[-3:] == [
        "    for s in range(nRanks - 1):",
        "        for i in range(12):",
        "            transfer(src0[i], dst1[i], s, (chunk2[i] - s) % nChunks, rrc)",
    ]
    assert len(lines) == 7 and same(again(p), p)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.integers(8, 16), st.integers(3, 6), st.integers(1, 5), st.randoms(use_true_random=False))
def test_lists_are_the_same_too(n: int, turns: int, by: int, random: Random) -> None:
    """Rings in any order, with a transfer of another step now and then."""
    order = random.sample(range(n), n)
    rows = [
        (order[i], order[i - 1], 2 * s, (3 * i + by * s) % (2 * n), 0)
        for s in range(turns)
        for i in range(n)
        if random.random() < 0.97
    ]
    p = table(n, 2 * n, rows)
    assert same(again(p), p)


@pytest.mark.slow
def test_large_and_irregular_programs_take_seconds() -> None:
    rng = np.random.default_rng(1)
    n = 64
    src = rng.integers(0, n, 100_000)
    dst = (src + rng.integers(1, n, len(src))) % n
    step = np.sort(rng.integers(0, 300, len(src)))
    rows = np.stack([src, dst, step, rng.integers(0, n, len(src)), rng.integers(0, 2, len(src))])
    p = table(n, n, list(map(tuple, rows.T.tolist())))
    printer.text(table(2, 2, [(0, 1, 0, 0, 0)] * 4))  # compiled
    begin = time.perf_counter()
    text = printer.text(p)
    assert time.perf_counter() - begin < 120  # quadratic would be hours
    assert same(load.parse(Source("printed", text)), p)


READ = 128  # words, here: a header and a table have fewer


@settings(deadline=None)
@given(nests())
def test_what_is_printed_has_no_more_words_than_are_read(p: Program) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "MAX_TOKENS", READ)
        patch.setattr(printer, "MAX_TOKENS", READ)
        assert same(again(p), p)


def test_loops_of_too_many_words_are_printed_as_transfers() -> None:
    rows = [
        (i, (i + 1) % 9, s, (i * s) % 9, 0) for s in range(8) for i in range(9) if s * i % 7 < 5
    ]
    p = table(9, 9, rows)
    assert "for" in printer.text(p)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(printer, "MAX_TOKENS", READ)
        assert printer.text(p).splitlines() == [*plain(p)]
