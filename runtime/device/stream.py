"""stream: streams, events and graphs of the device layer's CPU platform, for Python programs.

with Stream() as stream:
    comm.all_reduce(x, stream=stream)
    stream.then(lambda: print("reduced"))
    event = stream.record()
    ...
    event.synchronize()
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from types import TracebackType
from typing import Any, Self

from hccc.base.diagnostics import UserError, fail
from hccc.runtime.device.description import description
from hccc.runtime.device.device_layer import PLATFORMS, library


@cache
def value_of(name: str) -> int:
    """Returns the value of a constant of the device layer: `MemcpyDefault`."""
    return next(r.value for enum in description().enums for r in enum.rows if r.name == name)


@contextmanager
def on_platform(name: str) -> Iterator[None]:
    """Directs calls of this thread to a platform."""
    before = ctypes.c_int()
    unknown = library().try_call("GetPlatform", ctypes.byref(before))
    library().call("SetPlatform", PLATFORMS.index(name) + 1)
    try:
        yield
    finally:
        if unknown:
            library().try_call("SetPlatformAuto")
        else:
            library().try_call("SetPlatform", before.value)


def _call(name: str, *arguments: Any) -> None:
    with on_platform("cpu"):
        library().call(name, *arguments)


def _made(name: str, *arguments: Any) -> int:
    made = ctypes.c_void_p()
    _call(name, ctypes.byref(made), *arguments)
    return made.value or 0


def _ready(query: str, handle: int, name: str) -> bool:
    """Returns the answer of a query. Raises UserError E472."""
    with on_platform("cpu"):
        found = library().try_call(query, handle)
    if found not in (0, value_of("ErrorNotReady")):
        raise fail("E472", f"{name}: {library().string_of(found)}")
    return not found


_KEYS = count(1)
# Functions that streams will call, by number; those of graphs are called again.
_BODIES: dict[int, Callable[[], object]] = {}
_OF_GRAPHS: set[int] = set()


def _call_body(key: int) -> None:
    """Calls the function of a number."""
    body = _BODIES[key] if key in _OF_GRAPHS else _BODIES.pop(key)
    body()


_CALL_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_call_body)


class Event:
    """A point in a stream. One that was never recorded counts as reached. Raises UserError E472."""

    def __init__(self) -> None:
        self._handle: int | None = _made("EventCreate")

    @property
    def handle(self) -> int:
        """The `hcccrtEvent_t`."""
        if self._handle is None:
            raise fail("E472", "the event was destroyed")
        return self._handle

    def record(self, stream: Stream) -> None:
        """Puts the event at the end of what is in a stream now."""
        _call("EventRecord", self.handle, stream.handle)

    @property
    def reached(self) -> bool:
        """Whether the stream has come to the event; without waiting."""
        return _ready("EventQuery", self.handle, "the event")

    def synchronize(self) -> None:
        """Waits until the stream has come to the event."""
        _call("EventSynchronize", self.handle)

    def milliseconds_since(self, start: Event) -> float:
        """Returns the time between two events that were reached."""
        passed = ctypes.c_float()
        _call("EventElapsedTime", ctypes.byref(passed), start.handle, self.handle)
        return passed.value

    def destroy(self) -> None:
        """Frees the event; the second time nothing."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            _call("EventDestroy", handle)


class Stream:
    """A queue of work that runs in order, in a thread of its own. Raises UserError E472."""

    def __init__(self) -> None:
        self._handle: int | None = _made("StreamCreateWithFlags", value_of("StreamNonBlocking"))
        self._graph: StreamGraph | None = None  # that is captured now

    @property
    def handle(self) -> int:
        """The `hcccrtStream_t`."""
        if self._handle is None:
            raise fail("E472", "the stream was destroyed")
        return self._handle

    @property
    def idle(self) -> bool:
        """Whether no work is left; without waiting."""
        return _ready("StreamQuery", self.handle, "the stream")

    def synchronize(self) -> None:
        """Waits for all work in the stream."""
        _call("StreamSynchronize", self.handle)

    def record(self) -> Event:
        """Makes an event at the end of what is in the stream now."""
        made = Event()
        made.record(self)
        return made

    def wait(self, event: Event) -> None:
        """Makes later work of the stream wait for an event, as it was last recorded."""
        _call("StreamWaitEvent", self.handle, event.handle, 0)

    def then(self, body: Callable[[], object]) -> None:
        """Calls a function after the stream's work so far, in the stream's thread; later work waits
        for it. It must not put work into streams. An exception in it is printed, as of a
        thread."""
        key = next(_KEYS)
        _BODIES[key] = body
        try:
            _call("LaunchHostFunc", self.handle, _CALL_BODY, key)
        except UserError:
            del _BODIES[key]
            raise
        if self._graph is not None:
            self._graph.keep(key)

    def destroy(self) -> None:
        """Frees the stream after its work; the second time nothing."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            _call("StreamDestroy", handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.destroy()

    @contextmanager
    def capture(self) -> Iterator[StreamGraph]:
        """Captures work that is put into the stream meanwhile in a graph, without running it."""
        graph = StreamGraph()
        _call("StreamBeginCapture", self.handle, value_of("StreamCaptureModeThreadLocal"))
        made = ctypes.c_void_p()
        self._graph = graph
        try:
            yield graph
        except BaseException:
            with on_platform("cpu"):
                library().try_call("StreamEndCapture", self.handle, ctypes.byref(made))
                if made.value:
                    library().try_call("GraphDestroy", made)
            raise
        finally:
            self._graph = None
        _call("StreamEndCapture", self.handle, ctypes.byref(made))
        graph.instantiate(made.value or 0)


class StreamGraph:
    """Work that was captured in a stream, and runs at each launch. Arrays that it uses must live as
    long as it."""

    def __init__(self) -> None:
        self._handle: int | None = None
        self._keys: list[int] = []
        self._running = 0
        self._changing = threading.Lock()

    def keep(self, key: int) -> None:
        """Keeps a captured function until the graph is freed and its launches have ended."""
        _OF_GRAPHS.add(key)
        self._keys.append(key)

    def _ended(self) -> None:
        with self._changing:
            self._running -= 1
        self._drop()

    def _drop(self) -> None:
        with self._changing:
            if self._handle is None and not self._running:
                for key in self._keys:
                    _BODIES.pop(key, None)
                    _OF_GRAPHS.discard(key)
                self._keys = []

    def instantiate(self, graph: int) -> None:
        """Takes over an `hcccrtGraph_t`, which is freed."""
        try:
            self._handle = _made("GraphInstantiate", graph, 0)
        finally:
            _call("GraphDestroy", graph)

    def launch(self, stream: Stream) -> None:
        """Puts all of the graph's work into a stream. Raises UserError E472."""
        if self._handle is None:
            raise fail("E472", "the graph has not been captured, or was destroyed")
        _call("GraphLaunch", self._handle, stream.handle)
        if self._keys:
            with self._changing:
                self._running += 1
            stream.then(self._ended)

    def destroy(self) -> None:
        """Frees the graph; its launches go on. The second time nothing."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            _call("GraphExecDestroy", handle)
            self._drop()
