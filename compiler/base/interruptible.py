"""interruptible: computations that end at once when somebody presses Ctrl-C.

Python hears signals in the main thread, between two steps of the interpreter; a compiled loop or
an operation of NumPy is one step, however long. So they run in a thread of their own.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
LOOK = 0.1  # s: a signal wakes the main thread only if that is the thread the system chose for it
_left: list[threading.Thread] = []  # computations that were interrupted


class _Work(Generic[R]):
    """A call and, once it is `done`, its result or what it raised."""

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
        """The result of the call, or raises what it raised."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # no cycle: its traceback holds this frame
        return self._results.pop()


def interruptible(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which must only compute, so that the main thread hears Ctrl-C while it runs.

    Then it is left to itself: it stops at its next step in the interpreter, and nobody gets its
    result. Other threads than the main one call `function` as it is.

    Raises:
        KeyboardInterrupt: at once, whatever `function` is doing; else what it raises.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if threading.current_thread() is not threading.main_thread():
            return function(*args, **kwargs)
        work = _Work(lambda: function(*args, **kwargs))
        thread = threading.Thread(target=work.run, name=function.__name__, daemon=True)
        try:
            thread.start()
            while not work.done.wait(LOOK):
                pass
        except BaseException:
            _stop(thread)
            raise
        return work.result()

    return call


def anytime(
    compute: Callable[[list[T]], None], enough: Callable[[list[T]], bool]
) -> tuple[list[T], bool]:
    """What `compute` appended to a list by its end or, if that is `enough`, by Ctrl-C; and whether
    that was pressed.

    Raises:
        KeyboardInterrupt: it was pressed before there was enough; else what `compute` raises.
    """
    found: list[T] = []
    try:
        interruptible(compute)(found)
    except KeyboardInterrupt:
        so_far = list(found)  # what is interrupted may yet append
        if not enough(so_far):
            raise
        return so_far, True
    return found, False


def left_running() -> bool:
    """Whether what was interrupted still runs: the interpreter must not wait for it to end."""
    return any(thread.is_alive() for thread in _left)


def _stop(thread: threading.Thread) -> None:
    """Has `thread` raise SystemExit, which ends threads without a word."""
    _left.append(thread)
    if thread.ident is not None:
        stop = ctypes.py_object(SystemExit)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), stop)
