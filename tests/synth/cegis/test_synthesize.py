"""synthesize: the bound where it is reached, valid schedules always, and both modes alike."""

from __future__ import annotations

import _thread
import gc
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import InternalError
from hccc.base.progress import listening
from hccc.synth.cegis import allreduce, faithful, search, synthesize
from hccc.synth.cegis.cost import Cost
from hccc.synth.cegis.encode import KeptConstraints
from hccc.synth.cegis.fill import fill
from hccc.synth.cegis.saturate import saturate
from hccc.synth.cegis.search import ScheduleSearch, before, remaining
from hccc.synth.cegis.solvers import Verdict
from hccc.synth.cegis.synthesize import EMPTY, Mode, Solver
from hccc.synth.greedy.least_steps import least_steps, missing_at_most
from hccc.synth.greedy.schedule import CopyDemand, Schedule, violations
from tests.health_checks import EVERY_CHECK
from tests.marks import LONG
from tests.synth.greedy.chunked_clusters import cluster, clusters, demands, example, gather

SETTINGS = settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=20)
MODES: list[tuple[Mode, Solver]] = [("fast", "highs"), ("fast", "z3"), ("faithful", "z3")]
SLOW = pytest.mark.slow


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("name", "chunks", "mode"),
    [
        ("4+8", 1, "faithful"),
        ("4x3", 1, "faithful"),
        ("4x2+8", 1, "faithful"),
        ("8x2+4", 1, "fast"),
        ("4x3", 2, "fast"),
        pytest.param("8x2+4", 1, "faithful", marks=SLOW),
        pytest.param("4x2+8", 2, "faithful", marks=SLOW),
        pytest.param("8x2+4", 2, "fast", marks=SLOW),
        *[pytest.param("4x2+8x2", 1, "faithful", marks=SLOW)] * (LONG > 1),
    ],
)
def test_the_bound_is_reached(name: str, chunks: int, mode: Mode) -> None:
    c = example(f"heteccl-h20-{name}")
    demand = gather(c, chunks)
    found = synthesize(c, demand, mode=mode, time_limit=60)
    assert violations(found.schedule, c, demand) == []
    assert found.schedule.steps == found.bound == least_steps(c, demand)


def test_the_record_of_the_iterations() -> None:
    """Each keeps more than the one before, and freezes no more than is valid."""
    c = example("heteccl-h20-4+8")
    demand = gather(c)
    said: list[str] = []
    with listening(said.append):
        trace = synthesize(c, demand, mode="faithful").trace
    wrong = violations(saturate(c, demand), c, demand)
    assert (trace[0].violations, trace[0].checkpoint, trace[0].frozen) == (len(wrong), 0, 0)
    assert trace[0].pruned == tuple(violation for violation in wrong if violation.step == 0)
    assert {violation.equation for violation in trace[0].pruned} == {5}
    kept = [one.kept for one in trace]
    assert kept == sorted(set(kept))
    assert all(one.checkpoint is not None and one.frozen <= one.checkpoint for one in trace)
    assert trace[-1].verdict is Verdict.FOUND
    phases = [line for line in said if line.endswith("frozen")]  # the first may compile loops
    assert phases[0] == "3 steps, 0 of them frozen"
    assert len(phases) == sum(one.variables > 0 for one in trace)


def test_a_prefix_that_nothing_continues_is_given_up() -> None:
    """0 → 1 → 2, a chunk a step. Chunk 1 must reach rank 2 in two steps; a candidate that sends
    chunk 0 first cannot be mended behind its first step."""
    c = cluster([0, 0, 0], {(0, 1): [0], (1, 2): [1]}, [1, 1])
    pre, post = np.zeros((2, 3), np.bool_), np.zeros((2, 3), np.bool_)
    pre[:, 0] = post[0, 1] = post[1, 2] = True
    demand = CopyDemand(pre, post)
    candidate = Schedule(*np.array([[0, 0, 1, 0], [1, 0, 1, 1], [1, 1, 2, 1]]).T)
    search = ScheduleSearch(c, demand, fill(c, demand, EMPTY), 2, "z3", 0, time.monotonic() + 30)
    kept = KeptConstraints(np.zeros(2, np.bool_), np.zeros((2, 3), np.bool_))
    verdict, found = faithful.of_steps(search, candidate, 2, kept)
    assert verdict is Verdict.FOUND
    assert found is not None
    assert violations(found, c, demand) == []
    tried = [(one.checkpoint, one.frozen, one.verdict) for one in search.trace[:2]]
    assert tried[0] == (1, 1, Verdict.NONE)
    assert tried[1] == (1, 0, Verdict.FOUND)


def test_a_given_start_is_repaired() -> None:
    c = example("heteccl-h20-8x2+4")
    demand = gather(c)
    start = fill(c, demand, EMPTY)
    assert start.steps > least_steps(c, demand)
    found = synthesize(c, demand, start=start)
    assert found.gap == 0
    assert found.trace[0].frozen == 1
    assert violations(found.schedule, c, demand) == []


def test_what_is_too_large_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    c = example("heteccl-h20-8x2+4")
    demand = gather(c)
    start = fill(c, demand, EMPTY)
    monkeypatch.setattr(search, "LARGEST", {"z3": 300, "highs": 300})  # 380 send at first
    for mode, solver in MODES:
        found = synthesize(c, demand, mode=mode, solver=solver, start=start)
        assert found.schedule is start
        assert {one.verdict for one in found.trace} == {Verdict.LARGE}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["4+8", "4x3", "8x2+4"])
def test_what_is_large_is_asked_for_a_step_at_a_time(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every checkpoint is a step behind the one before, or where that was."""
    c = example(f"heteccl-h20-{name}")
    demand = gather(c)
    monkeypatch.setattr(search, "LARGEST", {"z3": c.n**3 // 4})
    found = synthesize(c, demand, mode="faithful", time_limit=120)
    assert violations(found.schedule, c, demand) == []
    assert found.schedule.steps == found.bound == least_steps(c, demand)
    assert found.trace[-1].verdict is Verdict.FOUND
    assert {one.frozen for one in found.trace} >= set(range(found.bound - 1))


@given(data=st.data())
@SETTINGS
def test_steps_asked_for_one_by_one_make_valid_schedules(data: st.DataObject) -> None:
    c = data.draw(clusters())
    demand = data.draw(demands(c))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "LARGEST", {"z3": 16})
        found = synthesize(c, demand, mode="faithful", time_limit=5)
    assert violations(found.schedule, c, demand) == []
    assert least_steps(c, demand) <= found.bound <= found.schedule.steps


@given(data=st.data())
@SETTINGS
def test_no_schedule_leaves_more_for_its_last_steps_than_these_can_bring(
    data: st.DataObject,
) -> None:
    c = data.draw(clusters())
    demand = data.draw(demands(c))
    s = fill(c, demand, EMPTY)
    nodes = c.node == np.arange(c.node.max() + 1)[:, None]
    for step in range(s.steps):
        left = remaining(demand, before(s, step))
        need = left.post & ~left.pre
        outside, lacking = missing_at_most(c, left, s.steps - step)
        for node, few, many in zip(nodes, outside, lacking, strict=True):
            assert np.count_nonzero(need[:, node]) <= many
            absent = ~left.pre[:, node].any(axis=1) & need[:, node].any(axis=1)
            assert np.count_nonzero(absent) <= few


@pytest.mark.parametrize(("mode", "solver"), MODES)
@given(data=st.data())
@SETTINGS
def test_what_comes_out_is_valid_and_shortest(
    mode: Mode, solver: Solver, data: st.DataObject
) -> None:
    c = data.draw(clusters())
    demand = data.draw(demands(c))
    found = synthesize(c, demand, mode=mode, solver=solver, time_limit=5)
    assert violations(found.schedule, c, demand) == []
    assert least_steps(c, demand) <= found.bound <= found.schedule.steps
    if all(one.verdict is not Verdict.UNKNOWN for one in found.trace):
        assert found.gap == 0


@given(st.data())
@SETTINGS
def test_filled_steps_stay_valid(data: st.DataObject) -> None:
    c = data.draw(clusters())
    demand = data.draw(demands(c))
    whole = fill(c, demand, EMPTY)
    assert violations(whole, c, demand) == []
    part = fill(c, demand, before(whole, 1), 1)
    assert violations(fill(c, demand, part), c, demand) == []
    for left in fill(c, demand, before(whole, 1)), whole:
        assert left.steps >= least_steps(c, demand)


def test_a_start_that_is_not_valid_is_refused() -> None:
    c = example("heteccl-h20-4+8")
    with pytest.raises(InternalError, match="equation=5"):
        synthesize(c, gather(c), start=saturate(c, gather(c)))


def test_out_of_time_the_given_schedule_is_returned() -> None:
    c = example("heteccl-h20-8x2+4")
    demand = gather(c)
    for mode, solver in MODES:
        start = fill(c, demand, EMPTY)
        found = synthesize(c, demand, mode=mode, solver=solver, time_limit=0, start=start)
        assert found.schedule is start
        assert found.gap == start.steps - 5


@pytest.mark.quick(1)
@pytest.mark.parametrize(("mode", "solver"), MODES)
def test_interrupted_the_best_so_far_is_returned(mode: Mode, solver: Solver) -> None:
    c = example("heteccl-h20-8x2+4")
    demand = gather(c, 2)
    start = fill(c, demand, EMPTY)
    said: list[str] = []

    def interrupt() -> None:
        """Interrupts until that is heard: numba loses an interrupt that comes while it compiles."""
        for _ in range(10):
            time.sleep(0.2)
            if "interrupted: the best so far" in said or done.is_set():
                return
            _thread.interrupt_main()

    done = threading.Event()
    thread = threading.Thread(target=interrupt)

    def on_phase(phase: str) -> None:
        said.append(phase)
        if phase.endswith("frozen") and not thread.ident:  # loops may be compiled before
            thread.start()

    gc.disable()  # an interrupt that comes while Hypothesis times a collection is lost
    try:
        with listening(on_phase):
            found = synthesize(c, demand, mode=mode, solver=solver, time_limit=3, start=start)
    except KeyboardInterrupt:
        pytest.fail(f"the interrupt came out; phases: {said}")
    finally:
        done.set()
        gc.enable()
    thread.join()
    assert found.schedule is start
    assert said[-1] == "interrupted: the best so far"


@pytest.mark.parametrize("mode", ["fast", "faithful"])
def test_allreduce_adds_one_thing_at_a_time_to_one_place(mode: Mode) -> None:
    c = example("heteccl-h20-4x3")
    made = allreduce(c, c.n, mode=mode)
    gathered, backwards = gather(c), gather(c, exclusive=True)
    assert violations(made.gather.schedule, c, gathered) == []
    assert violations(made.reduce.schedule, c.reversed(), backwards) == []
    model = Cost(alpha=5.0, beta=2.0, gamma=0.5)
    steps = made.reduce.schedule.steps, made.gather.schedule.steps
    assert made.time(model, 10) == steps[0] * 30.0 + steps[1] * 25.0
    sums = made.sums
    places = list(zip(sums.step, sums.chunk, sums.dst, strict=True))
    assert len(set(places)) == len(places)
    assert sums.steps == made.reduce.schedule.steps >= made.reduce.bound


def test_a_violation_of_eq_8_is_found() -> None:
    c = example("heteccl-h20-4x3")
    several = fill(c, gather(c), EMPTY)
    wrong = violations(several, c, gather(c, exclusive=True))
    assert {violation.equation for violation in wrong} == {8}
