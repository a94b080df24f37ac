"""least_steps: published bounds, and no schedule below it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.synth.cegis.encode import full
from hccc.synth.cegis.solvers import Verdict, solve
from hccc.synth.greedy.least_steps import distance, least_steps
from hccc.synth.greedy.schedule import CopyDemand, gather_all
from tests.health_checks import EVERY_CHECK
from tests.synth.greedy.chunked_clusters import cluster, clusters, demands, example, gather

# The integer cut bound of HeteCCL's clusters, by chunks of each rank.
KNOWN = {
    ("4+8", 1): 3,
    ("4x3", 1): 3,
    ("4x3", 8): 17,
    ("4x2+8", 1): 4,
    ("4x2+8", 4): 13,
    ("4x2+8", 8): 25,
    ("8x2+4", 1): 5,
    ("8x2+4", 2): 9,
    ("8x2+4", 4): 17,
    ("4x3+8", 1): 5,
    ("4x3+8", 8): 33,
    ("4x2+8x2", 1): 6,
    ("4x2+8x2", 8): 41,
}


@pytest.mark.parametrize(("name", "chunks"), KNOWN)
def test_the_clusters_of_the_paper(name: str, chunks: int) -> None:
    c = example(f"heteccl-h20-{name}")
    assert least_steps(c, gather(c, chunks)) == KNOWN[name, chunks]


def test_nothing_to_do_takes_no_step() -> None:
    have = np.ones((2, 2), np.bool_)
    assert least_steps(cluster([0, 0], {}, [1]), CopyDemand(have, have)) == 0


def test_a_line_takes_its_length() -> None:
    c = cluster([0, 0, 0], {(0, 1): [0], (1, 2): [1]}, [1, 1])
    one = gather_all(np.array([0]), 3)
    assert least_steps(c, one) == 2
    assert distance(c, one.pre).tolist() == [[0, 1, 2]]


def test_what_arrives_last_must_reach_all_at_once() -> None:
    """Two chunks over a link of one, then from rank 1 to rank 2: 3 steps, not 2."""
    c = cluster([0, 1, 1], {(0, 1): [0], (0, 2): [0], (1, 2): [1], (2, 1): [1]}, [1, 9])
    assert least_steps(c, gather_all(np.array([0, 0]), 3)) == 3


def test_the_first_step_has_only_what_ranks_begin_with() -> None:
    """Rank 2 takes 2 chunks a step from each of 0 and 1, 8 in 2 steps; but 0 begins with one."""
    c = cluster([0, 1, 2], {(0, 2): [0], (1, 2): [1], (1, 0): [2]}, [2, 2, 9])
    demand = gather_all(np.array([0, *[1] * 7]), 3)
    post = demand.pre.copy()
    post[:, 2] = True
    assert least_steps(c, CopyDemand(demand.pre, post)) == 3


def test_ranks_of_a_node_share_what_comes_into_it() -> None:
    """15 chunks into each of 4 ranks, over a port of 1 each and a NIC of 2 for all four."""
    c = example("hetccl-snu")
    assert least_steps(c, gather(c)) == 10


def test_copies_double_at_most_where_sends_exclude_each_other() -> None:
    c = cluster([0] * 5, {(u, v): [0] for u in range(5) for v in range(5) if u != v}, [9])
    assert least_steps(c, gather_all(np.array([0]), 5)) == 1
    assert least_steps(c, gather_all(np.array([0]), 5, exclusive=True)) == 3


def test_who_cannot_be_reached_is_named() -> None:
    c = cluster([0, 0, 1], {(0, 1): [0], (1, 0): [0], (2, 0): [0]}, [1])
    with pytest.raises(UserError, match="rank 2 cannot get chunk 0, which rank 0 has"):
        least_steps(c, gather(c))


@given(st.data())
@settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=60)
def test_no_schedule_takes_fewer_steps(data: st.DataObject) -> None:
    c = data.draw(clusters())
    demand = data.draw(demands(c))
    steps = least_steps(c, demand)
    if steps > 1:
        answer = solve(full(c, demand, steps - 1).model, "highs", 20)
        assert answer.verdict is Verdict.NONE
