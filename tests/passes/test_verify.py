"""verify accepts programs that perform their collective, and names culprit and clash otherwise."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.analysis.contributions import MISSING, OK, TWICE, run
from hccc.base.diagnostics import Problem, UserError
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.passes.verify import verify
from tests.passes.textbook import RECV, RRC, SMALL, Row, hm_allreduce, program


def problem(op: OpType, n_ranks: int, n_chunks: int, rows: list[Row]) -> Problem:
    with pytest.raises(UserError) as caught:
        verify(program(op, n_ranks, n_chunks, rows))
    return caught.value.problem


@pytest.mark.parametrize("p", [*SMALL.values(), hm_allreduce(4, 8)])
def test_textbook_programs_are_right(p: Program) -> None:
    assert verify(p) is p


def test_a_chunk_read_before_it_arrives_names_its_arrival() -> None:
    rows = [(1, 2, 0, 0, RECV), (0, 1, 1, 0, RECV)]
    found = problem(OpType.BROADCAST, 3, 1, rows)
    assert found.code == "E201"
    assert "rank 1 has nothing of chunk 0" in found.message
    assert "transfer(1, 2, 0, 0, recv)" in found.message
    assert "transfer(0, 1, 1, 0, recv)" in found.notes[0].text


def test_a_chunk_that_never_arrives_has_no_note() -> None:
    found = problem(OpType.BROADCAST, 3, 1, [(1, 2, 0, 0, RECV)])
    assert (found.code, found.notes) == ("E201", ())


def test_reducing_into_nothing() -> None:
    rows = [(0, 1, 0, 0, RECV), (0, 2, 0, 0, RRC)]
    found = problem(OpType.BROADCAST, 3, 1, rows)
    assert found.code == "E202"
    assert "transfer(0, 2, 0, 0, rrc)" in found.message


def test_a_piece_added_twice_names_who_brought_it_first() -> None:
    rows = [(1, 0, 0, 0, RRC), (2, 0, 1, 0, RRC), (1, 0, 2, 0, RRC)]
    found = problem(OpType.REDUCE, 3, 1, rows)
    assert found.code == "E203"
    assert "piece of rank 1" in found.message
    assert "transfer(1, 0, 2, 0, rrc)" in found.message
    assert "transfer(1, 0, 0, 0, rrc)" in found.notes[0].text


def test_a_piece_added_twice_may_be_ones_own() -> None:
    rows = [(0, 1, 0, 0, RRC), (1, 0, 1, 0, RRC)]
    found = problem(OpType.REDUCE, 2, 1, rows)
    assert found.code == "E203"
    assert "its own piece from the start" in found.notes[0].text


@pytest.mark.parametrize(
    ("rows", "deeds"),
    [
        ([(0, 1, 0, 0, RECV), (1, 2, 0, 0, RECV)], ("read", "written")),
        ([(0, 2, 0, 0, RECV), (1, 2, 0, 0, RRC)], ("reduced into", "written")),
        ([(0, 2, 0, 0, RECV), (1, 2, 0, 0, RECV)], ("written", "written")),
        ([(0, 1, 0, 0, RRC), (1, 2, 0, 0, RRC)], ("read", "reduced into")),
    ],
)
def test_a_clash_within_a_step_names_both(rows: list[Row], deeds: tuple[str, str]) -> None:
    found = problem(OpType.ALLREDUCE, 3, 1, rows)
    assert found.code == "E204"
    assert all(deed in found.message for deed in deeds)
    texts = found.message + found.notes[0].text
    assert f"transfer({rows[0][0]}, {rows[0][1]}" in texts
    assert f"transfer({rows[1][0]}, {rows[1][1]}" in texts


def test_many_reads_and_many_reductions_may_share_a_step() -> None:
    rows = [(1, 0, 0, 0, RRC), (2, 0, 0, 0, RRC), (0, 1, 1, 0, RECV), (0, 2, 1, 0, RECV)]
    verify(program(OpType.ALLREDUCE, 3, 1, rows))


def test_missing_at_the_end_names_rank_chunk_and_pieces() -> None:
    rows = [(1, 0, 0, 0, RRC), (0, 1, 1, 0, RECV), (0, 2, 1, 0, RECV)]
    found = problem(OpType.ALLREDUCE, 3, 1, rows)
    assert found.code == "E205"
    assert "rank 0 lacks the piece of rank 2 in chunk 0" in found.message
    assert "transfer(1, 0, 0, 0, rrc)" in found.notes[0].text


def test_nothing_at_the_end() -> None:
    found = problem(OpType.BROADCAST, 3, 1, [(0, 1, 0, 0, RECV)])
    assert "rank 2 holds nothing of chunk 0" in found.message


def test_a_complete_value_that_is_overwritten_is_missing() -> None:
    rows = [(1, 0, 0, 0, RRC), (0, 1, 1, 0, RECV), (2, 0, 2, 0, RECV)]
    rows = [(2, 1, 0, 0, RRC), (1, 0, 1, 0, RRC), (2, 0, 2, 0, RECV)]
    found = problem(OpType.REDUCE, 3, 1, rows)
    assert found.code == "E205"


def test_the_earliest_violation_is_reported_across_chunks() -> None:
    rows = [(1, 0, 5, 0, RECV), (1, 0, 3, 1, RECV)]
    found = problem(OpType.BROADCAST, 2, 2, rows)
    assert "step 3" in found.message


def sets(p: Program) -> tuple[int, int]:
    """Returns the first violation of an Allreduce of one chunk, a transfer a step, and its row (of
    MISSING the chunk), by Python's sets."""
    held = [{rank} for rank in range(p.collective.n_ranks)]
    for row, (src, dst, _, _, _, op) in enumerate(p.transfers.tolist()):
        if op == RRC and held[src] & held[dst]:
            return TWICE, row
        held[dst] = held[src] | (held[dst] if op == RRC else set())
    whole = all(len(pieces) == len(held) for pieces in held)
    return (OK, len(p)) if whole else (MISSING, 0)


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 200), st.integers(0, 2), st.data())
def test_pieces_are_those_of_sets(n: int, wrong: int, data: st.DataObject) -> None:
    """Of ranks of several words: a chain in any order, there and back, and then wrong transfers."""
    order = data.draw(st.permutations(range(n)))
    pairs = list(pairwise(order))
    rows = [(a, b, RRC) for a, b in pairs] + [(b, a, RECV) for a, b in reversed(pairs)]
    drawn = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.sampled_from([RRC, RECV]))
    for _ in range(wrong):
        row = data.draw(drawn.filter(lambda one: one[0] != one[1]))
        rows.insert(data.draw(st.integers(0, len(rows))), row)
    p = program(OpType.ALLREDUCE, n, 1, [(a, b, i, 0, op) for i, (a, b, op) in enumerate(rows)])
    found, (code, at) = run(p), sets(p)
    assert found.code == code
    assert code == OK or found.row == at
