"""Times of calls of one structure."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.driver.tune import timing as timing_module
from hccc.driver.tune.setting import Setting, applied, most_blocks, space
from hccc.driver.tune.timing import CallTiming
from hccc.ir.limits import MAX_CHANNELS
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.lang.cluster.load import load
from hccc.lang.transfer import load as transfer
from hccc.sim.machine import Machine, prepare
from hccc.sim.simulate import Request, Run, simulate

EXAMPLES = Path(__file__).parents[3] / "examples"
CROWDED = Setting(32, 0, 1 << 20)  # more blocks than fill a link


@cache
def site() -> Topology:
    return load(EXAMPLES / "clusters" / "dgx-h100.cluster")


@cache
def ring() -> Plan:
    options = Options(prove=False, tune="off")
    return driver.compile_text(
        transfer.read(EXAMPLES / "ring_allreduce.rccl"), options, site()
    ).plan


@pytest.mark.parametrize(
    ("size", "setting"),
    [
        (1 << 12, Setting(4, 0, 1 << 12)),
        (1 << 24, Setting(8, 1, 1 << 16)),
        (1 << 27, Setting(16, 2, 1 << 20)),
    ],
)
@pytest.mark.parametrize("in_place", [False, True])
def test_it_is_what_the_simulator_says(size: int, setting: Setting, in_place: bool) -> None:
    """Of a call that names neither micro-batch nor window."""
    plan = applied(ring(), setting)
    took = simulate(prepare(plan, site()), Request(size, in_place=in_place)).time
    assert CallTiming(ring(), site(), 1 << 20).time(size, setting, in_place) == pytest.approx(took)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.floats(0.2, 0.999) | st.floats(1.001, 3.0), min_size=1, max_size=4))
def test_a_limit_hides_what_takes_longer_and_nothing_else(parts: list[float]) -> None:
    setting = Setting(4, 0, 1 << 12)
    took = CallTiming(ring(), site(), 1 << 20).time(1 << 20, setting)
    timing = CallTiming(ring(), site(), 1 << 20)
    assert timing.time(1 << 20, setting, limit=0.5 * took) == float("inf")
    for part in parts:
        found = timing.time(1 << 20, setting, limit=part * took)
        assert found == took or (part < 1 and found == float("inf"))
    assert timing.time(1 << 20, setting) == took


def test_calls_that_take_too_long_to_simulate_are_given_up() -> None:
    whole = CallTiming(ring(), site(), 1 << 20)
    took = whole.time(1 << 24, CROWDED)
    assert whole.longest == whole.rates > 0
    for enough in (True, False):
        timing = CallTiming(ring(), site(), 1 << 20)
        timing.most_rates = whole.rates if enough else whole.rates // 2
        assert timing.time(1 << 24, CROWDED) == (took if enough else math.inf)


def test_what_is_cut_more_than_a_call_that_took_too_long_is_given_up_at_once() -> None:
    cut = Setting(32, 0, 1 << 12)
    long, longer, short = 1 << 26, 1 << 28, 1 << 23
    most = CallTiming(ring(), site(), 1 << 20)
    most.time(long, cut)
    timing, fresh = (CallTiming(ring(), site(), 1 << 20) for _ in range(2))
    timing.most_rates = fresh.most_rates = most.longest - 1
    assert timing.time(long, cut) == math.inf
    simulated = timing.instances
    assert timing.time(longer, cut) == math.inf == fresh.time(longer, cut)
    assert timing.instances == simulated < fresh.instances  # it would not end, either
    others = [cut._replace(channels=8), cut._replace(window=1)]
    assert timing.time(short, cut) == most.time(short, cut) < math.inf
    for other in others:  # of which nothing is known
        assert timing.time(longer, other) == fresh.time(longer, other)
    assert timing.instances > simulated


@pytest.mark.parametrize("long", [True, False])
@pytest.mark.parametrize("limit", [math.inf, 4.0])
def test_long_calls_are_given_up_where_they_are_not_worth_it(
    limit: float, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are known as soon as they are."""
    took = CallTiming(ring(), site(), 1 << 20).time(1 << 24, CROWDED)
    monkeypatch.setattr(timing_module, "BEHIND", 5 if long else 1 << 40)
    timing = CallTiming(ring(), site(), 1 << 20)
    timing.worth = 0.99 * took
    assert timing.time(1 << 24, CROWDED, limit=limit * took) == (math.inf if long else took)
    timing.worth = 1.01 * took
    assert timing.time(1 << 24, CROWDED, limit=limit * took) == took


def test_times_are_the_same_whatever_was_simulated_before() -> None:
    settings = [Setting(4, window, 1 << 16) for window in (0, 1)]
    timing, again = CallTiming(ring(), site(), 1 << 20), CallTiming(ring(), site(), 1 << 20)
    times = [timing.time(1 << 24, setting) for setting in settings]
    assert times == [again.time(1 << 24, setting) for setting in settings[::-1]][::-1]
    assert times[0] != times[1]


def test_calls_that_are_cut_alike_are_simulated_once() -> None:
    timing = CallTiming(ring(), site(), 1 << 20)
    timing.time(1 << 10, Setting(4, 0, 1 << 10))
    once = timing.instances
    for grain in (1 << 12, 1 << 20):  # one micro-batch, however coarse
        timing.time(1 << 10, Setting(4, 0, grain))
    assert timing.instances == once > 0
    timing.time(1 << 10, Setting(8, 0, 1 << 10))
    assert timing.instances == 2 * once


@cache
def alone() -> Plan:
    """Compiles a plan with a thread block for each primitive."""
    options = Options(prove=False, tune="off", allocator="depth", fuse="full")
    source = transfer.read(EXAMPLES / "ring_allreduce.rccl")
    plan = driver.compile_text(source, options, site()).plan
    assert np.diff(plan.tb_ptr).max() == 1
    return plan


def told(asked: list[tuple[int, float | None]], took: float) -> tuple[list[float], int]:
    """Returns the times of calls with these windows and limits (parts of `took`), and their
    instances."""
    timing = CallTiming(alone(), site(), 1 << 20)
    found = []
    for window, part in asked:
        limit = math.inf if part is None else part * took
        found.append(timing.time(1 << 24, Setting(4, window, 1 << 12), limit=limit))
    return found, timing.instances


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 4]), st.floats(0.9, 1.1) | st.none()),
        min_size=1,
        max_size=6,
    )
)
def test_windows_of_single_primitives_are_as_if_simulated(
    asked: list[tuple[int, float | None]],
) -> None:
    """Also with limits, and with instances counted as if they had been."""
    took = CallTiming(alone(), site(), 1 << 20).time(1 << 24, Setting(4, 0, 1 << 12))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CallTiming, "_alone", False)
        simulated = told(asked, took)
    assert told(asked, took) == simulated


def test_windows_of_single_primitives_are_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def counted(machine: Machine, request: Request, work: int, limit: float) -> Run:
        requests.append(request)
        return simulate(machine, request, work, limit)

    monkeypatch.setattr(timing_module, "simulate", counted)
    told([(window, None) for window in (0, 1, 2, 4)], math.inf)
    assert len(requests) == 1
    timing = CallTiming(ring(), site(), 1 << 20)
    for window in (0, 1, 2, 4):  # several primitives in a block: each is another call
        timing.time(1 << 24, Setting(4, window, 1 << 12))
    assert len(requests) == 5


def test_what_is_not_served_or_too_fine_takes_for_ever() -> None:
    only_out = replace(ring(), in_place=False)
    setting = Setting(1, 0, 1 << 10)
    assert CallTiming(only_out, site(), 1 << 20).time(1 << 20, setting, True) == float("inf")
    assert CallTiming(ring(), site(), 1).time(1 << 30, setting) == float("inf")


def test_a_limited_search_knows_what_it_knew() -> None:
    timing = CallTiming(ring(), site(), 1 << 20)
    settings = [Setting(channels, 0, 1 << 12) for channels in (1, 2, 4)]
    known = timing.time(1 << 12, settings[0])
    with timing.limited(1):
        assert timing.time(1 << 12, settings[1]) < float("inf")  # begun within the limit
        assert timing.time(1 << 12, settings[2]) == float("inf")
        assert timing.time(1 << 12, settings[0]) == known
    assert timing.time(1 << 12, settings[2]) < float("inf")


def test_a_search_that_is_stopped_knows_what_it_knew() -> None:
    timing = CallTiming(ring(), site(), 1 << 20)
    settings = [Setting(channels, 0, 1 << 20) for channels in (32, 16)]
    with timing.limited(math.inf):
        timing.stop_at(1)
        known = timing.time(1 << 26, settings[0])  # begun before any rate was computed
        assert timing.rates > 1
        assert timing.time(1 << 26, settings[1]) == float("inf")
        assert timing.time(1 << 26, settings[0]) == known < float("inf")
    assert timing.time(1 << 26, settings[1]) < float("inf")


def test_the_space_stays_within_the_blocks_and_the_window() -> None:
    each = int(ring().n_tb.max())
    found = space(ring(), 33)
    assert found.channels[-1] == 33 // each and list(found.channels) == sorted(set(found.channels))
    assert space(ring(), 1).channels == (1,)  # each channel has its blocks
    assert space(ring(), 1 << 20).channels[-1] == MAX_CHANNELS
    assert space(ring(), 33, 5).channels == (5,)
    narrow = replace(ring(), max_window=3)
    assert set(space(narrow, 33).windows) == {1, 2, 3}
    assert 0 in found.windows


def test_a_quarter_of_the_sms_is_hcccs() -> None:
    assert most_blocks(site()) == 132 // 4
    unknown = replace(site(), devices=tuple(replace(d, sms=0) for d in site().devices))
    assert most_blocks(unknown) == 32


def test_calls_of_large_plans_have_few_micro_batches() -> None:
    timing, size = CallTiming(ring(), site(), 1), 1 << 26
    fine, coarse = (timing.time(size, Setting(1, 0, grain)) for grain in (1 << 10, 1 << 20))
    assert fine == float("inf") > coarse


def test_large_plans_are_given_up_after_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hccc.driver.tune.timing.WORK", 0)
    timing = CallTiming(ring(), site(), 1)
    assert timing.time(1 << 30, CROWDED) == float("inf")
    assert timing.time(1 << 12, CROWDED) < float("inf")  # one micro-batch
    assert CallTiming(ring(), site(), 1 << 20).time(1 << 30, CROWDED) < float("inf")


def test_a_search_of_a_large_plan_ends_where_links_are_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for full, more in ((2.0, True), (0.0, False)):
        monkeypatch.setattr("hccc.driver.tune.timing.FULL", full)
        timing = CallTiming(ring(), site(), 1)
        with timing.limited(float(1 << 30)):
            timing.time(1 << 12, Setting(1, 0, 1 << 20))
            assert (timing.time(1 << 13, Setting(1, 0, 1 << 20)) < float("inf")) is more
        assert timing.time(1 << 14, Setting(1, 0, 1 << 20)) < float("inf")


def test_too_much_work_is_refused() -> None:
    machine, request = prepare(applied(ring(), CROWDED), site()), Request(1 << 20)
    with pytest.raises(UserError, match="too many transfers in flight") as caught:
        simulate(machine, request, work=1)
    assert caught.value.problem.code == "E461"
    assert simulate(machine, request, work=1 << 30).time == simulate(machine, request).time


def test_calls_in_place_are_simulated_once_where_they_are_alike() -> None:
    timing = CallTiming(ring(), site(), 1 << 20)
    out = timing.time(1 << 20, CROWDED, in_place=False)
    once = timing.instances
    assert timing.time(1 << 20, CROWDED, in_place=True) == out
    assert timing.instances == once > 0
