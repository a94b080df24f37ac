"""groups: groups of calls of a thread, and references to arrays of calls in streams."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hccc.runtime.communicator.errors import check
from hccc.runtime.communicator.runtime_library import library

Owners = Sequence[object]


@dataclass(slots=True)
class _OpenGroups:
    """The open groups of a thread: their depth, and functions to call at the end."""

    depth: int = 0
    then: list[Callable[[], object]] = field(default_factory=list)


class _ThreadGroups(threading.local):
    def __init__(self) -> None:
        self.now = _OpenGroups()


_GROUPS = _ThreadGroups()


def in_group() -> bool:
    """Returns whether a group is open in this thread."""
    return _GROUPS.now.depth > 0


def at_end(body: Callable[[], object]) -> None:
    """Calls a function when this thread's open group has ended; references it until then."""
    if in_group():
        _GROUPS.now.then.append(body)


@contextmanager
def group() -> Iterator[None]:
    """Groups calls of this thread, which are made together at the end: for a thread with several
    ranks. An exception cancels all of them. Raises CommunicatorError."""
    check(library().call("GroupStart"))
    _GROUPS.now.depth += 1
    try:
        yield
    except BaseException:
        _GROUPS.now = _OpenGroups()
        library().call("GroupCancel")
        raise
    opened = _GROUPS.now
    opened.depth -= 1
    if not opened.depth:
        _GROUPS.now = _OpenGroups()
    try:
        check(library().call("GroupEnd"))
    finally:
        if not opened.depth:
            for one in opened.then:
                one()


class KeptArrays:
    """References to arrays of calls in streams, until the calls are done."""

    def __init__(self, progress: Callable[[], tuple[int, int]]) -> None:
        """Returns how many calls were made, and how many are done."""
        self._progress = progress
        self._changing = threading.Lock()
        self._waiting: deque[tuple[int, Owners]] = deque()

    def keep(self, owners: Owners, in_stream: bool) -> None:
        """Keeps the arrays of the last call."""
        if in_group():
            at_end(lambda: self._add(owners) if in_stream else None)
        elif in_stream:
            self._add(owners)

    def _add(self, owners: Owners) -> None:
        with self._changing:
            made, done = self._progress()
            self._waiting.append((made, owners))
            while self._waiting and self._waiting[0][0] <= done:
                self._waiting.popleft()

    def clear(self) -> None:
        """Drops all references, when no call is left."""
        with self._changing:
            self._waiting.clear()
