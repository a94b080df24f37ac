"""What transfers bring, and where their chunks are needed next, against a run by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from hccc.analysis.contributions import carried
from hccc.base.diagnostics import Source
from hccc.editors.moves import hover, next_uses, same_chunks
from hccc.editors.subject import Text, read
from hccc.editors.times import times
from hccc.ir.program import Op, Program
from hccc.lang.transfer.load import parse
from hccc.shipped import find as shipped
from hccc.testing import correct_programs

TREE = """\
ResCCLAlgo(nRanks=4, OpType="Reduce", nChunks=1, Root=0):
    transfer(1, 0, 0, 0, rrc)
    transfer(
        3,
        2, 0, 0, rrc)
    transfer(2, 0, 1, 0, rrc)
"""


@given(correct_programs())
def test_contributions_are_those_of_a_run(program: Program) -> None:
    """Runs the program with a set for each value: a transfer brings the set at its source."""
    c, table = program.collective, program.transfers
    held: dict[tuple[int, int], set[int]] = {}
    for rank in range(c.n_ranks):
        for chunk in range(c.n_chunks):
            held[rank, chunk] = {rank} if c.holds(np.array([rank]), np.array([chunk]))[0] else set()
    for row in range(len(table)):
        src, dst, _, chunk, _, op = table[row].tolist()
        if row < 40:
            assert carried(program, row) == sorted(held[src, chunk])
        more = held[dst, chunk] if op == Op.RRC else set()
        held[dst, chunk] = more | held[src, chunk]


def test_a_statement_of_several_lines_is_told_from_each_of_them() -> None:
    text = Text(TREE, "tree.rccl")
    for line in (3, 4, 5):
        said = hover(text, line, False)
        assert said is not None and "| 3 → 2 | 0 | 0 | the value of rank 3, added |" in said
    assert hover(text, 1, False) is None
    said = hover(text, 6, False)
    assert said is not None and "the sum of ranks 2, 3, added | as the result |" in said


def test_next_uses() -> None:
    text = Text(TREE, "tree.rccl")
    assert next_uses(text, 3) == [6] and next_uses(text, 6) == []
    assert next_uses(text, 2) == [6]  # which adds to what arrived
    assert same_chunks(text, 2) == [2, 3, 6]


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["ring_allreduce", "hm_allreduce", "binomial_broadcast"])
def test_transfers_run_after_those_that_they_need(name: str) -> None:
    source = shipped.read(Path(name), 1 << 20, shipped.PROGRAMS)
    subject = read(Text(source.text, source.name, size="1M"))
    when, program = times(subject), parse(Source(source.name, source.text))
    table = program.transfers
    assert np.isfinite(when.begin).all() and (when.end > when.begin).all()
    for row in range(min(len(table), 64)):
        use = (table["chunk"] == table["chunk"][row]) & (table["src"] == table["dst"][row])
        use &= table["step"] > table["step"][row]
        assert (when.end[use] > when.begin[row]).all()
