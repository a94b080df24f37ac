"""Traces: JSON that Perfetto opens: slices nest, times and bytes are the simulator's."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc import testing
from hccc.ir.plan import Plan
from hccc.ir.topology import uniform
from hccc.pictures import trace
from hccc.pictures.timeline import timeline
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, Run, simulate
from tests.pictures.drawn import ran

Event = dict[str, Any]


def _written(run: Run, most: int = trace.EVENTS) -> tuple[dict[str, Any], list[Event]]:
    out = io.StringIO()
    count = trace.write(run, out, most)
    whole = json.loads(out.getvalue(), parse_float=Decimal)
    events: list[Event] = whole["traceEvents"]
    assert len(events) == count
    return whole["otherData"], events


def _check_nesting(events: list[Event]) -> int:
    """Replays the slices of every thread on a stack; returns the deepest."""
    threads: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    deepest = 0
    for slices in threads.values():
        stack: list[Decimal] = []
        for s in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
            while stack and stack[-1] <= s["ts"]:
                stack.pop()
            end = s["ts"] + s["dur"]
            assert s["dur"] >= 0
            assert not stack or end <= stack[-1]
            stack.append(end)
            deepest = max(deepest, len(stack))
    return deepest


@pytest.mark.slow
@given(testing.plans(choices=testing.options(prove=False)), st.integers(1, 9), st.booleans())
@settings(max_examples=25, deadline=None)
def test_any_plan_has_a_trace_and_a_timeline(plan: Plan, lots: int, merge: bool) -> None:
    """Staged or one-sided, fused or not, in windows as far as it is safe."""
    t = uniform(plan.n_ranks, plan.gpus_per_node, plan.nics_per_node, chunk=100)
    size = 100 * lots * plan.collective.n_chunks * plan.channels
    run = simulate(prepare(plan, t), Request(size, window=min(2, plan.max_window or 2)))
    _, events = _written(run, 50 if merge else trace.EVENTS)
    _check_nesting(events)
    if not merge:
        names = [e["name"] for e in events if e.get("cat") == "primitive"]
        assert len(names) == len(plan) * -(-run.batches // run.window)
    timeline(run)


@pytest.mark.parametrize("window", [0, 1, 3])
def test_slices_nest_and_are_the_runs(window: int) -> None:
    run = ran("ring_allreduce", "mi300x", 1 << 22, micro_batch=1 << 16, window=window)
    about, events = _written(run)
    assert _check_nesting(events) == 2
    primitives = [e for e in events if e.get("cat") == "primitive"]
    work = [e for e in events if e.get("cat") == "work"]
    assert len(primitives) == len(run.machine.plan) * -(-run.batches // run.window)
    assert len(work) == len(run.end)
    busy = sum(float(e["dur"]) for e in work)
    assert busy == pytest.approx(float((run.end - run.ready).sum()), rel=1e-3)
    assert max(float(e["ts"] + e["dur"]) for e in work) == pytest.approx(run.finish, abs=0.01)
    sent = sum(e["args"]["bytes"] for e in primitives)
    assert sent == pytest.approx(len(run.machine.plan) * run.request.size / 8, rel=1e-6)
    assert about["algorithm"] == "ring_allreduce" and about["notes"] == []


def test_names_places_and_peers() -> None:
    _, events = _written(ran("ring_allreduce", "mi300x", 1 << 20))
    names = {(e["name"], e["pid"]): e["args"] for e in events if e["ph"] == "M"}
    assert names["process_name", 0] == {"name": "rank 0 (MI300X)"}
    assert names["process_name", 8] == {"name": "busiest links"}
    first = next(e for e in events if e.get("cat") == "primitive")
    assert first["name"] == "reduce chunk 7 ← 7"
    assert first["args"]["from"] == [7]
    assert first["args"]["source"].startswith("ring_allreduce.rccl:")
    causes = [e["args"]["for"] for e in events if e.get("cat") == "wait" and e["args"]]
    assert causes and all(text.startswith("rank ") for text in causes)


def test_counters_are_rates_of_the_busiest_links() -> None:
    run = ran("hm_allreduce", "resccl-topo4", 1 << 24)
    _, events = _written(run)
    counters = [e for e in events if e["ph"] == "C"]
    assert len({e["name"] for e in counters}) == trace.LINKS
    assert any("NIC" in e["name"] for e in counters)
    most = run.machine.capacity.max() * 1.001
    assert all(0 <= float(e["args"]["GB/s"]) <= most for e in counters)


def test_too_many_micro_batches_are_merged_and_ranks_left_out() -> None:
    run = ran("ring_allreduce", "mi300x", 1 << 24, micro_batch=1 << 14)
    about, events = _written(run, most=2000)
    assert len(events) < 2500 + trace.LINKS * trace.POINTS
    assert any("merged" in note for note in about["notes"])
    _check_nesting(events)
    about, events = _written(run, most=100)
    assert about["notes"][-1].startswith("ranks 0 to ")
    assert {e["pid"] for e in events if e["ph"] == "X"} < set(range(8))
    _check_nesting(events)


def test_what_proxies_carry_is_on_threads_of_their_own() -> None:
    """Every byte of every message and put; a wait says that a proxy ended it."""
    run = ran("ring_allreduce", "resccl-topo1", 1 << 22)
    _, events = _written(run)
    _check_nesting(events)
    carried = [e for e in events if e.get("cat") == "network"]
    transfers = run.machine.transfers
    assert len(carried) == int(transfers.carries.sum()) * run.batches
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert any(name.startswith("proxy, to rank") for name in names)
    assert {e["args"]["for"].partition(" over the network")[1] for e in carried} != {""}
    assert any("by its proxy" in e["args"].get("for", "") for e in events if e["name"] == "wait")
    total = sum(e["args"]["bytes"] for e in carried)
    each = run.parts[transfers.owner[transfers.carries]].sum()
    assert total == pytest.approx(each, rel=1e-6)
    _, merged = _written(run, most=400)
    _check_nesting(merged)
