"""assemble: an Allgather backwards is a Reducescatter, and with itself behind an Allreduce."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from hccc.base.diagnostics import UserError
from hccc.driver.load import program_of
from hccc.ir.collective import OpType
from hccc.ir.program import Op, Program
from hccc.passes.assemble import OPS, assemble
from hccc.passes.verify import verify
from hccc.testing import strategies

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GATHER = EXAMPLES / "direct_allgather.rccl"


def _gather() -> Program:
    return program_of(GATHER)


@pytest.mark.parametrize("op", OPS)
def test_it_takes_as_many_transfers(op: OpType) -> None:
    gather = _gather()
    made = assemble(gather, op)
    twice = 2 if op is OpType.ALLREDUCE else 1
    assert (made.collective.op, len(made)) == (op, twice * len(gather))
    assert np.count_nonzero(made.transfers["op"] == Op.RRC) == len(gather)
    assert made.name == f"direct_{op.value.lower()}"


def test_what_comes_back_at_once_comes_in_turn() -> None:
    """Rank 0 sends its chunk to all in one step; their sums come one after another."""
    made = assemble(_gather(), OpType.REDUCESCATTER)
    t = made.transfers
    to_first = t[(t["dst"] == 0) & (t["chunk"] == 0)]
    assert len(set(to_first["step"].tolist())) == len(to_first) > 1


@pytest.mark.slow
@given(strategies.correct_programs(OpType.ALLGATHER, extras=False))
def test_any_allgather_is_assembled(gather: Program) -> None:
    for op in OPS:
        assert verify(assemble(gather, op)).collective.op is op


@given(strategies.correct_programs(OpType.ALLGATHER))
def test_what_comes_twice_is_refused_or_needs_nothing(gather: Program) -> None:
    """Second deliveries would be added twice; without one the program is right."""
    c, t = gather.collective, gather.transfers
    places = t["dst"].astype(int) * c.n_chunks + t["chunk"]
    again = len(np.unique(places)) < len(t) or c.holds(t["dst"], t["chunk"]).any()
    if not again:
        assert len(assemble(gather, OpType.ALLREDUCE)) == 2 * len(t)
        return
    with pytest.raises(UserError, match="E451") as caught:
        assemble(gather, OpType.ALLREDUCE)
    assert "brings what its destination has" in caught.value.problem.message


def test_other_collectives_are_refused() -> None:
    gather = _gather()
    sums = assemble(gather, OpType.REDUCESCATTER)
    for program, op in ((gather, OpType.BROADCAST), (sums, OpType.ALLREDUCE)):
        with pytest.raises(UserError, match="E451"):
            assemble(program, op)
