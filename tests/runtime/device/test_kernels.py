"""Kernels: a grid of blocks in a stream, with arguments as they were at the launch."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from hccc.runtime.device.device_layer import structure
from tests.runtime.device.harness import VALUES, CpuKernel, Runtime, cpu_kernel


def test_a_kernel_runs_in_its_stream(rt: Runtime, fill: Any) -> None:
    stream, a = rt.stream(), rt.put(bytes(400))
    value = ctypes.c_int(5)
    gate = rt.block(stream)
    rt.launch(fill, stream, ctypes.c_void_p(a), ctypes.c_int(100), value)
    value.value = 6  # the launch has a copy
    gate.set()
    rt("StreamSynchronize", stream)
    assert rt.get(a, 400) == b"\5\0\0\0" * 100


def test_a_kernel_between_events(rt: Runtime, fill: Any) -> None:
    stream, a = rt.stream(), rt.put(bytes(4))
    start, stop = rt.handle("EventCreate"), rt.handle("EventCreate")
    arguments = rt.launch_arguments(
        fill, stream, ctypes.c_void_p(a), ctypes.c_int(1), ctypes.c_int(9)
    )
    rt("ExtLaunchKernel", *arguments, start, stop, 0)
    rt("EventSynchronize", stop)
    out = ctypes.c_float(-1)
    rt("EventElapsedTime", ctypes.byref(out), start, stop)
    assert out.value >= 0 and rt.get(a, 4) == b"\x09\0\0\0"
    rt("ExtLaunchKernel", *arguments, None, None, 0)
    rt("StreamSynchronize", stream)


def test_what_a_kernel_is(rt: Runtime, fill: Any) -> None:
    out = structure("FuncAttributes")()
    of = ctypes.addressof(fill) if isinstance(fill, ctypes.Structure) else fill
    which = VALUES["FuncAttributeMaxDynamicSharedMemorySize"]
    rt("FuncSetAttribute", of, which, 4096)
    rt("FuncGetAttributes", ctypes.byref(out), of)
    assert out.maxThreadsPerBlock == 1024 and out.maxDynamicSharedSizeBytes == 4096
    assert out.sharedSizeBytes == 0


def test_every_block_of_a_grid_once(cpu: Runtime) -> None:
    seen: list[tuple[int, ...]] = []
    shapes = set()

    def fn(block: Any, _: Any) -> int:
        b = block.contents
        seen.append(tuple(b.block_idx))
        shapes.add((tuple(b.grid_dim), tuple(b.block_dim)))
        return 0

    kernel = cpu_kernel(fn)
    cpu.launch(kernel, None, grid=(3, 2, 2), block=(8, 2, 1))
    cpu("DeviceSynchronize")
    assert seen == [(x, y, z) for z in range(2) for y in range(2) for x in range(3)]
    assert shapes == {((3, 2, 2), (8, 2, 1))}


def test_shared_memory_is_zero_when_a_block_begins(cpu: Runtime) -> None:
    seen: list[tuple[int, int, bytes]] = []

    def fn(block: Any, _: Any) -> int:
        b = block.contents
        memory = (ctypes.c_char * b.shared_bytes).from_address(b.shared)
        seen.append((b.shared % 64, b.shared_bytes, memory.raw))
        ctypes.memset(b.shared, 1, b.shared_bytes)
        return 0

    cpu.launch(cpu_kernel(fn, shared=10), None, grid=(2, 1, 1), shared=6)
    cpu("DeviceSynchronize")
    assert seen == [(0, 16, bytes(16))] * 2


def test_arguments_are_aligned_and_whole(cpu: Runtime) -> None:
    seen: list[Any] = []

    def fn(_: Any, arguments: Any) -> int:
        seen.append(ctypes.c_byte.from_address(arguments[0]).value)
        seen.append(ctypes.c_double.from_address(arguments[1]).value)
        seen.append(ctypes.string_at(arguments[2], 100))
        seen.append([arguments[i] % 16 for i in range(3)])
        return 0

    text = ctypes.create_string_buffer(b"x" * 99)
    cpu.launch(cpu_kernel(fn, 1, 8, 100), None, ctypes.c_byte(-3), ctypes.c_double(2.5), text)
    cpu("DeviceSynchronize")
    assert seen == [-3, 2.5, text.raw, [0, 0, 0]]


def test_a_kernel_that_fails_loses_the_device(cpu: Runtime) -> None:
    """Every call says so until the device is reset; the other device goes on."""
    stream, later, queued = cpu.handle("StreamCreate"), [], threading.Event()
    kernel = cpu_kernel(lambda *_: int(queued.wait(60)))
    cpu.launch(kernel, stream)
    cpu("LaunchHostFunc", stream, cpu.host_fn(lambda: later.append(1)), None)
    queued.set()
    lost = "ErrorLaunchFailure"
    assert cpu.error("StreamSynchronize", stream) == lost
    for _ in range(2):
        assert cpu.error("GetLastError") == lost  # it stays
    assert cpu.error("PeekAtLastError") == lost
    assert cpu.error("Malloc", ctypes.byref(ctypes.c_void_p()), 10) == lost
    assert cpu.error("StreamQuery", stream) == lost
    assert cpu.error("DeviceSynchronize") == lost
    assert later == []
    cpu("SetDevice", 1)
    cpu.handle("Malloc", 10)
    cpu("SetDevice", 0)
    cpu("DeviceReset")
    cpu("DeviceSynchronize")
    assert cpu.error("StreamQuery", stream) == "ErrorInvalidResourceHandle"
    cpu.error("GetLastError")
    assert cpu.error("GetLastError") == "Success"


def test_wrong_launches(cpu: Runtime) -> None:
    kernel = cpu_kernel(lambda *_: 0, 4, threads=64)
    good = cpu.launch_arguments(kernel, None, ctypes.c_int(1))

    def launched(**changed: Any) -> str:
        names = ("function", "grid", "block", "arguments", "shared", "stream")
        given = dict(zip(names, good, strict=True)) | changed
        return cpu.error("LaunchKernel", *given.values())

    dim = structure("Dim3")
    assert launched() == "Success"
    assert launched(block=dim(64, 1, 1)) == "Success"
    for wrong in (dim(65, 1, 1), dim(8, 8, 2), dim(0, 1, 1), dim(1 << 31, 1 << 31, 4)):
        assert launched(block=wrong) == "ErrorInvalidConfiguration"
    assert launched(grid=dim(1, 0, 1)) == "ErrorInvalidConfiguration"
    assert launched(arguments=None) == "ErrorInvalidValue"
    assert launched(shared=(1 << 20) + 1) == "ErrorInvalidValue"
    assert launched(function=None) == "ErrorInvalidDeviceFunction"
    none = CpuKernel()
    assert launched(function=ctypes.addressof(none)) == "ErrorInvalidDeviceFunction"
    which = VALUES["FuncAttributeMaxDynamicSharedMemorySize"]
    cpu("FuncSetAttribute", good[0], which, 8)
    assert launched(shared=8) == "Success"
    assert launched(shared=9) == "ErrorInvalidValue"
    cpu("SetDevice", 1)  # a stream of another device
    other = cpu.stream()
    cpu("SetDevice", 0)
    assert launched(stream=other) == "ErrorInvalidResourceHandle"
    cpu("DeviceSynchronize")
