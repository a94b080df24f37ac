"""interruptible: computations that end at once when somebody presses Ctrl-C.

Python hears signals in the main thread, between two steps of the interpreter; a compiled loop or
an operation of NumPy is one step, however long. So they run in a thread of their own.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextvars import copy_context
from enum import Enum
from functools import partial, wraps
from itertools import count
from typing import Any, Generic, ParamSpec, TypeVar

from hccc.base.progress import far

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
LOOK = 0.1  # s: the system may deliver a signal to another thread than the main one
_left: list[threading.Thread] = []  # threads of interrupted computations


class Stopped(Enum):
    """What cut a computation short: Ctrl-C, or the end of its time."""

    INTERRUPTED = "interrupted"
    LATE = "late"


class LateError(Exception):
    """The time of a computation is over."""


class _Work(Generic[R]):
    """A call and, once it is `done`, its result or the exception it raised."""

    def __init__(self, call: Callable[[], R]) -> None:
        self._call, self._context = call, copy_context()
        self._results: list[R] = []
        self._error: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self._results.append(self._context.run(self._call))
        except BaseException as error:
            self._error = error
        finally:
            self.done.set()

    def result(self) -> R:
        """Returns the result of the call, or raises its exception."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # no cycle: its traceback holds this frame
        return self._results.pop()


def interruptible(function: Callable[P, R]) -> Callable[P, R]:
    """Makes `function` run in a thread of its own, so that the main thread can react to Ctrl-C.

    `function` must only compute. After Ctrl-C its thread is abandoned: it stops at its next step in
    the interpreter, and its result is lost. Called from another thread, `function` runs there.

    Raises:
        KeyboardInterrupt: at once, whatever `function` is doing; otherwise its own exceptions.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return _apart(lambda: function(*args, **kwargs), function.__name__)

    return call


def _apart(call: Callable[[], R], name: str, late: Callable[[], bool] | None = None) -> R:
    """Runs a call in a thread of its own, where this is the main one. late: tells whether its time
    is over. Raises KeyboardInterrupt, LateError and what the call raises."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    work = _Work(call)
    _run([threading.Thread(target=work.run, name=name, daemon=True)], [work], late)
    return work.result()


def anytime(
    compute: Callable[[list[T]], None],
    enough: Callable[[list[T]], bool],
    until: float | None = None,
) -> tuple[list[T], Stopped | None]:
    """Runs `compute`, which appends its results to a list, and returns the list and what cut it
    short. A partial list is returned only if `enough` accepts it.

    until: seconds of the monotonic clock at which to stop, once there is enough; in another thread
    than the main one `compute` must see to that, and raise LateError.

    Raises:
        KeyboardInterrupt: Ctrl-C came before there was enough. Also the exceptions of `compute`.
    """
    found: list[T] = []

    def late() -> bool:
        return until is not None and time.monotonic() >= until and enough(list(found))

    try:
        _apart(lambda: compute(found), compute.__name__, late)
    except LateError:
        return list(found), Stopped.LATE
    except KeyboardInterrupt:
        so_far = list(found)  # the interrupted computation may still append
        if not enough(so_far):
            raise
        return so_far, Stopped.INTERRUPTED
    return found, None


def at_once(compute: Callable[[T], R], items: Sequence[T], *, counted: bool = False) -> list[R]:
    """Runs `compute` for each item, as many at once as there are cores, and returns the results in
    order. Worth it where `compute` mostly runs without the interpreter's lock.

    counted: whether to report how many of several are done. When the caller is interrupted the
    computations are abandoned, as by `interruptible`. Raises the exception of the first item that
    has one.
    """
    numbers, counted = count(1), counted and len(items) > 1

    def computed(item: T) -> R:
        found = compute(item)
        if counted:
            far(next(numbers), len(items))
        return found

    works = [_Work(partial(computed, item)) for item in items]
    several = min(len(works), os.cpu_count() or 1)
    if several < 2:
        found = [computed(item) for item in items]
        if counted:
            far(0, 0)
        return found
    waiting, stopped = iter(works), threading.Event()

    def run_waiting() -> None:
        for work in waiting:
            if not stopped.is_set():
                work.run()

    threads = [threading.Thread(target=run_waiting, daemon=True) for _ in range(several)]
    try:
        _run(threads, works)
    except BaseException:
        stopped.set()
        raise
    if counted:
        far(0, 0)
    return [work.result() for work in works]


def ahead(make: Callable[[T], R], items: Sequence[T]) -> Generator[R, None, None]:
    """Yields the results of `make` for each item, the next one made in a thread of its own while
    the caller has the last. Raises the exception of an item in its turn. Close it: results that
    nobody asks for any more are abandoned.
    """
    thread: threading.Thread | None = None
    works = [_Work(partial(make, item)) for item in items]
    try:
        for k, work in enumerate(works):
            if thread is None:
                work.run()
            while not work.done.wait(LOOK):
                pass  # an interrupt of this thread comes between two looks
            if k + 1 < len(works):
                thread = threading.Thread(target=works[k + 1].run, daemon=True)
                thread.start()
            yield work.result()
    finally:
        if thread is not None and thread.is_alive():
            _stop(thread)


def left_running() -> bool:
    """Tells whether an interrupted computation still runs: the interpreter must not wait for its
    end."""
    return any(thread.is_alive() for thread in _left)


def _run(
    threads: Sequence[threading.Thread],
    works: Sequence[_Work[Any]],
    late: Callable[[], bool] | None = None,
) -> None:
    """Starts `threads` and waits until all `works` are done; an interrupt stops the threads, and
    `late` does, with a LateError."""
    try:
        for thread in threads:
            thread.start()
        for work in works:
            while not work.done.wait(LOOK):
                if late is not None and late():
                    raise LateError
    except BaseException as error:
        for thread in threads:
            _stop(thread)
        # An interrupt while a condition takes its lock again ends as the RuntimeError of a lock
        # that is released though it is not held.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise


def _stop(thread: threading.Thread) -> None:
    """Makes `thread` raise SystemExit, which ends it silently."""
    _left.append(thread)
    if thread.ident is not None:
        stop = ctypes.py_object(SystemExit)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), stop)
