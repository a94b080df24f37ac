"""progress: tells what hccc is doing to whoever listens, however deep the code that does it.

    with listening(print):
        ...                          # anywhere below:
        tell("Scheduling")           # a step of what was asked for begins
        with quiet():                # its own steps are nobody's business,
            tell("Lowering")
            note("Compiling loops, once")  # but what takes seconds is

Who listens is a context variable, which `interruptible` hands on to the thread that computes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
OnPhase = Callable[[str], None]


def _nobody(phase: str) -> None:
    pass


_phases: ContextVar[OnPhase] = ContextVar("phases", default=_nobody)
_notes: ContextVar[OnPhase] = ContextVar("notes", default=_nobody)


def tell(phase: str) -> None:
    """Tells that a phase begins."""
    _phases.get()(phase)


def note(text: str) -> None:
    """Tells of work that comes up once and takes seconds, in whatever phase."""
    _notes.get()(text)


@contextmanager
def listening(on_phase: OnPhase | None) -> Iterator[None]:
    """Tells `on_phase` of the phases that begin inside, and of notes; None: whoever listens."""
    if on_phase is None:
        yield
        return
    phases, notes = _phases.set(on_phase), _notes.set(on_phase)
    try:
        yield
    finally:
        _phases.reset(phases)
        _notes.reset(notes)


@contextmanager
def quiet() -> Iterator[OnPhase]:
    """Tells nobody of the phases inside, which are part of a larger one; notes are told. Yields the
    function that is told of phases outside."""
    on_phase = _phases.get()
    phases = _phases.set(_nobody)
    try:
        yield on_phase
    finally:
        _phases.reset(phases)


@contextmanager
def timed(phase: str, seconds: dict[str, float]) -> Iterator[None]:
    """Tells that a phase begins, and adds the seconds of what is done inside."""
    tell(phase)
    begin = time.perf_counter()
    yield
    seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - begin


def reporting(function: Callable[P, R]) -> Callable[P, R]:
    """Has the `on_phase` that a call of `function` is given told of the phases inside."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        on_phase: Any = kwargs.get("on_phase")
        with listening(on_phase):
            return function(*args, **kwargs)

    return call
