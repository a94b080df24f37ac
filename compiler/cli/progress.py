"""progress: what a command says on stderr of what it is doing, once it takes some time.

On a terminal that is a line that changes. Elsewhere it is a line for each phase that has lasted two
seconds, and then one every few seconds:

    hccc: Tuning … 3 of 12, 14 s
    hccc: Scheduling (compiling loops, once) … 21 s

Seconds are those of the command.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING

from hccc.base.progress import Listener, listening

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

PATIENCE = 2.0  # s that a phase lasts, or work of the first time, before a line tells of it
EVERY = 5.0  # s between lines, at first
RARELY = 30.0  # s between lines in the end
SOON = 1.0  # s until a terminal shows a line
LOOK = 0.25  # s between looks
OFF = "HCCC_PROGRESS"  # in the environment "off": nothing is told


class Activity(Listener):
    """What is being done, and since when. clock: seconds."""

    def __init__(self, first: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.lock = clock, threading.RLock()
        self.name, self.done, self.of = first, 0, 0
        self.begun = self.since = clock()
        self._once: Counter[str] = Counter()  # how many threads do it, or loops within loops
        self._once_since, self._once_before = 0.0, 0.0

    def phase(self, name: str) -> None:
        """Begins a phase."""
        with self.lock:
            if name != self.name:
                self.name, self.since, self.done, self.of = name, self.clock(), 0, 0

    def far(self, done: int, of: int) -> None:
        """Notes how much of the phase is done."""
        with self.lock:
            self.done, self.of = done, of

    def begin_once(self, what: str) -> None:
        """Begins what later commands find done."""
        with self.lock:
            if not +self._once:
                self._once_since = self.clock()
            self._once[what] += 1

    def end_once(self, what: str) -> None:
        """Ends it."""
        with self.lock:
            self._once[what] -= 1
            if not +self._once:
                self._once_before += self.clock() - self._once_since

    def once(self) -> str:
        """Returns what is done now that later commands find done, if that has taken long."""
        doing = list(+self._once)
        took = self._once_before + self.clock() - self._once_since
        return doing[-1] if doing and took >= PATIENCE else ""

    def text(self) -> str:
        """Describes the work in words."""
        once = self.once()
        now = f" ({once[0].lower()}{once[1:]}, once)" if once else ""
        far = f"{self.done:,} of {self.of:,}, " if self.of else ""
        return f"{self.name}{now} … {far}{self.seconds():.0f} s"

    def seconds(self) -> float:
        """Returns the seconds since the command began."""
        return self.clock() - self.begun


class Lines:
    """Tells of work in lines."""

    def __init__(self, work: Activity, tell: Callable[[str], None]) -> None:
        self._work, self._tell = work, tell
        self._told: tuple[str, str] | None = None  # what the last line was about
        self._last = work.clock()  # it said anything

    def look(self) -> None:
        """Tells of the work when its time has come."""
        work = self._work
        about = work.name, work.once()
        wait = min(max(EVERY, work.seconds() / 10), RARELY)
        lasts = about[1] or work.clock() - work.since >= PATIENCE
        if self._told is None or (about != self._told and lasts):
            wait = PATIENCE
        if work.clock() - self._last >= wait:
            self._told, self._last = about, work.clock()
            self._tell(work.text())

    def spoken(self) -> None:
        """Takes note that the command has said something else."""
        self._last = self._work.clock()

    def close(self) -> None:
        """Ends."""


class Bar:
    """Tells of work in a line of a terminal that changes."""

    def __init__(self, work: Activity) -> None:
        self._work = work
        self._bar: Progress | None = None
        self._last = work.clock()

    def look(self) -> None:
        """Shows the line when its time has come, and what has changed."""
        work = self._work
        if self._bar is None and work.clock() - self._last >= SOON:
            self._bar = _started()
        if self._bar is not None:
            spinner, text, share, *_ = _columns()
            self._bar.columns = (spinner, text, share) if work.of else (spinner, text)
            for task in self._bar.task_ids:
                total = work.of or None
                self._bar.update(task, description=work.text(), completed=work.done, total=total)

    def spoken(self) -> None:
        """Takes note that the command has said something else; the line comes back below it."""
        self.close()
        self._last = self._work.clock()

    def close(self) -> None:
        """Takes the line away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@cache
def _columns() -> tuple[ProgressColumn, ...]:
    from rich.progress import BarColumn, SpinnerColumn, TextColumn

    return SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn()


def _started() -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    # Results go to stdout, whatever is shown on stderr.
    bar = Progress(*_columns(), console=Console(stderr=True), transient=True, redirect_stdout=False)
    bar.add_task("")
    bar.start()
    return bar


_shown: ContextVar[tuple[Activity, Lines | Bar] | None] = ContextVar("shown", default=None)


@contextmanager
def progress(first: str = "Starting") -> Iterator[None]:
    """Shows the phases inside, how much of them is done, and what happens only once."""
    if os.environ.get(OFF) == "off":
        yield
        return
    work, ended = Activity(first), threading.Event()
    shown = Bar(work) if sys.stderr.isatty() else Lines(work, _line)

    def looking() -> None:
        while not ended.wait(LOOK):
            with work.lock:
                shown.look()

    thread = threading.Thread(target=looking, name="progress", daemon=True)
    thread.start()
    before = _shown.set((work, shown))
    try:
        with listening(work):
            yield
    finally:
        _shown.reset(before)
        ended.set()
        thread.join()
        shown.close()


def say(text: str) -> None:
    """Prints a part of the result while `progress` goes on."""
    now = _shown.get()
    with now[0].lock if now else nullcontext():
        if now:
            now[1].spoken()
        print(text, flush=True)


def _line(text: str) -> None:
    with suppress(OSError, ValueError):  # nobody reads it any more
        print(f"hccc: {text}", file=sys.stderr, flush=True)
