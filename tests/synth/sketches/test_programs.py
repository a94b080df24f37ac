"""Programs of sketches are right, load what is said, and move to any root."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.ir.sketch import Allotment
from hccc.ir.topology import Topology
from hccc.network.dimensions import dimensions
from hccc.network.routes import routes
from hccc.passes.verify import verify
from hccc.synth.sketches.allot import rounded, shares
from hccc.synth.sketches.enumerate import sketches
from hccc.synth.sketches.programs import OPS, allotted_program, sketch_programs
from hccc.synth.sketches.symmetry import symmetry
from hccc.testing.clusters import cluster
from tests.health_checks import EVERY_CHECK
from tests.synth.sketches.clusters import alike, clos, rails, sketches_of

EACH = pytest.mark.parametrize("op", sorted(OPS))


def busiest(t: Topology, p: Program) -> float:
    """Returns the load of the busiest resource, chunks over GB/s, from the transfers themselves."""
    r = routes(t, p.transfers["src"].copy(), p.transfers["dst"].copy())
    used = np.bincount(r.uses.index, minlength=len(r.capacity))
    return float((used / r.capacity).max())


@pytest.mark.slow
@EACH
@given(t=alike())
@settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=3)
def test_programs_are_right_and_load_what_is_said(op: OpType, t: Topology) -> None:
    made = list(sketch_programs(t, op, [1 << 20, 1 << 30]))
    assert made
    for one in made:
        verify(one.program)
        assert sum(one.allotment.shares) == 1
        assert np.isclose(busiest(t, one.program), one.load * one.chunks)
    assert len({one.name for one in made}) == len(made)


@EACH
@given(data=st.data())
@settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=3)
def test_any_sketches_of_a_user_are_a_right_program(op: OpType, data: st.DataObject) -> None:
    t = data.draw(alike())
    first = data.draw(sketches_of(t))
    allotment = Allotment((first, first), (Fraction(2, 3), Fraction(1, 3)))
    made = allotted_program(t, op, allotment, 1 << 20)
    verify(made.program)
    assert made.chunks == 3 and made.allotment == allotment
    assert np.isclose(busiest(t, made.program), made.load * 3)


@given(alike())
@settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=10)
def test_moves_keep_the_groups_of_each_dimension(t: Topology) -> None:
    s = symmetry(t, dimensions(t))
    rank = np.arange(len(t))
    assert (s.plus(s.minus(rank, rank[::-1]), rank[::-1]) == rank).all()
    for root in rank.tolist():
        moved = s.plus(rank, np.full(len(t), root))
        assert moved[0] == root and sorted(moved.tolist()) == rank.tolist()
        for d in s.dimensions:
            pairs = {*zip(d.group.tolist(), d.group[moved].tolist(), strict=True)}
            assert len(pairs) == len(d.sizes)


def test_shares_are_the_optimum() -> None:
    """Two sketches that each load one of two resources, one twice as much as the other."""
    found = shares(np.array([[2.0, 0.0], [0.0, 1.0]]))
    assert np.allclose(found, [1 / 3, 2 / 3])
    assert rounded(found, 3).tolist() == [1, 2] and rounded(found, 4).tolist() == [1, 3]


def test_on_rails_with_a_narrow_crossbar_two_sketches_share_the_data() -> None:
    """SyCCL §4.2: crossbar and NICs are busy alike; no single sketch has that."""
    text = "define node1 = 4 * 4\ndefine bandwidth = {port => [((0..3) -> 100)]}\n"
    nics = "define nic = [((0) -> 50), ((1) -> 50), ((2) -> 50), ((3) -> 50)]\n"
    made = list(
        sketch_programs(
            cluster(text + nics + "define rail = [(0), (1), (2), (3)]"),
            OpType.ALLGATHER,
            [64 << 20],
        )
    )
    alone = min(one.load for one in made if one.chunks == 1)
    best = min(made, key=lambda one: one.load)
    assert best.load <= alone and best.load >= 15 / 150  # all that a rank can get


@pytest.mark.parametrize(
    ("t", "op", "message"),
    [
        (rails(2, 4), OpType.BROADCAST, "do not serve"),
        (clos(1, 2, 1), OpType.ALLGATHER, "there is one"),
        (
            cluster(
                "define node1 = 2\ndefine bandwidth = {mesh => [((0,1) -> 9)]}\n"
                "define nic = [((0,1) -> 5)]\ndefine node2 = 1\ndefine nic = [((0) -> 5)]"
            ),
            OpType.ALLGATHER,
            "alike",
        ),
    ],
)
def test_what_sketches_do_not_serve_is_refused(t: Topology, op: OpType, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        list(sketch_programs(t, op, [1 << 20]))
    assert error.value.problem.code == "E451"


def test_too_fine_shares_are_refused() -> None:
    t = rails(2, 4)
    some = tuple(islice(sketches(symmetry(t, dimensions(t))), 2))
    with pytest.raises(UserError, match="97 chunks"):
        allotted_program(
            t, OpType.ALLGATHER, Allotment(some, (Fraction(1, 97), Fraction(96, 97))), 1 << 20
        )
