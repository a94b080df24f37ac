"""Demands: their text, and the collectives that they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.ir.collective import PROGRAMMABLE, ROOTED, Collective, OpType, demand_of, recognised
from hccc.ir.demand import MAX_CELLS, Demand, DemandFault, parse
from hccc.testing.strategies import demands


@settings(deadline=None)
@given(st.data())
def test_a_demand_reads_as_it_prints(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 70))
    demand = data.draw(demands(n))
    assert parse(demand.text(), n) == demand
    assert parse("\n".join(demand.lines()), n) == demand
    assert hash(parse(demand.text(), n)) == hash(demand)


def test_the_text_is_what_it_says() -> None:
    text = "# weights\n0 -> 1-3, 0\n\n 4,5->0 ; sum 0-3 -> 0,2  # both\n"
    demand = parse(text, 6)
    has = [[0], [4, 5], [0, 1, 2, 3]]
    wants = [[0, 1, 2, 3], [0], [0, 2]]
    for table, rows in ((demand.has, has), (demand.wants, wants)):
        assert [np.flatnonzero(row).tolist() for row in table] == rows
    assert demand.sums.tolist() == [False, False, True]
    assert demand.text() == "0 -> 0-3; 4-5 -> 0; sum 0-3 -> 0,2"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "", "no blocks"),
        ("# nothing\n;\n", "# nothing\n;\n", "no blocks"),
        ("0 -> 4", "4", "there is no rank 4"),
        ("0 -> 99999999999999999999999", "99999999999999999999999", "there is no rank"),
        ("0-9 -> 1", "9", "there is no rank 9"),
        ("2-1 -> 3", "2-1", "2-1 is empty"),
        ("0,1,0 -> 3", "0,1,0", "rank 0 is named twice"),
        ("0 1 -> 3", "1", "`1` where `->` is expected"),
        ("0 -> 1 2", "2", "`2` where the end of the line is expected"),
        ("0 ->", "", "the line ends where a rank that wants it is expected"),
        ("0, -> 1", "->", "`->` where a rank that has it is expected"),
        ("0- -> 1", "->", "`->` where a rank that has it is expected"),
        ("total 0 -> 1", "total", "`total` where a rank that has it is expected"),
        ("sum 0 -> 1", "sum 0 -> 1", "the pieces of two ranks or more"),
        ("0 -> 1\n0 => 1", "=", "'=' is nothing of a demand"),
        ("0 -> \u0663", "\u0663", "'\\u0663' is nothing of a demand"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, place: str, message: str) -> None:
    with pytest.raises(DemandFault) as caught:
        parse(text, 4)
    assert message in caught.value.message
    assert text[caught.value.begin : caught.value.end] == place


def test_a_demand_has_a_largest_size() -> None:
    n = 1 << 16
    text = "0 -> 1\n" * (MAX_CELLS // n)
    assert len(parse(text, n)) == MAX_CELLS // n
    with pytest.raises(DemandFault, match="more than 64 blocks"):
        parse(text + "0 -> 1", n)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("op", PROGRAMMABLE)
def test_every_collective_is_a_demand_with_its_chunks_and_buffers(op: OpType, n: int) -> None:
    for root in range(n) if op in ROOTED else (0,):
        demand = demand_of(op, n, root)
        mine = Collective.of(demand, 3)
        c = Collective(op, n, mine.n_chunks, root)
        assert mine.chunks_per_block == c.chunks_per_block == 3
        assert mine.reduces == c.reduces
        assert mine.most_blocks() == c.most_blocks()
        rank, chunk = (x.ravel() for x in np.indices((n, c.n_chunks)))
        assert np.array_equal(mine.holds(rank, chunk), c.holds(rank, chunk))
        assert np.array_equal(mine.wants(rank, chunk), c.wants(rank, chunk))
        there, wanted = c.holds(rank, chunk), c.wants(rank, chunk)
        for own, of, at in (
            (mine.input_slot, c.input_slot, there),
            (mine.output_slot, c.output_slot, wanted),
        ):
            assert np.array_equal(own(rank[at], chunk[at]), of(rank[at], chunk[at]))
        for r in range(n):
            for own_blocks, blocks, own_chunk, chunk_at in (
                (mine.input_blocks, c.input_blocks, mine.input_chunk, c.input_chunk),
                (mine.output_blocks, c.output_blocks, mine.output_chunk, c.output_chunk),
            ):
                assert own_blocks(r) == blocks(r)
                slot = np.arange(blocks(r) * 3)
                here = np.full_like(slot, r)
                assert np.array_equal(own_chunk(here, slot), chunk_at(here, slot))


@pytest.mark.parametrize("op", PROGRAMMABLE)
def test_a_collective_is_recognised(op: OpType) -> None:
    root = 2 if op in ROOTED else 0
    assert recognised(demand_of(op, 4, root)) == (op, root)


@settings(deadline=None)
@given(st.data())
def test_nothing_is_recognised_that_it_is_not(data: st.DataObject) -> None:
    demand = data.draw(demands(data.draw(st.integers(2, 4))))
    found = recognised(demand)
    assert found is None or demand_of(found[0], demand.n_ranks, found[1]) == demand


def test_a_changed_collective_is_none() -> None:
    whole = demand_of(OpType.ALLGATHER, 4)
    wants = whole.wants.copy()
    wants[1, 2] = False
    assert recognised(Demand(whole.has, wants, whole.sums)) is None
