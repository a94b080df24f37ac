"""estimate: not below the cut bound, more for more bytes, infinite without a route."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source
from hccc.driver.inputs import parse_cluster
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.lang.cluster import load
from hccc.synth.bounds import estimate as estimate_module
from hccc.synth.bounds.bound import limits
from hccc.synth.bounds.estimate import estimate
from hccc.synth.builtin import registry
from hccc.synth.common.collectives import BOTH
from hccc.synth.greedy.programs import greedy_programs
from tests.synth.greedy.chunked_clusters import CLUSTERS

T = load.load(CLUSTERS / "heteccl-h20-4+8.cluster")
LINKS = ", ".join(f"(({i},{(i + 1) % 12}) -> (25,1))" for i in range(12))
RING = f"define node1 = 12\ndefine bandwidth = {{direct => [{LINKS}]}}\n"
ROUNDED = 1 - 1e-9


@cache
def programs(op: OpType) -> list[Program]:
    builtin = (
        [registry.make("hierarchical", T, op, 0)] if "hierarchical" in registry.serving(op) else []
    )
    return [*builtin, *(one.program for one in greedy_programs(T, op, 0, 0))]


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(st.sampled_from(sorted(BOTH)), st.integers(1, 1 << 32), st.integers(1, 1 << 32))
def test_not_below_the_cut_and_growing(op: OpType, size: int, more: int) -> None:
    bound = limits(T, op, 0)
    for p in programs(op):
        first, second = estimate(p, T, size), estimate(p, T, size + more)
        assert first >= bound.at(size).bandwidth * ROUNDED
        assert 0 < first <= second


@pytest.mark.slow
def test_nothing_to_send_takes_no_time() -> None:
    p = programs(OpType.ALLGATHER)[0]
    assert estimate(replace(p, transfers=p.transfers[:0]), T, 1 << 20) == 0


@pytest.mark.slow
def test_infinite_without_a_route() -> None:
    """Each rank of 12 has a link to the next only."""
    p = programs(OpType.ALLGATHER)[0]
    ring = parse_cluster(Source("ring", RING))
    assert estimate(p, ring, 1 << 20) == float("inf")


@pytest.mark.slow
def test_large_programs_are_estimated_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step as long as the slowest hop is no less than the longest chain."""
    for p in programs(OpType.ALLGATHER):
        exact = estimate(p, T, 1 << 20)
        with monkeypatch.context() as m:
            m.setattr(estimate_module, "LARGEST", 0)
            assert estimate(p, T, 1 << 20) >= exact
