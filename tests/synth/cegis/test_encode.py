"""encode: every solution is a schedule, whichever solver and encoding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.synth.cegis.encode import KeptConstraints, aggregated, full
from hccc.synth.cegis.hubs import hubs
from hccc.synth.cegis.solvers import Verdict, solve
from hccc.synth.greedy.least_steps import least_steps
from hccc.synth.greedy.schedule import violations
from tests.health_checks import EVERY_CHECK
from tests.synth.greedy.chunked_clusters import clusters, demands, example, gather, switched

SETTINGS = settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=40)


@pytest.mark.parametrize("solver", ["highs", "z3"])
@pytest.mark.parametrize("encoding", ["full", "aggregated"])
def test_the_bound_is_reached(solver: str, encoding: str) -> None:
    c = example("heteccl-h20-4+8")
    joining = hubs(c)
    assert joining is not None
    demand = gather(c)
    made = full(c, demand, 3) if encoding == "full" else aggregated(c, demand, 3, joining)
    answer = solve(made.model, solver, 30)
    assert answer.values is not None
    assert made.model.holds(answer.values)
    found = made.decode(answer.values)
    assert found.steps == 3
    assert violations(found, c, demand) == []


def test_encodings_are_as_large_as_published() -> None:
    """12 GPUs, 3 steps: Send and Has of `full`, and fewer of `agg`."""
    c = example("heteccl-h20-4+8")
    joining = hubs(c)
    assert joining is not None
    assert full(c, gather(c), 3).model.variables == 3432
    assert aggregated(c, gather(c), 3, joining).model.variables < 2700


@pytest.mark.slow
@given(st.data())
@SETTINGS
def test_solvers_agree(data: st.DataObject) -> None:
    c = data.draw(clusters())
    demand = data.draw(demands(c))
    for steps in range(least_steps(c, demand), least_steps(c, demand) + 2):
        made = full(c, demand, steps)
        answers = [solve(made.model, solver, 20) for solver in ("highs", "z3")]
        assert answers[0].verdict is answers[1].verdict
        for answer in answers:
            if answer.values is not None:
                assert made.model.holds(answer.values)
                assert violations(made.decode(answer.values), c, demand) == []


@pytest.mark.slow
@given(st.data())
@SETTINGS
def test_encodings_agree(data: st.DataObject) -> None:
    c = data.draw(switched())
    demand = data.draw(demands(c))
    joining = hubs(c)
    assert joining is not None
    for steps in range(least_steps(c, demand), least_steps(c, demand) + 2):
        made = aggregated(c, demand, steps, joining)
        answer = solve(made.model, "highs", 20)
        assert answer.verdict is solve(full(c, demand, steps).model, "highs", 20).verdict
        if answer.values is not None:
            assert violations(made.decode(answer.values), c, demand) == []


def test_lazily_only_what_is_kept_holds() -> None:
    c = example("heteccl-h20-4+8")
    demand = gather(c)
    kept = KeptConstraints(
        np.zeros(len(c.capacity), np.bool_), np.zeros(demand.pre.shape, np.bool_)
    )
    free = full(c, demand, 1, kept)
    answer = solve(free.model, "z3", 30)
    assert answer.values is not None
    wrong = violations(free.decode(answer.values), c, demand)
    assert {violation.equation for violation in wrong} <= {4, 5, 6}
    for violation in wrong:
        kept.resources[violation.resource] |= violation.resource >= 0
    assert len(kept) > 0
    assert solve(full(c, demand, 1, kept).model, "z3", 30).verdict is Verdict.NONE


@pytest.mark.parametrize(
    ("name", "found"),
    [("heteccl-h20-8x2+4", True), ("syccl-h800-64", True), ("resccl-topo3", False)],
)
def test_which_networks_are_non_blocking(name: str, found: bool) -> None:
    """One switch, rails; not leaves with uplinks."""
    assert (hubs(example(name)) is not None) is found
