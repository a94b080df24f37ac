"""groups: several calls of one thread made at once, and what keeps arrays of calls in streams."""

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
    """The groups that a thread has open: how many, and what is to be kept at the end."""

    depth: int = 0
    then: list[Callable[[], object]] = field(default_factory=list)


class _ThreadGroups(threading.local):
    def __init__(self) -> None:
        self.now = _OpenGroups()


_GROUPS = _ThreadGroups()


def in_group() -> bool:
    """Whether a group is open in this thread."""
    return _GROUPS.now.depth > 0


def at_end(body: Callable[[], object]) -> None:
    """Called when the group that is open in this thread has ended; held until then."""
    if in_group():
        _GROUPS.now.then.append(body)


@contextmanager
def group() -> Iterator[None]:
    """Calls of this thread are noted, and made at once when it ends: for one thread that has
    several ranks. Where anything is raised, none is made. Raises CommunicatorError."""
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
    """Arrays of calls that are in streams, until these calls are done."""

    def __init__(self, progress: Callable[[], tuple[int, int]]) -> None:
        """progress: how many calls were made, and are done."""
        self._progress = progress
        self._changing = threading.Lock()
        self._waiting: deque[tuple[int, Owners]] = deque()

    def keep(self, owners: Owners, in_stream: bool) -> None:
        """Those of the call that was made last."""
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
        """No call is left."""
        with self._changing:
            self._waiting.clear()
