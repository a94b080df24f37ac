"""Progress: a listener hears of phases, and of quiet ones what happens once."""

from __future__ import annotations

import threading

import pytest

from hccc.base.interruptible import at_once, interruptible
from hccc.base.progress import (
    Listener,
    far,
    listening,
    once,
    quiet,
    reporting,
    tell,
    timed,
    within,
)


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


def test_of_what_is_quiet_only_what_happens_once_is_told() -> None:
    told = list[str]()
    with listening(told.append), quiet():
        tell("a")
        with once("b"):
            pass
    assert told == ["b, once"]


class Heard(Listener):
    """What a listener heard, in order."""

    def __init__(self) -> None:
        self.all = list[object]()

    def phase(self, name: str) -> None:
        self.all.append(name)

    def far(self, done: int, of: int) -> None:
        self.all.append((done, of))

    def begin_once(self, what: str) -> None:
        self.all.append(f"begin {what}")

    def end_once(self, what: str) -> None:
        self.all.append(f"end {what}")


def test_a_listener_hears_how_far_and_what_happens_once() -> None:
    heard = Heard()
    far(1, 2)
    with listening(heard):
        tell("a")
        far(1, 2)
        with quiet():
            far(7, 8)
            with pytest.raises(ValueError), once("b"):
                raise ValueError
    assert heard.all == ["a", (1, 2), "begin b", "end b"]


def test_of_what_is_done_at_once_is_told_how_much_and_what_happens_once() -> None:
    def build(name: str) -> str:
        with once(name):
            return name.upper()

    heard = Heard()
    with listening(heard):
        assert at_once(build, ["a", "b", "c"], counted=True) == ["A", "B", "C"]
        assert at_once(build, ["d"], counted=True) == ["D"]
        assert at_once(build, ["e", "f"]) == ["E", "F"]
    counts = [one for one in heard.all if isinstance(one, tuple)]
    assert (sorted(counts[:-1]), counts[-1]) == ([(1, 3), (2, 3), (3, 3)], (0, 0))
    assert {f"begin {name}" for name in "abcdef"} < set(heard.all)


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


def test_phases_within_a_larger_one_say_which() -> None:
    heard = Heard()
    with listening(heard):
        with within("Simulating ring (1 of 2)"):
            tell("Lowering")
            far(1, 3)
            with quiet():
                tell("Fusing")
        tell("Writing")
    parts = ["Simulating ring (1 of 2): lowering", (1, 3)]
    assert heard.all == ["Simulating ring (1 of 2)", *parts, "Writing"]
