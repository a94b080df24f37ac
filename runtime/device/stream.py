"""stream: streams and graphs of the device layer's CPU platform, for Python programs.

with Stream() as stream:
    comm.all_reduce(x, stream=stream)
    stream.synchronize()
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from hccc.base.diagnostics import fail
from hccc.runtime.device.description import description
from hccc.runtime.device.device_layer import PLATFORMS, library


def _value(name: str) -> int:
    return next(r.value for enum in description().enums for r in enum.rows if r.name == name)


@contextmanager
def on_cpu() -> Iterator[None]:
    """Directs calls of this thread to the CPU platform."""
    before = ctypes.c_int()
    unknown = library().try_call("GetPlatform", ctypes.byref(before))
    library().call("SetPlatform", PLATFORMS.index("cpu") + 1)
    try:
        yield
    finally:
        if unknown:
            library().try_call("SetPlatformAuto")
        else:
            library().try_call("SetPlatform", before.value)


def _call(name: str, *arguments: Any) -> None:
    with on_cpu():
        library().call(name, *arguments)


def _made(name: str, *arguments: Any) -> int:
    made = ctypes.c_void_p()
    _call(name, ctypes.byref(made), *arguments)
    return made.value or 0


class Stream:
    """A queue of work that runs in order, in a thread of its own. Raises UserError E472."""

    def __init__(self) -> None:
        self._handle: int | None = _made("StreamCreateWithFlags", _value("StreamNonBlocking"))

    @property
    def handle(self) -> int:
        """The `hcccrtStream_t`."""
        if self._handle is None:
            raise fail("E472", "the stream was destroyed")
        return self._handle

    @property
    def idle(self) -> bool:
        """Whether no work is left; without waiting."""
        with on_cpu():
            found = library().try_call("StreamQuery", self.handle)
        if found not in (0, _value("ErrorNotReady")):
            raise fail("E472", f"the stream: {library().string_of(found)}")
        return not found

    def synchronize(self) -> None:
        """Waits for all work in the stream."""
        _call("StreamSynchronize", self.handle)

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
        _call("StreamBeginCapture", self.handle, _value("StreamCaptureModeThreadLocal"))
        made = ctypes.c_void_p()
        try:
            yield graph
        except BaseException:
            with on_cpu():
                library().try_call("StreamEndCapture", self.handle, ctypes.byref(made))
                if made.value:
                    library().try_call("GraphDestroy", made)
            raise
        _call("StreamEndCapture", self.handle, ctypes.byref(made))
        graph.instantiate(made.value or 0)


class StreamGraph:
    """Work that was captured in a stream, and runs at each launch. Arrays that it uses must live as
    long as it."""

    def __init__(self) -> None:
        self._handle: int | None = None

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

    def destroy(self) -> None:
        """Frees the graph; its launches go on. The second time nothing."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            _call("GraphExecDestroy", handle)
