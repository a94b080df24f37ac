"""balance: as few steps, valid, and never more for the busiest resource; the least where found."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.synth.cegis.balance import Balance, ScheduledPart
from hccc.synth.cegis.fill import fill
from hccc.synth.cegis.solvers import Verdict
from hccc.synth.cegis.synthesize import EMPTY
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.least_steps import least_load
from hccc.synth.greedy.schedule import CopyDemand, busiest, load, violations
from tests.health_checks import EVERY_CHECK
from tests.synth.greedy.chunked_clusters import clusters, demands, example, gather, switched

SETTINGS = settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=20)


def part(c: Chunked, demand: CopyDemand, *, back: bool = False) -> ScheduledPart:
    return ScheduledPart(c, demand, fill(c, demand, EMPTY), back)


def heaviest(parts: list[ScheduledPart]) -> float:
    c = parts[0].c
    return float((sum(load(one.schedule, one.c) for one in parts) / c.capacity).max(initial=0.0))


def balanced(parts: list[ScheduledPart], seconds: float = 20.0) -> Balance:
    search = Balance(parts, time.monotonic() + seconds)
    search.run()
    for one, before in zip(search.parts, parts, strict=True):
        assert violations(one.schedule, one.c, one.demand) == []
        assert one.schedule.steps <= before.schedule.steps
    assert heaviest(search.parts) <= heaviest(parts)
    return search


def test_an_allgather_loads_nics_as_little_as_cuts_allow() -> None:
    """8 of 12 chunks come into each node of 4 over 4 NICs: 2 each."""
    c = example("heteccl-h20-4x3")
    demand = gather(c)
    assert least_load(c, [(demand, False)]) == 2 < busiest(fill(c, demand, EMPTY), c)
    search = balanced([part(c, demand)])
    assert busiest(search.parts[0].schedule, c) == 2
    assert search.trace[-1].load == 2 and search.trace[-1].verdict is Verdict.FOUND


def test_both_phases_of_an_allreduce_are_balanced_together() -> None:
    """Of 12 sums 8 leave the node of 4, then 4 copies do: 3 of each NIC, and 3 into it."""
    c = example("heteccl-h20-4+8")
    demand = gather(c)
    assert least_load(c, [(demand, True), (demand, False)]) == 3
    search = balanced([part(c.reversed(), demand, back=True), part(c, demand)])
    assert heaviest(search.parts) == 3


@given(data=st.data())
@SETTINGS
def test_what_comes_out_is_valid_and_no_heavier(data: st.DataObject) -> None:
    c = data.draw(clusters() | switched())
    parts = [part(c, data.draw(demands(c)))]
    if data.draw(st.booleans()):
        parts.append(part(c.reversed(), gather(c), back=True))
    search = balanced(parts, 5.0)
    least = least_load(c, [(one.demand, one.back) for one in parts])
    assert least <= heaviest(search.parts) + 1e-9


def test_out_of_time_nothing_is_asked() -> None:
    c = example("heteccl-h20-4+8")
    parts = [part(c, gather(c))]
    search = Balance(parts, 0.0)
    search.run()
    assert search.parts is parts and search.trace == []
