"""greedy: schedules that hold, never below the bound, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.greedy import greedy
from hccc.synth.greedy.least_steps import least_steps
from hccc.synth.greedy.schedule import CopyDemand, Schedule, gather_all, violations
from tests.health_checks import EVERY_CHECK
from tests.synth.greedy.chunked_clusters import cluster, clusters, example, gather, switched

SETTINGS = settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=40)
SEED = st.integers(0, 1 << 34)  # `searched` multiplies a user's seed by 16


def columns(s: Schedule) -> list[list[int]]:
    return [s.chunk.tolist(), s.src.tolist(), s.dst.tolist(), s.step.tolist()]


@SETTINGS
@given(clusters() | switched(), st.integers(1, 3), SEED, st.booleans())
def test_schedules_hold_and_are_not_below_the_bound(
    c: Chunked, chunks: int, seed: int, again: bool
) -> None:
    demand = gather(c, chunks)
    made = greedy(c, demand, seed, again=again)
    if made is None and not again:  # only over another node do its ranks reach each other
        made = greedy(c, demand, seed, again=True)
    assert made is not None
    assert violations(made, c, demand) == []
    assert len(made) == np.count_nonzero(demand.post & ~demand.pre)
    assert made.steps >= least_steps(c, demand)


@SETTINGS
@given(clusters(), SEED)
def test_the_same_seed_gives_the_same_schedule(c: Chunked, seed: int) -> None:
    one, other = (greedy(c, gather(c, 2), seed, again=True) for _ in range(2))
    assert one is not None and other is not None and columns(one) == columns(other)


def test_seeds_differ() -> None:
    c = example("heteccl-h20-4x2+8")
    found = [greedy(c, gather(c), seed) for seed in range(4)]
    assert len({str(columns(s)) for s in found if s is not None}) > 1


@SETTINGS
@given(clusters(), st.data())
def test_of_any_demand_what_is_found_holds(c: Chunked, data: st.DataObject) -> None:
    """Where only some want a chunk greedy may find nothing: the other ranks forward none."""
    pre = gather_all(np.arange(c.n), c.n).pre
    flags = st.lists(st.booleans(), min_size=c.n, max_size=c.n)
    wanted = np.array(data.draw(st.lists(flags, min_size=c.n, max_size=c.n)))
    demand = CopyDemand(pre, wanted | pre)
    made = greedy(c, demand, 0)
    assert made is None or violations(made, c, demand) == []


@pytest.mark.parametrize(
    ("name", "steps"), {"4+8": 3, "4x3": 3, "4x3+8": 5, "4x2+8x2": 6, "4x2+8": 4}.items()
)
def test_the_clusters_of_the_paper(name: str, steps: int) -> None:
    c = example(f"heteccl-h20-{name}")
    found = [greedy(c, gather(c), seed) for seed in range(16)]
    assert min(s.steps for s in found if s is not None) == steps
    assert all(s is not None and not violations(s, c, gather(c)) for s in found)


def test_nothing_to_do_is_no_transfer() -> None:
    have = np.ones((2, 2), np.bool_)
    made = greedy(cluster([0, 1], {}, [1]), CopyDemand(have, have), 0)
    assert made is not None and len(made) == 0


def test_none_where_a_rank_is_not_reached() -> None:
    c = cluster([0, 0, 1], {(0, 1): [0], (1, 0): [0]}, [1])
    assert greedy(c, gather(c), 0) is None


def test_none_where_there_are_too_few_steps() -> None:
    c = cluster([0, 0, 0], {(0, 1): [0], (1, 2): [1]}, [1, 1])
    demand = gather_all(np.array([0]), 3)
    assert greedy(c, demand, 0, most_steps=1) is None
    made = greedy(c, demand, 0, most_steps=2)
    assert made is not None and made.steps == 2


def test_again_takes_chunks_into_a_node_that_has_them() -> None:
    """Two ranks of a node whose own link is slow: twice over the network is one step less."""
    use = {(0, 1): [0], (0, 2): [1], (1, 2): [2], (2, 1): [2]}
    c = cluster([0, 1, 1], use, [1, 1, 1])
    demand = gather_all(np.array([0]), 3)
    once, twice = (greedy(c, demand, 0, again=again) for again in (False, True))
    assert once is not None and once.steps == 2
    assert twice is not None and twice.steps == 1 and not violations(twice, c, demand)
