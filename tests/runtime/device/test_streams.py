"""Streams and events: order within a stream, none between streams unless it is asked for."""

from __future__ import annotations

import ctypes
import threading
import time
from functools import partial
from typing import Any

import pytest

from tests.runtime.device.harness import H2D, VALUES, WAIT_S, Runtime


def test_work_of_a_stream_runs_in_order(rt: Runtime) -> None:
    stream = rt.handle("StreamCreate")
    seen: list[int] = []
    for i in range(50):
        rt.launch_host(stream, partial(seen.append, i))
    rt("StreamSynchronize", stream)
    assert seen == list(range(50))
    rt("StreamDestroy", stream)


def test_streams_run_beside_each_other(rt: Runtime) -> None:
    one, other = rt.stream(), rt.stream()
    a = rt.handle("Malloc", 4)
    gate = rt.block(one)
    rt("MemsetAsync", a, 1, 4, other)
    rt("StreamSynchronize", other)  # while the first is stopped
    assert rt.error("StreamQuery", one) == "ErrorNotReady"
    assert rt.error("StreamQuery", other) == "Success"
    gate.set()
    rt("StreamSynchronize", one)
    assert rt.error("StreamQuery", one) == "Success"


def test_host_functions_of_two_streams_meet(cpu: Runtime) -> None:
    """Each stream has a thread of its own."""
    meeting = threading.Barrier(3, timeout=WAIT_S)
    for _ in range(2):
        cpu.launch_host(cpu.handle("StreamCreate"), meeting.wait)
    meeting.wait()


@pytest.mark.parametrize("waits_for", ["stream", "default"])
def test_the_default_stream_is_ordered_with_the_others(rt: Runtime, waits_for: str) -> None:
    stream = rt.handle("StreamCreate")
    first, then = (stream, None) if waits_for == "stream" else (None, stream)
    seen: list[str] = []
    gate = rt.block(first)
    rt.launch_host(first, lambda: seen.append("first"))
    rt.launch_host(then, lambda: seen.append("then"))
    assert rt.error("StreamQuery", then) == "ErrorNotReady"
    gate.set()
    rt("StreamSynchronize", then)
    assert seen == ["first", "then"]


def test_streams_apart_from_the_default_stream(rt: Runtime) -> None:
    stream, a = rt.stream(), rt.handle("Malloc", 4)
    gate = rt.block(stream)
    rt("MemsetAsync", a, 1, 4, None)
    rt("StreamSynchronize", None)
    assert rt.error("StreamQuery", stream) == "ErrorNotReady"
    gate.set()
    rt("StreamSynchronize", stream)


def test_copying_at_once_waits_its_turn(rt: Runtime) -> None:
    """hcccrtMemcpy is work of the default stream."""
    stream, a = rt.handle("StreamCreate"), rt.put(b"....")
    gate = rt.block(stream)
    rt("MemsetAsync", a, 0x41, 4, stream)
    threading.Timer(0.05, gate.set).start()
    assert rt.get(a, 4) == b"AAAA"


def test_synchronizing_the_default_stream_waits_for_all(rt: Runtime) -> None:
    stream, seen = rt.handle("StreamCreate"), []
    gate = rt.block(stream)
    rt.launch_host(stream, lambda: seen.append(1))
    assert rt.error("StreamQuery", None) == "ErrorNotReady"
    threading.Timer(0.05, gate.set).start()
    rt("StreamSynchronize", None)
    assert seen == [1]


def test_synchronizing_the_device_waits_for_all(rt: Runtime) -> None:
    streams, seen = [rt.stream(), rt.handle("StreamCreate"), None], []

    def slowly(i: int) -> None:
        time.sleep(0.01)
        seen.append(i)

    for i, stream in enumerate(streams):
        rt.launch_host(stream, partial(slowly, i))
    rt("DeviceSynchronize")
    assert sorted(seen) == [0, 1, 2]


def test_a_destroyed_stream_does_its_work(rt: Runtime) -> None:
    stream, seen = rt.stream(), []
    gate = rt.block(stream)
    rt.launch_host(stream, lambda: seen.append(1))
    rt("StreamDestroy", stream)  # does not wait
    assert not seen
    gate.set()
    rt("DeviceSynchronize")
    assert seen == [1]


def test_events_join_streams(rt: Runtime) -> None:
    one, other, event, seen = rt.stream(), rt.stream(), rt.event(), []
    gate = rt.block(one)
    rt.launch_host(one, lambda: seen.append("one"))
    rt("EventRecord", event, one)
    rt("StreamWaitEvent", other, event, 0)
    rt.launch_host(other, lambda: seen.append("other"))
    assert rt.error("EventQuery", event) == "ErrorNotReady"
    assert rt.error("StreamQuery", other) == "ErrorNotReady"
    gate.set()
    rt("StreamSynchronize", other)
    assert seen == ["one", "other"]
    assert rt.error("EventQuery", event) == "Success"
    rt("EventDestroy", event)


def test_a_stream_waits_for_an_event_as_it_was(rt: Runtime) -> None:
    """Recording an event again does not change waits made before."""
    one, other, event = rt.stream(), rt.stream(), rt.event()
    first = rt.block(one)
    rt("EventRecord", event, one)
    rt("StreamWaitEvent", other, event, 0)
    second = rt.block(one)
    rt("EventRecord", event, one)
    first.set()
    rt("StreamSynchronize", other)
    assert rt.error("EventQuery", event) == "ErrorNotReady"
    second.set()
    rt("EventSynchronize", event)


def test_an_event_that_was_never_recorded_is_done(rt: Runtime) -> None:
    event, stream = rt.handle("EventCreate"), rt.stream()
    assert rt.error("EventQuery", event) == "Success"
    rt("EventSynchronize", event)
    rt("StreamWaitEvent", stream, event, 0)
    rt("StreamSynchronize", stream)


def test_a_destroyed_event_is_still_waited_for(rt: Runtime) -> None:
    one, other, event, seen = rt.stream(), rt.stream(), rt.event(), []
    gate = rt.block(one)
    rt.launch_host(one, lambda: seen.append("one"))
    rt("EventRecord", event, one)
    rt("StreamWaitEvent", other, event, 0)
    rt("EventDestroy", event)
    rt.launch_host(other, lambda: seen.append("other"))
    gate.set()
    rt("StreamSynchronize", other)
    assert seen == ["one", "other"]


def test_events_take_the_time(rt: Runtime) -> None:
    stream, start, stop = rt.stream(), rt.handle("EventCreate"), rt.handle("EventCreate")
    rt("EventRecord", start, stream)
    rt.launch_host(stream, lambda: time.sleep(0.03))
    rt("EventRecord", stop, stream)
    rt("EventSynchronize", stop)
    out = ctypes.c_float()
    rt("EventElapsedTime", ctypes.byref(out), start, stop)
    assert 25 < out.value < WAIT_S * 1000
    rt("EventElapsedTime", ctypes.byref(out), stop, start)
    assert out.value < -25


def test_events_that_take_no_time(rt: Runtime) -> None:
    stream, plain, timed, other = (
        rt.stream(),
        rt.event(),
        rt.handle("EventCreate"),
        rt.handle("EventCreate"),
    )
    out = ctypes.byref(ctypes.c_float())
    assert rt.error("EventElapsedTime", out, timed, other) == "ErrorInvalidResourceHandle"
    gate = rt.block(stream)
    for event in (plain, timed, other):
        rt("EventRecord", event, stream)
    assert rt.error("EventElapsedTime", out, timed, other) == "ErrorNotReady"
    gate.set()
    rt("StreamSynchronize", stream)
    assert rt.error("EventElapsedTime", out, plain, timed) == "ErrorInvalidResourceHandle"


def test_events_across_devices(cpu: Runtime) -> None:
    stream, event, seen = cpu.stream(), cpu.event(), []
    gate = cpu.block(stream)
    cpu.launch_host(stream, lambda: seen.append(0))
    cpu("EventRecord", event, stream)
    cpu("SetDevice", 1)
    other = cpu.stream()
    cpu("StreamWaitEvent", other, event, 0)
    cpu.launch_host(other, lambda: seen.append(1))
    assert cpu.error("EventRecord", event, other) == "ErrorInvalidResourceHandle"
    gate.set()
    cpu("StreamSynchronize", other)
    assert seen == [0, 1]


def test_a_stream_on_some_processors(cpu: Runtime) -> None:
    import os

    every = sorted(os.sched_getaffinity(0))
    last = len(every) - 1
    mask = (ctypes.c_uint * (last // 32 + 1))()
    mask[last // 32] = 1 << last % 32
    stream, seen = cpu.handle("ExtStreamCreateWithCUMask", len(mask), mask), []
    cpu.launch_host(stream, lambda: seen.append(os.sched_getaffinity(0)))
    cpu("StreamSynchronize", stream)
    assert seen == [{every[last]}]
    none = (ctypes.c_uint * 1)()
    out = ctypes.byref(ctypes.c_void_p())
    assert cpu.error("ExtStreamCreateWithCUMask", out, 1, none) == "ErrorInvalidValue"


def test_host_functions_must_not_call_the_device_layer(cpu: Runtime) -> None:
    seen: list[Any] = []
    cpu.launch_host(cpu.stream(), lambda: seen.append(cpu.error("DeviceSynchronize")))
    cpu("DeviceSynchronize")
    assert seen == ["ErrorNotPermitted"]
    assert cpu.error("GetLastError") == "Success"  # that was the other thread's


def test_handles_of_nothing(cpu: Runtime) -> None:
    wrong, stream, event = "ErrorInvalidResourceHandle", cpu.stream(), cpu.event()
    cpu("StreamDestroy", stream)
    cpu("EventDestroy", event)
    here = cpu.put(b"....")
    for call in ("StreamQuery", "StreamSynchronize", "StreamDestroy"):
        assert cpu.error(call, stream) == wrong
    for call in ("EventQuery", "EventSynchronize", "EventDestroy"):
        assert cpu.error(call, event) == wrong
    assert cpu.error("StreamDestroy", None) == wrong
    assert cpu.error("EventRecord", event, None) == wrong
    assert cpu.error("StreamWaitEvent", stream, event, 0) == wrong
    assert cpu.error("MemcpyAsync", here, b"....", 4, H2D, stream) == wrong
    assert cpu.error("LaunchHostFunc", stream, cpu.host_fn(lambda: None), None) == wrong
    out = ctypes.byref(ctypes.c_void_p())
    assert cpu.error("StreamCreateWithFlags", out, 2) == "ErrorInvalidValue"
    assert cpu.error("EventCreateWithFlags", out, 8) == "ErrorInvalidValue"
    interprocess = VALUES["EventInterprocess"]
    assert cpu.error("EventCreateWithFlags", out, interprocess) == "ErrorInvalidValue"


def test_many_threads_use_one_stream(cpu: Runtime) -> None:
    """Each thread's work stays in its order."""
    stream = cpu.stream()
    seen: list[tuple[int, int]] = []

    def work(thread: int) -> None:
        from hccc.runtime.device.device_layer import use

        use("cpu")
        for i in range(50):
            cpu.launch_host(stream, partial(seen.append, (thread, i)))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu("StreamSynchronize", stream)
    assert len(seen) == 200
    for t in range(4):
        assert [i for thread, i in seen if thread == t] == list(range(50))
