"""Memory of other processes, and that nothing is left behind."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hccc.runtime.device.device_layer import structure
from tests.runtime.device.harness import VALUES, Runtime

# What the other process does with the handle that it reads, and with lines that follow.
OTHER = """
import ctypes, sys
from hccc.runtime.device.device_layer import library, structure, use
l = library()
use(sys.argv[1])
handle = structure("IpcMemHandle_t").from_buffer_copy(bytes.fromhex(sys.stdin.readline()))
pointer = ctypes.c_void_p()
error = l.try_call("IpcOpenMemHandle", ctypes.byref(pointer), handle, 1)
print(error, flush=True)
if not error:
    text = (ctypes.c_char * 16)()
    l.call("Memcpy", text, pointer, 16, 2)
    print(text.raw.hex(), flush=True)
    l.call("Memcpy", pointer, b"from the other..", 16, 1)
    l.call("DeviceSynchronize")
    print("written", flush=True)
    sys.stdin.readline()
    l.call("Memcpy", text, pointer, 16, 2)
    print(text.raw.hex(), flush=True)
    l.call("IpcCloseMemHandle", pointer)
    print(l.try_call("IpcCloseMemHandle", pointer) != 0, flush=True)
"""


@contextmanager
def other(rt: Runtime, code: str = OTHER) -> Iterator[Any]:
    """Starts another process on the same platform: `say(line)` sends, `say()` reads a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, rt.platform],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    out, into = process.stdout, process.stdin

    def say(line: str | None = None) -> str:
        if line is not None:
            into.write(line + "\n")
            into.flush()
        return out.readline().strip()

    try:
        yield say
        into.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        into.close()
        out.close()


def handle_of(rt: Runtime, pointer: int) -> Any:
    """Returns the handle of a pointer."""
    handle = structure("IpcMemHandle_t")()
    rt("IpcGetMemHandle", ctypes.byref(handle), pointer)
    return handle


def test_two_processes_share_memory(rt: Runtime) -> None:
    rt.put(b"something before it")
    a = rt.put(b"from the first..")
    rt.put(b"something after it")
    rt("DeviceSynchronize")
    with other(rt) as say:
        assert say(bytes(handle_of(rt, a)).hex()) == "0"
        assert bytes.fromhex(say()) == b"from the first.."
        assert say() == "written"
        assert rt.get(a, 16) == b"from the other.."
        rt("Memset", a, 0x41, 16)
        rt("DeviceSynchronize")
        assert bytes.fromhex(say("go")) == b"A" * 16
        assert say() == "True"
    assert rt.get(a, 16) == b"A" * 16


def test_a_handle_is_of_the_whole_allocation(cpu: Runtime) -> None:
    a = cpu.put(b"x" * 16 + b"y" * 2000)
    with other(cpu) as say:
        assert say(bytes(handle_of(cpu, a + 1000)).hex()) == "0"
        assert bytes.fromhex(say()) == b"x" * 16
        say()
        say("go")
        say()


def test_memory_outlives_its_process(cpu: Runtime) -> None:
    """Mapped memory stays; memory of a process that has ended cannot be opened."""
    code = """
import ctypes, sys
from hccc.runtime.device.device_layer import library, structure, use
l = library()
use("cpu")
p = ctypes.c_void_p()
l.call("Malloc", ctypes.byref(p), 64)
l.call("Memset", p, 7, 64)
h = structure("IpcMemHandle_t")()
l.call("IpcGetMemHandle", ctypes.byref(h), p)
print(bytes(h).hex(), flush=True)
sys.stdin.readline()
"""
    with other(cpu, code) as say:
        handle = structure("IpcMemHandle_t").from_buffer_copy(bytes.fromhex(say()))
        before = _left()
        pointers = [cpu.handle("IpcOpenMemHandle", handle, 0) for _ in range(2)]
    assert pointers[0] == pointers[1]
    assert cpu.get(pointers[0], 64) == b"\7" * 64
    out = ctypes.byref(ctypes.c_void_p())
    assert cpu.error("IpcOpenMemHandle", out, handle, 0) == "ErrorMapBufferObjectFailed"
    cpu("IpcCloseMemHandle", pointers[0])
    assert cpu.get(pointers[0], 64) == b"\7" * 64  # it was opened twice
    cpu("IpcCloseMemHandle", pointers[0])
    assert cpu.error("Memset", pointers[0], 0, 64) == "ErrorInvalidValue"
    assert _left()[2] == before[2]  # nothing of it is mapped


def test_handles_of_freed_memory(cpu: Runtime) -> None:
    a = cpu.handle("Malloc", 64 << 20)  # has a file of its own
    handle = handle_of(cpu, a)
    cpu("Free", a)
    out = ctypes.byref(ctypes.c_void_p())
    assert cpu.error("IpcOpenMemHandle", out, handle, 0) == "ErrorMapBufferObjectFailed"


def test_handles_that_are_none(cpu: Runtime) -> None:
    handle = structure("IpcMemHandle_t")
    out, a = ctypes.byref(ctypes.c_void_p()), cpu.handle("Malloc", 100)
    good = bytes(handle_of(cpu, a))
    wrong = "ErrorInvalidValue"
    assert cpu.error("IpcOpenMemHandle", out, handle(), 0) == wrong
    assert cpu.error("IpcOpenMemHandle", out, handle.from_buffer_copy(good), 2) == wrong
    for at in (8, 12, 16, 24, 32, 40, 48):  # process, file, start, inode, offset, bytes, mapped
        bad = bytearray(good)
        bad[at : at + 4] = b"\xff\xff\xff\x7f"
        error = cpu.error("IpcOpenMemHandle", out, handle.from_buffer_copy(bad), 0)
        assert error in (wrong, "ErrorMapBufferObjectFailed"), at
    here = ctypes.byref(handle())
    assert cpu.error("IpcGetMemHandle", here, cpu.handle("HostAlloc", 10, 0)) == wrong
    assert cpu.error("IpcGetMemHandle", here, a + 100) == wrong
    assert cpu.error("IpcCloseMemHandle", a) == wrong


def _left() -> tuple[set[str], list[str], int, int]:
    """Returns threads, open files, mapped memory files and mappings of this process."""
    tasks = set(os.listdir("/proc/self/task"))
    files = sorted(
        name for fd in os.listdir("/proc/self/fd") if (name := _link(f"/proc/self/fd/{fd}"))
    )
    maps = Path("/proc/self/maps").read_text()
    return tasks, files, maps.count("memfd:hcccrt"), len(maps.splitlines())


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # that of the listing itself


def _use_everything(cpu: Runtime, device: int) -> None:
    cpu("SetDevice", device)
    for size in (1, 1000, 100_000, 9 << 20, 40 << 20):
        cpu("MemsetAsync", cpu.handle("Malloc", size), 1, size, None)
    cpu.handle("MallocManaged", 1 << 20, 1)
    cpu.host(10_000)
    streams = [cpu.stream() for _ in range(5)]
    for stream in streams:
        cpu.launch_host(stream, lambda: None)
        event = cpu.event()
        cpu("EventRecord", event, stream)
        cpu("StreamWaitEvent", None, event, 0)
    cpu("StreamBeginCapture", streams[0], VALUES["StreamCaptureModeRelaxed"])
    cpu.launch_host(streams[0], lambda: None)
    out = ctypes.c_void_p()
    cpu("StreamEndCapture", streams[0], ctypes.byref(out))
    cpu.handle("GraphInstantiate", out, 0)
    cpu("StreamBeginCapture", streams[1], VALUES["StreamCaptureModeRelaxed"])  # never ended
    cpu("StreamDestroy", streams[2])


def test_a_reset_leaves_nothing_behind(cpu: Runtime) -> None:
    def reset() -> None:
        for device in (1, 0):
            cpu("SetDevice", device)
            cpu("DeviceReset")

    reset()
    _use_everything(cpu, 0)
    reset()
    before = _left()
    for _ in range(3):
        _use_everything(cpu, 0)
        _use_everything(cpu, 1)
        assert len(_left()[0]) > len(before[0]) and _left()[2]
        reset()
    after = _left()
    assert after[:3] == before[:3]
    assert after[3] <= before[3] + 20  # the allocator of the process may keep some


def test_freeing_gives_memory_back(cpu: Runtime) -> None:
    before = _left()
    pointers = [cpu.handle("Malloc", 1 << 20) for _ in range(100)]
    for pointer in pointers:
        cpu("Memset", pointer, 1, 1 << 20)
    assert _left()[2] > 1
    for pointer in pointers:
        cpu("Free", pointer)
    assert _left()[1:3] == before[1:3]


def test_a_reset_drops_what_has_not_begun(cpu: Runtime) -> None:
    stream = cpu.stream()
    seen: list[int] = []
    started = cpu.block(stream)
    for i in range(10):
        cpu.launch_host(stream, partial(seen.append, i))
    threading.Timer(0.1, started.set).start()
    cpu("DeviceReset")
    assert seen == []
    assert cpu.error("StreamQuery", stream) == "ErrorInvalidResourceHandle"


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("way", ["streams", "graphs", "events"])
def test_no_thread_or_memory_for_what_is_given_back(cpu: Runtime, way: str) -> None:
    """A thousand times made and given back: as much memory as before, no thread more."""
    sizes = []
    for _ in range(3):
        for _ in range(300):
            stream = cpu.handle("StreamCreate")
            if way == "streams":
                cpu("MemsetAsync", cpu.handle("Malloc", 10), 0, 10, stream)
                cpu("StreamSynchronize", stream)
            elif way == "graphs":
                cpu("StreamBeginCapture", stream, VALUES["StreamCaptureModeRelaxed"])
                graph = ctypes.c_void_p()
                cpu("StreamEndCapture", stream, ctypes.byref(graph))
                cpu("GraphExecDestroy", cpu.handle("GraphInstantiate", graph, 0))
                cpu("GraphDestroy", graph)
            else:
                event = cpu.event()
                cpu("EventRecord", event, stream)
                cpu("EventDestroy", event)
            cpu("StreamDestroy", stream)
        sizes.append(_resident_bytes())
        assert len(os.listdir("/proc/self/task")) < 20
    assert sizes[2] - sizes[1] < 4 << 20


def _turns() -> list[tuple[str, str]]:
    """Lists each stream thread's (state, number of context switches)."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        text = (task / "status").read_text()
        facts = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        if facts["Name"] == "hcccrt-stream":
            turns = facts["voluntary_ctxt_switches"] + facts["nonvoluntary_ctxt_switches"]
            found.append((facts["State"][0], turns))
    return found


def test_who_waits_sleeps(cpu: Runtime) -> None:
    """A stream that waits for another, or for work, is not run at all."""
    one, two, idle, event = cpu.stream(), cpu.stream(), cpu.stream(), cpu.event()
    cpu.launch_host(idle, lambda: None)
    cpu("StreamSynchronize", idle)
    gate = cpu.block(one)
    cpu("EventRecord", event, one)
    cpu("StreamWaitEvent", two, event, 0)
    time.sleep(0.1)
    before = _turns()
    time.sleep(0.1)
    assert len(before) == 3 and _turns() == before
    assert {state for state, _ in before} == {"S"}
    gate.set()
    cpu("StreamSynchronize", two)
