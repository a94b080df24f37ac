"""Traces of recorded launches: slices nest, and have the plan's names and the launch's bytes."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc import testing
from hccc.analysis.waits import enforced
from hccc.ir.plan import Plan
from hccc.ir.primitives import Guard
from hccc.pictures import launch_trace, trace
from hccc.pictures.launch_trace import RecordedLaunch
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate
from tests.pictures.drawn import compiled, site
from tests.pictures.test_trace import _check_nesting

Event = dict[str, Any]


def launched(
    plan: Plan, batches: int = 1, window: int = 1, in_place: bool = False
) -> RecordedLaunch:
    """Makes a launch in which a micro-batch takes every thread block 3 ns: 1 to wait, 2 to work."""
    rank, block, primitive, batch = [], [], [], []
    for b, r in enumerate(plan.block_rank().tolist()):
        tb = b - int(plan.n_tb[:r].sum())
        mine = range(int(plan.tb_ptr[b + 1] - plan.tb_ptr[b]))
        for channel in range(plan.channels):
            for first in range(0, batches, window):
                for p in mine:
                    for m in range(first, min(first + window, batches)):
                        rank.append(r)
                        block.append(tb * plan.channels + channel)
                        primitive.append(p)
                        batch.append(m)
    at = np.array([*rank], np.int64) * 0
    keys = list(zip(rank, block, strict=True))
    for i in range(1, len(keys)):
        at[i] = at[i - 1] + 3 if keys[i] == keys[i - 1] else 0
    pieces = plan.collective.chunks_per_block * plan.channels
    part, micro = 4 * batches, 4
    return RecordedLaunch(
        plan,
        {},
        in_place,
        4,
        pieces * part - 2,
        part,
        micro,
        batches,
        window,
        np.array(rank, np.int32),
        np.array(block, np.int32),
        np.array(primitive, np.int64),
        np.array(batch, np.int64),
        10**15 + at,
        10**15 + at + 1,
        10**15 + at + 3,
        0,
    )


def written(*launches: RecordedLaunch) -> tuple[dict[str, Any], list[Event]]:
    out = io.StringIO()
    count = launch_trace.write(launches, out)
    whole = json.loads(out.getvalue(), parse_float=Decimal)
    assert count == len(whole["traceEvents"])
    return whole["otherData"], whole["traceEvents"]


@given(testing.plans(choices=testing.options(prove=False)), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_any_plan_has_a_trace(plan: Plan, batches: int, window: int) -> None:
    one = launched(plan, batches, min(window, batches))
    _, events = written(one)
    assert _check_nesting(events) == 2
    kinds = [e.get("cat") for e in events]
    instances = len(plan) * plan.channels
    assert kinds.count("work") == kinds.count("wait") == instances * batches
    assert kinds.count("primitive") == instances * -(-batches // one.window)


@given(testing.plans(choices=testing.options(prove=False)), st.booleans())
@settings(max_examples=20, deadline=None)
def test_bytes_are_those_of_the_chunks(plan: Plan, in_place: bool) -> None:
    """All channels and micro-batches of a primitive move its chunk, the last of a block less."""
    one = launched(plan, 3, 2, in_place)
    total = np.bincount(one.row, one.moved(), len(plan))
    last = plan.collective.chunks_per_block - 1
    whole = plan.channels * one.part * one.size
    wanted = whole - 2 * one.size * (plan.chunk % (last + 1) == last)
    idle = plan.guard == (Guard.OUT_OF_PLACE if in_place else Guard.IN_PLACE)
    assert np.array_equal(total, np.where(idle, 0, wanted))


@given(testing.plans(choices=testing.options(prove=False)))
@settings(max_examples=20, deadline=None)
def test_who_ended_a_wait_is_the_last_that_was_waited_for(plan: Plan) -> None:
    one = launched(plan, 2, 2)
    found, waits = launch_trace.causes(one), enforced(plan)
    keys = zip(one.row, one.channel, one.micro_batch, strict=True)
    end = dict(zip(((int(r), int(c), int(m)) for r, c, m in keys), one.end.tolist(), strict=True))
    for i in range(len(one)):
        channel, m = int(one.channel[i]), int(one.micro_batch[i])
        late = [
            end[int(p), channel, m]
            for p in waits.row(int(one.row[i]))
            if end[int(p), channel, m] > one.begin[i]
        ]
        cause = int(found[i])
        assert (cause >= 0) == bool(late)
        assert cause < 0 or end[cause, channel, m] == max(late)


def test_the_same_processes_threads_and_names_as_predicted() -> None:
    plan = compiled("ring_allreduce", "mi300x").plan
    run = simulate(prepare(plan, site("mi300x")), Request(1 << 16, 1 << 10))
    out = io.StringIO()
    trace.write(run, out)
    predicted = json.loads(out.getvalue())["traceEvents"]
    _, real = written(launched(plan))

    def named(events: list[Event]) -> set[tuple[int, int, str]]:
        slices = [e for e in events if e.get("cat") == "primitive"]
        return {(e["pid"], e["tid"], e["name"]) for e in slices if e["tid"] < plan.n_tb.max()}

    assert named(real) == named(predicted)


def test_launches_follow_each_other_beside_what_is_predicted() -> None:
    plan = compiled("ring_allreduce", "mi300x").plan
    run = simulate(prepare(plan, site("mi300x")), Request(1 << 16))
    one = launched(plan)
    fields = {name: getattr(one, name) for name in RecordedLaunch.__slots__} | {"predicted": run}
    about, events = written(RecordedLaunch(**fields), one)
    assert about["launches"] == 2 and about["notes"] == []
    _check_nesting(events)
    begun = [e["ts"] for e in events if e.get("cat") == "launch"]
    assert begun[0] == 0 and float(begun[1]) > run.finish
    beside = {e["pid"] for e in events if e["ph"] == "X" and e["ts"] < begun[1]}
    n = plan.n_ranks
    assert beside == {*range(n), n + 1, *range(n + 2, 2 * n + 2)}
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert {"rank 0 (recorded)", "rank 0 (MI300X)", "launches", "busiest links"} <= set(names)


def test_what_was_lost_is_told() -> None:
    one = launched(compiled("ring_allreduce", "mi300x").plan)
    fields = {name: getattr(one, name) for name in RecordedLaunch.__slots__} | {"lost": 7}
    about, events = written(RecordedLaunch(**fields))
    assert about["notes"] == ["7 records lost: thread blocks kept the latest"]
    assert [e["args"]["lost"] for e in events if e.get("cat") == "launch"] == [7]
