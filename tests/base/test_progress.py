"""Progress: a listener hears of phases, and of notes from quiet phases too."""

from __future__ import annotations

import threading

import pytest

from hccc.base.interruptible import interruptible
from hccc.base.progress import listening, note, quiet, reporting, tell, timed


def test_phases_are_told_to_the_nearest_listener() -> None:
    outer, inner = list[str](), list[str]()
    tell("nobody listens")
    with listening(outer.append):
        tell("a")
        with listening(inner.append):
            tell("b")
        with listening(None):
            tell("c")
    tell("nobody listens any more")
    assert (outer, inner) == (["a", "c"], ["b"])


def test_of_what_is_quiet_only_notes_are_told() -> None:
    told = list[str]()
    with listening(told.append), quiet() as outside:
        tell("a")
        note("b")
        outside("c")
    assert told == ["b", "c"]


def test_a_listener_that_raises_ends_what_it_listens_to() -> None:
    def stop(phase: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), listening(stop):
        tell("a")
    tell("nobody listens any more")


def test_work_in_a_thread_of_its_own_is_heard() -> None:
    told, threads = list[str](), list[str]()

    @interruptible
    def work() -> None:
        threads.append(threading.current_thread().name)
        tell("a")

    with listening(told.append):
        work()
    assert told == ["a"] and threads == ["work"]


def test_on_phase_of_a_call_is_told() -> None:
    @reporting
    def work(*, on_phase: object = None) -> None:
        tell("a")

    outer, own = list[str](), list[str]()
    with listening(outer.append):
        work(on_phase=own.append)
        work()
    assert (outer, own) == (["a"], ["a"])


def test_seconds_of_a_phase_add_up() -> None:
    seconds, told = dict[str, float](), list[str]()
    with listening(told.append):
        for phase in ("a", "b", "a"):
            with timed(phase, seconds):
                pass
    assert list(seconds) == ["a", "b"] and told == ["a", "b", "a"]
