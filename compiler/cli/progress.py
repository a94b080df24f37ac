"""progress: what a command says on stderr of what it is doing.

On a terminal that is a line that changes. Elsewhere it is a line for each phase that has lasted two
seconds, and for phases that are shorter one every ten seconds:

    hccc: Scheduling … (compiling loops, once)
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hccc.base.progress import listening

PATIENCE = 2.0  # s that a phase lasts before a line tells of it
EVERY = 10.0  # s between lines of phases that are shorter
LOOK = 0.25  # s between looks
OFF = "HCCC_PROGRESS"  # in the environment "off": nothing is told


@contextmanager
def progress(first: str = "Starting") -> Iterator[None]:
    """Shows the phases inside, and notes."""
    if os.environ.get(OFF) == "off":
        yield
        return
    lines = Lines(first, _line, time.monotonic)
    with _spinning(first) if sys.stderr.isatty() else _printing(lines):
        yield


class Lines:
    """Which phases are told, and when. clock: seconds."""

    def __init__(self, first: str, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._tell, self._clock = tell, clock
        self._phase, self._note, self._told = first, "", ""
        self._since = clock()
        self._last = self._since - EVERY + PATIENCE

    def phase(self, name: str) -> None:
        """Begins a phase."""
        if name != self._phase:
            self._phase, self._note, self._since = name, "", self._clock()

    def note(self, text: str) -> None:
        """Adds what comes up once in this phase."""
        if text != self._note:
            self._note, self._since = text, self._clock()

    def look(self) -> None:
        """Tells of the phase when its time has come."""
        now, text = self._clock(), described(self._phase, self._note)
        if text == self._told:
            return
        if now - self._since >= PATIENCE or now - self._last >= EVERY:
            self._told, self._last = text, now
            self._tell(text)


def described(phase: str, note: str) -> str:
    """Describes a phase, and the note of it, in words."""
    return f"{phase} … ({note[0].lower()}{note[1:]})" if note else f"{phase} …"


def _line(text: str) -> None:
    with suppress(OSError, ValueError):  # nobody reads it any more
        print(f"hccc: {text}", file=sys.stderr, flush=True)


@contextmanager
def _printing(lines: Lines) -> Iterator[None]:
    ended = threading.Event()

    def looking() -> None:
        while not ended.wait(LOOK):
            lines.look()

    thread = threading.Thread(target=looking, name="progress", daemon=True)
    thread.start()
    try:
        with listening(lines.phase, lines.note):
            yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _spinning(first: str) -> Iterator[None]:
    from rich.console import Console

    now = first
    with Console(stderr=True).status(first) as status:

        def phase(name: str) -> None:
            nonlocal now
            now = name
            status.update(name)

        with listening(phase, lambda note: status.update(described(now, note))):
            yield
