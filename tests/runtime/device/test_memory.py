"""Memory: allocation, copies, sets, registration, and the attributes of pointers."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.runtime.device.device_layer import DeviceLibrary, structure, use
from tests.runtime.device.harness import D2D, D2H, DEFAULT, H2D, H2H, VALUES, Runtime

TEXT = bytes(range(256)) * 5


def attributes(rt: Runtime, pointer: Any) -> tuple[str, Any]:
    """Returns (name of the type, all attributes) of a pointer."""
    out = structure("PointerAttributes")()
    rt("PointerGetAttributes", ctypes.byref(out), pointer)
    return ("Unregistered", "Host", "Device", "Managed")[out.type], out


def test_memory_holds_what_is_copied_there(rt: Runtime) -> None:
    a, b = rt.put(TEXT), rt.handle("Malloc", len(TEXT))
    assert a % 256 == b % 256 == 0
    rt("Memcpy", b, a, len(TEXT), D2D)
    assert rt.get(b, len(TEXT)) == TEXT
    rt("Free", a)
    rt("Free", b)
    rt("Free", None)


@pytest.mark.parametrize("kind", [H2D, DEFAULT])
@pytest.mark.parametrize("call", ["Memcpy", "MemcpyAsync"])
def test_copies_of_part_of_an_allocation(rt: Runtime, kind: int, call: str) -> None:
    a = rt.put(b"." * 100)
    stream = (0,) if call == "MemcpyAsync" else ()
    rt(call, a + 10, b"hello", 5, kind, *stream)
    rt("DeviceSynchronize")
    assert rt.get(a, 20) == b"..........hello....."
    rt("Free", a)


def test_copies_within_the_host(rt: Runtime) -> None:
    out = (ctypes.c_char * 5)()
    rt("Memcpy", out, b"hello", 5, H2H)
    assert out.raw == b"hello"


def test_set(rt: Runtime) -> None:
    a, stream = rt.put(b"." * 10), rt.stream()
    rt("Memset", a, 0x141, 4)  # the low byte
    rt("DeviceSynchronize")
    rt("MemsetAsync", a + 6, 0x42, 3, stream)
    rt("StreamSynchronize", stream)
    assert rt.get(a, 10) == b"AAAA..BBB."


def test_asynchronous_copies_of_page_locked_memory(rt: Runtime) -> None:
    up, down, stream = rt.host(len(TEXT)), rt.host(len(TEXT)), rt.stream()
    up.raw = TEXT
    a = rt.handle("Malloc", len(TEXT))
    gate = rt.block(stream)
    rt("MemcpyAsync", a, up, len(TEXT), H2D, stream)
    rt("MemcpyAsync", down, a, len(TEXT), D2H, stream)
    assert rt.error("StreamQuery", stream) == "ErrorNotReady"
    gate.set()
    rt("StreamSynchronize", stream)
    assert down.raw == TEXT
    rt("FreeHost", ctypes.addressof(up))
    rt("HostFree", ctypes.addressof(down))


@pytest.mark.parametrize("size", [16, 1 << 20])
def test_pageable_memory_may_be_changed_when_the_call_returns(rt: Runtime, size: int) -> None:
    source, stream = (ctypes.c_char * size).from_buffer_copy(b"x" * size), rt.stream()
    a = rt.handle("Malloc", size)
    rt("MemcpyAsync", a, source, size, H2D, stream)
    ctypes.memset(source, 0, size)
    out = (ctypes.c_char * size)()
    rt("MemcpyAsync", out, a, size, D2H, stream)
    assert out.raw == b"x" * size


@pytest.mark.parametrize(
    ("call", "flags"),
    [
        ("MallocHost", ()),
        ("HostAlloc", (VALUES["HostAllocMapped"] | VALUES["HostAllocPortable"],)),
        ("HostMalloc", (VALUES["HostAllocDefault"],)),
    ],
)
@pytest.mark.parametrize("free", ["FreeHost", "HostFree"])
def test_host_memory(rt: Runtime, call: str, flags: tuple[int, ...], free: str) -> None:
    pointer = rt.handle(call, 1000, *flags)
    ctypes.memset(pointer, 7, 1000)
    assert attributes(rt, pointer)[0] == "Host"
    seen = rt.handle("HostGetDevicePointer", pointer, 0)
    a = rt.handle("Malloc", 1000)
    rt("Memcpy", a, seen, 1000, DEFAULT)
    assert rt.get(a, 1000) == b"\7" * 1000
    rt(free, pointer)
    assert attributes(rt, pointer)[0] == "Unregistered"


@pytest.mark.parametrize("flags", ["MemAttachGlobal", "MemAttachHost"])
def test_managed_memory(rt: Runtime, flags: str) -> None:
    pointer = rt.handle("MallocManaged", 100, VALUES[flags])
    kind, found = attributes(rt, pointer)
    assert kind == "Managed" and found.devicePointer == found.hostPointer == pointer
    ctypes.memset(pointer, 3, 100)
    assert rt.get(pointer, 100) == b"\3" * 100
    rt("Free", pointer)


@pytest.mark.parametrize("flags", ["ExtMallocDefault", "ExtMallocFinegrained", "ExtMallocUncached"])
def test_memory_of_a_kind(rt: Runtime, flags: str) -> None:
    pointer = rt.handle("ExtMallocWithFlags", 64, VALUES[flags])
    rt("Memset", pointer, 1, 64)
    assert rt.get(pointer, 64) == b"\1" * 64
    rt("Free", pointer)


def test_registered_memory(rt: Runtime) -> None:
    whole = (ctypes.c_char * 3 * 4096)()
    pointer = (ctypes.addressof(whole) + 4095) // 4096 * 4096
    assert attributes(rt, pointer)[0] == "Unregistered"
    rt("HostRegister", pointer, 4096, VALUES["HostRegisterMapped"])
    kind, found = attributes(rt, pointer)
    assert kind == "Host" and found.hostPointer == pointer
    assert rt.handle("HostGetDevicePointer", pointer, 0)
    again = rt.error("HostRegister", pointer, 4096, 0)
    assert again == "ErrorHostMemoryAlreadyRegistered"
    rt("HostUnregister", pointer)
    assert rt.error("HostUnregister", pointer) == "ErrorHostMemoryNotRegistered"


def test_pointers_into_device_memory(rt: Runtime) -> None:
    rt("SetDevice", 0)
    a = rt.handle("Malloc", 100)
    for pointer in (a, a + 99):
        kind, found = attributes(rt, pointer)
        assert (kind, found.device, found.devicePointer) == ("Device", 0, pointer)
    kind, found = attributes(rt, ctypes.addressof(ctypes.c_int()))
    assert (kind, found.device) == ("Unregistered", -1)


def test_device_pointers_have_no_address_on_the_host(cpu: Runtime) -> None:
    a = cpu.handle("Malloc", 100)
    assert attributes(cpu, a)[1].hostPointer is None
    assert attributes(cpu, a + 100)[0] == "Unregistered"


def test_memory_is_its_devices(cpu: Runtime) -> None:
    cpu("SetDevice", 1)
    a = cpu.handle("Malloc", 10)
    cpu("SetDevice", 0)
    assert attributes(cpu, a)[1].device == 1
    cpu("DeviceReset")
    assert attributes(cpu, a)[0] == "Device"  # that was the other device


def test_nothing(rt: Runtime) -> None:
    """No bytes are no memory, and copying none needs none."""
    assert rt.handle("Malloc", 0) == 0
    rt("Memcpy", None, None, 0, H2D)
    rt("MemcpyAsync", None, None, 0, H2D, None)


def test_too_much(rt: Runtime) -> None:
    out = ctypes.c_void_p()
    assert rt.error("Malloc", ctypes.byref(out), 1 << 60) == "ErrorMemoryAllocation"
    assert rt.error("GetLastError") == "ErrorMemoryAllocation"
    assert rt.error("GetLastError") == "Success"


def test_wrong_calls(cpu: Runtime) -> None:
    """Calls that would read or write outside memory, or in another's."""
    a, here = cpu.handle("Malloc", 100), (ctypes.c_char * 1000)()
    wrong = "ErrorInvalidValue"
    assert cpu.error("Memcpy", a, here, 101, H2D) == wrong  # past the end
    assert cpu.error("Memcpy", a + 1, here, 100, DEFAULT) == wrong
    assert cpu.error("Memcpy", here, here, 10, H2D) == wrong  # no device memory
    assert cpu.error("MemcpyAsync", here, here, 10, D2H, None) == wrong
    assert cpu.error("Memcpy", a, here, 10, 5) == "ErrorInvalidMemcpyDirection"
    assert cpu.error("Memset", here, 0, 10) == wrong
    assert cpu.error("MemsetAsync", a, 0, 101, None) == wrong
    assert cpu.error("Free", a + 1) == wrong
    assert cpu.error("FreeHost", a) == wrong
    assert cpu.error("HostFree", here) == wrong
    assert cpu.error("HostRegister", 4096, 10, 0) == wrong  # nothing is there
    assert cpu.error("HostGetDevicePointer", ctypes.byref(ctypes.c_void_p()), here, 0) == wrong
    assert cpu.error("Malloc", None, 10) == wrong
    out = ctypes.byref(ctypes.c_void_p())
    assert cpu.error("HostAlloc", out, 10, 8) == wrong
    assert cpu.error("MallocManaged", out, 10, 0) == wrong
    assert cpu.error("ExtMallocWithFlags", out, 10, 4) == wrong
    cpu("Free", a)
    assert cpu.error("Free", a) == wrong  # twice


def test_freeing_waits_for_work_on_the_device(cpu: Runtime) -> None:
    stream = cpu.handle("StreamCreate")
    a, b = cpu.put(b"." * 8), cpu.host(8)
    order: list[str] = []
    gate = cpu.block(stream)
    cpu("MemcpyAsync", b, a, 8, D2H, stream)
    cpu.launch_host(stream, lambda: order.append("work"))
    gate.set()
    cpu("Free", a)
    order.append("freed")
    assert order == ["work", "freed"] and b.raw == b"." * 8


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(1, 200_000), st.integers(0, 30))))
def test_allocations_never_overlap(
    layer: DeviceLibrary, steps: list[tuple[bool, int, int]]
) -> None:
    """Each allocation holds the bytes last written to it, and all are freed at the end."""
    use("cpu")
    rt = Runtime(layer, "cpu")
    held: list[tuple[int, int, int]] = []
    for i, (frees, size, which) in enumerate(steps):
        if frees and held:
            pointer, _, _ = held.pop(which % len(held))
            rt("Free", pointer)
        else:
            pointer = rt.handle("Malloc", size)
            assert pointer % 512 == 0
            rt("Memset", pointer, i % 256, size)
            held.append((pointer, size, i % 256))
    for pointer, size, value in held:
        assert rt.get(pointer, size) == bytes([value]) * size
        rt("Free", pointer)
    use(None)
