"""Graphs: captured work does not run, and then runs as often as the graph is launched."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from hccc.runtime.device.device_layer import structure
from tests.runtime.device.harness import D2D, H2D, VALUES, Runtime

RELAXED = VALUES["StreamCaptureModeRelaxed"]
GLOBAL = VALUES["StreamCaptureModeGlobal"]
LOCAL = VALUES["StreamCaptureModeThreadLocal"]


def end(rt: Runtime, stream: int) -> tuple[str, int]:
    """Ends a capture: (error, graph)."""
    graph = ctypes.c_void_p(1)
    return rt.error("StreamEndCapture", stream, ctypes.byref(graph)), graph.value or 0


def status(rt: Runtime, stream: int) -> str:
    """Returns the capture status of a stream: None, Active or Invalidated."""
    out = ctypes.c_int()
    rt("StreamGetCaptureInfo_v2", stream, ctypes.byref(out), None, None, None, None)
    return ("None", "Active", "Invalidated")[out.value]


def instantiate(rt: Runtime, graph: int) -> int:
    """Makes a launchable instance of a graph."""
    return rt.handle("GraphInstantiate", graph, 0)


def test_a_captured_stream_is_replayed(rt: Runtime, fill: Any) -> None:
    stream = rt.stream()
    a, b = rt.put(b"." * 16), rt.put(b"." * 16)
    seen: list[bytes] = []
    rt("StreamBeginCapture", stream, GLOBAL)
    rt.launch(fill, stream, ctypes.c_void_p(a), ctypes.c_int(4), ctypes.c_int(0x41414141))
    rt("MemcpyAsync", b, a, 16, D2D, stream)
    rt("MemsetAsync", a, 0, 16, stream)
    rt.launch_host(stream, lambda: seen.append(b"host"))
    assert status(rt, stream) == "Active"
    error, graph = end(rt, stream)
    assert (error, status(rt, stream)) == ("Success", "None")
    assert (rt.get(a, 16), rt.get(b, 16), seen) == (b"." * 16, b"." * 16, [])
    exec_ = instantiate(rt, graph)
    rt("GraphDestroy", graph)
    for _ in range(3):
        rt("Memset", b, 1, 16)
        rt("GraphLaunch", exec_, stream)
        rt("StreamSynchronize", stream)
        assert (rt.get(a, 16), rt.get(b, 16)) == (bytes(16), b"A" * 16)
    assert seen == [b"host"] * 3
    rt("GraphExecDestroy", exec_)


def test_arguments_are_those_of_the_capture(rt: Runtime, fill: Any) -> None:
    stream, a = rt.stream(), rt.handle("Malloc", 4)
    value = ctypes.c_int(7)
    rt("StreamBeginCapture", stream, GLOBAL)
    rt.launch(fill, stream, ctypes.c_void_p(a), ctypes.c_int(1), value)
    value.value = 8
    exec_ = instantiate(rt, end(rt, stream)[1])
    rt("GraphLaunch", exec_, stream)
    rt("StreamSynchronize", stream)
    assert rt.get(a, 4) == b"\7\0\0\0"


def test_a_capture_goes_over_to_other_streams(rt: Runtime) -> None:
    """Fork and join by events: branches run after the work before them, before the work after."""
    one, other = rt.stream(), rt.stream()
    fork, join = rt.event(), rt.event()
    seen: list[str] = []
    rt("StreamBeginCapture", one, GLOBAL)
    rt.launch_host(one, lambda: seen.append("before"))
    rt("EventRecord", fork, one)
    rt("StreamWaitEvent", other, fork, 0)
    assert status(rt, other) == "Active"
    rt.launch_host(other, lambda: seen.append("branch"))
    rt.launch_host(one, lambda: seen.append("branch"))
    rt("EventRecord", join, other)
    rt("StreamWaitEvent", one, join, 0)
    rt.launch_host(one, lambda: seen.append("after"))
    error, graph = end(rt, one)
    assert (error, status(rt, other)) == ("Success", "None")
    rt("GraphLaunch", instantiate(rt, graph), other)
    rt("StreamSynchronize", other)
    assert seen == ["before", "branch", "branch", "after"]


def test_launches_of_one_graph_follow_each_other(rt: Runtime) -> None:
    one, other = rt.stream(), rt.stream()
    running = threading.Lock()
    seen: list[bool] = []

    def alone() -> None:
        seen.append(running.acquire(blocking=False))
        threading.Event().wait(0.01)
        running.release()

    rt("StreamBeginCapture", one, GLOBAL)
    rt.launch_host(one, alone)
    exec_ = instantiate(rt, end(rt, one)[1])
    for stream in (one, other, one, other):
        rt("GraphLaunch", exec_, stream)
    rt("GraphExecDestroy", exec_)  # launched work goes on
    rt("DeviceSynchronize")
    assert seen == [True] * 4


def test_a_graph_within_a_graph(cpu: Runtime) -> None:
    stream, seen = cpu.stream(), []
    cpu("StreamBeginCapture", stream, GLOBAL)
    cpu.launch_host(stream, lambda: seen.append("inner"))
    inner = instantiate(cpu, end(cpu, stream)[1])
    cpu("StreamBeginCapture", stream, GLOBAL)
    cpu("GraphLaunch", inner, stream)
    cpu.launch_host(stream, lambda: seen.append("outer"))
    outer = instantiate(cpu, end(cpu, stream)[1])
    assert seen == []
    cpu("GraphLaunch", outer, stream)
    cpu("StreamSynchronize", stream)
    assert seen == ["inner", "outer"]


def test_a_host_node_is_added_to_a_capture(rt: Runtime) -> None:
    """As NCCL does it: after the nodes that the stream's next work would wait for."""
    stream, seen = rt.stream(), []
    rt("StreamBeginCapture", stream, GLOBAL)
    rt.launch_host(stream, lambda: seen.append("captured"))
    out = ctypes.c_int()
    number = ctypes.c_ulonglong()
    graph, nodes, n = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    rt("StreamGetCaptureInfo_v2", stream, *map(ctypes.byref, (out, number, graph, nodes, n)))
    assert (out.value, n.value) == (VALUES["StreamCaptureStatusActive"], 1)
    added = rt.host_fn(lambda: seen.append("added"))
    params = structure("HostNodeParams")(ctypes.cast(added, ctypes.c_void_p), None)
    rt.handle("GraphAddHostNode", graph, nodes, n, ctypes.byref(params))
    error, ended = end(rt, stream)
    assert (error, ended) == ("Success", graph.value)
    rt("GraphLaunch", instantiate(rt, ended), stream)
    rt("StreamSynchronize", stream)
    assert seen == ["captured", "added"]


def test_captures_are_numbered(rt: Runtime) -> None:
    stream, seen = rt.stream(), set()
    for _ in range(3):
        rt("StreamBeginCapture", stream, GLOBAL)
        out, number = ctypes.c_int(), ctypes.c_ulonglong()
        rt(
            "StreamGetCaptureInfo_v2",
            stream,
            ctypes.byref(out),
            ctypes.byref(number),
            None,
            None,
            None,
        )
        seen.add(number.value)
        rt("GraphDestroy", end(rt, stream)[1])
    assert len(seen) == 3


@pytest.mark.parametrize("call", ["StreamSynchronize", "StreamQuery"])
def test_a_captured_stream_cannot_be_waited_for(rt: Runtime, call: str) -> None:
    stream = rt.stream()
    rt("StreamBeginCapture", stream, RELAXED)
    assert rt.error(call, stream) == "ErrorStreamCaptureUnsupported"
    assert status(rt, stream) == "Invalidated"
    assert rt.error("LaunchHostFunc", stream, rt.host_fn(lambda: None), None) == (
        "ErrorStreamCaptureInvalidated"
    )
    assert end(rt, stream) == ("ErrorStreamCaptureInvalidated", 0)
    rt("StreamSynchronize", stream)  # it is a plain stream again


@pytest.mark.parametrize("mode", [GLOBAL, LOCAL, RELAXED])
def test_what_may_not_be_captured(rt: Runtime, mode: int) -> None:
    """Allocating is unsafe: refused to the capturing thread unless the capture is relaxed."""
    stream, out = rt.stream(), ctypes.c_void_p()
    rt("StreamBeginCapture", stream, mode)
    error = rt.error("Malloc", ctypes.byref(out), 10)
    assert error == ("Success" if mode == RELAXED else "ErrorStreamCaptureUnsupported")
    end(rt, stream)


@pytest.mark.parametrize(
    ("capture", "own", "allowed"),
    [
        (GLOBAL, GLOBAL, False),
        (GLOBAL, LOCAL, True),
        (GLOBAL, RELAXED, True),
        (LOCAL, GLOBAL, True),
        (RELAXED, GLOBAL, True),
    ],
)
def test_what_another_thread_may_not_do(
    cpu: Runtime, capture: int, own: int, allowed: bool
) -> None:
    stream, seen = cpu.stream(), []
    cpu("StreamBeginCapture", stream, capture)

    def work() -> None:
        from hccc.runtime.device.device_layer import use

        use("cpu")
        mode = ctypes.c_int(own)
        cpu("ThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        seen.extend([mode.value, cpu.error("Malloc", ctypes.byref(ctypes.c_void_p()), 10)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [GLOBAL, "Success" if allowed else "ErrorStreamCaptureUnsupported"]
    assert end(cpu, stream)[0] == ("Success" if allowed else "ErrorStreamCaptureInvalidated")


def test_a_thread_exchanges_its_mode(rt: Runtime) -> None:
    mode = ctypes.c_int(RELAXED)
    rt("ThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    assert mode.value == GLOBAL
    stream, out = rt.stream(), ctypes.c_void_p()
    rt("StreamBeginCapture", stream, GLOBAL)
    rt("Malloc", ctypes.byref(out), 10)  # allowed now
    rt("ThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    assert mode.value == RELAXED
    assert end(rt, stream)[0] == "Success"


def test_the_default_stream_would_wait_for_a_captured_one(rt: Runtime) -> None:
    stream, a = rt.handle("StreamCreate"), rt.handle("Malloc", 4)
    rt("StreamBeginCapture", stream, RELAXED)
    error = rt.error("MemsetAsync", a, 0, 4, None)
    assert error == "ErrorStreamCaptureImplicit"
    assert end(rt, stream)[0] == "ErrorStreamCaptureInvalidated"
    assert rt.error("StreamBeginCapture", None, RELAXED) == "ErrorStreamCaptureUnsupported"


def test_a_branch_must_come_back(rt: Runtime) -> None:
    one, other, fork = rt.stream(), rt.stream(), rt.event()
    rt("StreamBeginCapture", one, GLOBAL)
    rt("EventRecord", fork, one)
    rt("StreamWaitEvent", other, fork, 0)
    rt.launch_host(other, lambda: None)
    assert rt.error("StreamEndCapture", other, ctypes.byref(ctypes.c_void_p())) == (
        "ErrorStreamCaptureUnmatched"
    )
    assert end(rt, one) == ("ErrorStreamCaptureUnjoined", 0)
    assert (status(rt, one), status(rt, other)) == ("None", "None")


def test_captured_work_waits_for_nothing_outside(rt: Runtime) -> None:
    one, other, event = rt.stream(), rt.stream(), rt.event()
    gate = rt.block(other)
    rt("EventRecord", event, other)
    rt("StreamBeginCapture", one, RELAXED)
    assert rt.error("StreamWaitEvent", one, event, 0) == "ErrorStreamCaptureIsolation"
    end(rt, one)
    gate.set()


def test_two_captures_stay_apart(cpu: Runtime) -> None:
    one, other, event = cpu.stream(), cpu.stream(), cpu.event()
    cpu("StreamBeginCapture", one, RELAXED)
    cpu("StreamBeginCapture", other, RELAXED)
    cpu("EventRecord", event, one)
    assert cpu.error("StreamWaitEvent", other, event, 0) == "ErrorStreamCaptureMerge"
    for stream in (one, other):
        assert end(cpu, stream) == ("ErrorStreamCaptureInvalidated", 0)


def test_an_event_of_a_capture_is_none_of_a_stream(rt: Runtime) -> None:
    stream, event = rt.stream(), rt.event()
    rt("StreamBeginCapture", stream, RELAXED)
    rt("EventRecord", event, stream)
    assert rt.error("EventQuery", event) == "ErrorCapturedEvent"
    end(rt, stream)
    rt("EventRecord", event, stream)
    rt("EventSynchronize", event)


def test_another_thread_may_not_end_a_capture(rt: Runtime) -> None:
    stream, seen = rt.stream(), []
    rt("StreamBeginCapture", stream, GLOBAL)

    def work() -> None:
        from hccc.runtime.device.device_layer import use

        use(rt.platform)
        seen.append(end(rt, stream))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [("ErrorStreamCaptureWrongThread", 0)]
    end(rt, stream)


def test_wrong_graphs(cpu: Runtime) -> None:
    stream, wrong = cpu.stream(), "ErrorInvalidValue"
    cpu("StreamBeginCapture", stream, GLOBAL)
    assert cpu.error("StreamBeginCapture", stream, GLOBAL) == "ErrorIllegalState"
    _, graph = end(cpu, stream)
    assert end(cpu, stream) == ("ErrorIllegalState", 0)
    out = ctypes.byref(ctypes.c_void_p())
    assert cpu.error("GraphInstantiate", out, graph, 1) == wrong
    cpu("GraphDestroy", graph)
    assert cpu.error("GraphDestroy", graph) == wrong
    assert cpu.error("GraphInstantiate", out, graph, 0) == wrong
    assert cpu.error("GraphLaunch", graph, stream) == wrong
    assert cpu.error("GraphExecDestroy", graph) == wrong
    assert cpu.error("GraphAddHostNode", out, graph, None, 0, None) == wrong
    assert cpu.error("StreamBeginCapture", stream, 3) == wrong


def test_a_destroyed_stream_ends_its_capture(cpu: Runtime) -> None:
    one, other, fork = cpu.stream(), cpu.stream(), cpu.event()
    cpu("StreamBeginCapture", one, GLOBAL)
    cpu("EventRecord", fork, one)
    cpu("StreamWaitEvent", other, fork, 0)
    cpu("StreamDestroy", one)
    assert status(cpu, other) == "None"
    cpu("Memcpy", cpu.put(b"...."), b"....", 4, H2D)  # nothing is captured any more
