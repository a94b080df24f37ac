"""Schedules in epochs are right, need no more epochs than must be, and use what is faster."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.synth.sketches.epochs import EpochDemand, EpochSchedule, scheduled, worthwhile
from tests.health_checks import EVERY_CHECK

LENGTHS = pytest.mark.parametrize("e", [3.0, 1.0, 0.5])


def demand(ways: Sequence[tuple[int, int, tuple[float, ...], float]]) -> EpochDemand:
    target, relay, busy, alpha = zip(*ways, strict=True)
    return EpochDemand(np.array(target), np.array(relay), np.array(busy), np.array(alpha))


def one_uplink(*nodes: int) -> EpochDemand:
    """Returns a source in another node than its targets, which nodes join faster than uplinks."""
    of = np.repeat(np.arange(len(nodes)), nodes)
    ways = [(v, -1, (8.0, 0.0), 4.0) for v in range(len(of))]
    ways += [
        (v, u, (0.0, 1.0), 1.0)
        for u, v in product(range(len(of)), repeat=2)
        if u != v and of[u] == of[v]
    ]
    return demand(ways)


@st.composite
def demands(draw: st.DrawFn, most: int = 5) -> EpochDemand:
    """Draws any question: ways from sources to all targets, and some between targets."""
    n = draw(st.integers(1, most))
    cost = st.tuples(st.integers(1, 4).map(float), st.integers(0, 4).map(float))
    ends = [(v, -1) for v in range(n)]
    pairs = [(v, u) for v in range(n) for u in range(n) if u != v]
    ends += draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6)) if pairs else []
    return demand([(v, u, draw(cost), float(draw(st.integers(0, 6)))) for v, u in ends])


def faults(d: EpochDemand, s: EpochSchedule) -> list[str]:
    """Says what is wrong with a schedule, from the meaning of ways alone."""
    found, length = list[str](), d.busy.max(1)
    takes = np.maximum(np.ceil((length + d.alpha) / s.tau - 1e-9), 1)
    window = max(1, int(np.ceil(length.max() / s.tau - 1e-9)))
    has = s.epoch + takes[s.way]
    if (d.target[s.way] != np.arange(len(s.way))).any():
        found.append("a way leads elsewhere")
    for v, way in enumerate(s.way.tolist()):
        if d.relay[way] >= 0 and has[d.relay[way]] > s.epoch[v]:
            found.append(f"{v} is sent what is not there yet")
    for k in range(int(s.epoch.max()) + 1):
        now = (s.epoch >= k) & (s.epoch < k + window)
        if d.busy[s.way[now]].sum(0).max() > window * s.tau * (1 + 1e-6):
            found.append(f"too much from epoch {k} on")
    if has.max() != s.arrived:
        found.append("not all have it at the end")
    return found


def fewest(d: EpochDemand, like: EpochSchedule) -> int:
    """Returns the fewest epochs of any schedule, by trying all."""
    ways = [np.flatnonzero(d.target == v).tolist() for v in range(len(like.way))]
    best = like.arrived
    takes = np.maximum(np.ceil((d.busy.max(1) + d.alpha) / like.tau - 1e-9), 1).astype(int)
    for way in product(*ways):
        for epoch in product(range(best), repeat=len(way)):
            arrived = int((np.array(epoch) + takes[list(way)]).max())
            if arrived < best:
                one = EpochSchedule(np.array(way), np.array(epoch), arrived, like.tau)
                best = best if faults(d, one) else arrived
    return best


@LENGTHS
@given(d=demands())
@settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=15)
def test_schedules_are_right(e: float, d: EpochDemand) -> None:
    assert not faults(d, scheduled(d, e))


@given(d=demands(3))
@settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=10)
def test_no_schedule_has_fewer_epochs(d: EpochDemand) -> None:
    found = scheduled(d, 1.0)
    assert found.arrived == fewest(d, found)


@LENGTHS
@pytest.mark.parametrize("nodes", [(4,), (3, 3), (2, 1, 2)])
def test_ways_that_are_left_out_are_not_missed(e: float, nodes: tuple[int, ...]) -> None:
    d = one_uplink(*nodes)
    kept = d.only(worthwhile(d, np.zeros(len(d.target), np.bool_)))
    assert len(kept.target) < len(d.target)
    assert scheduled(kept, e).arrived == scheduled(d, e).arrived


def test_of_alike_sources_the_preferred_one_is_kept() -> None:
    d = demand([(0, -1, (1.0,), 2.0)] * 3 + [(0, -1, (2.0,), 2.0), (0, -1, (2.0,), 1.0)])
    preferred = np.array([False, True, False, True, False])
    assert worthwhile(d, preferred).tolist() == [1, 4]


def test_one_crosses_the_uplink_and_passes_on() -> None:
    d = one_uplink(5)
    found = scheduled(d, 0.5)
    assert (d.relay[found.way] < 0).sum() == 1
    assert found.arrived * found.tau < 3 * 8  # all by the uplink take 40
