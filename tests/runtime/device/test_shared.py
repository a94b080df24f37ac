"""Memory that is shared by the kind of handle that is asked for."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from hccc.runtime.device.device_layer import structure
from tests.runtime.device.harness import VALUES, Runtime

KINDS = {name: VALUES[f"Handle{name}"] for name in ("Legacy", "Descriptor", "Fabric")}
BYTES = 5000

# Reads a handle, opens it, and writes into its memory.
OTHER = """
import ctypes, sys
from hccc.runtime.device.device_layer import library, structure, use
platform, kind, descriptor, bytes_, text = sys.argv[1:]
l = library()
use(platform)
handle = structure("IpcMemHandle_t").from_buffer_copy(bytes.fromhex(text))
pointer, words = ctypes.c_void_p(), (int(descriptor), int(bytes_), int(kind))
l.call("ExtOpenSharedHandle", ctypes.byref(pointer), ctypes.byref(handle), *words)
seen = (ctypes.c_char * 16)()
l.call("Memcpy", seen, pointer, 16, 2)
l.call("Memcpy", pointer.value + words[1] - 16, seen, 16, 1)
l.call("DeviceSynchronize")
l.call("ExtFreeShared", pointer)
print(seen.raw.hex(), l.try_call("ExtFreeShared", pointer) != 0)
"""


def kinds_of(rt: Runtime) -> int:
    """Returns the bits of the first device's kinds of handles."""
    found = ctypes.c_uint()
    rt("ExtGetHandleKinds", ctypes.byref(found), 0)
    return found.value


@pytest.mark.parametrize("kind", KINDS)
def test_another_process_maps_it(rt: Runtime, kind: str) -> None:
    if not kinds_of(rt) & KINDS[kind]:
        pytest.skip(f"no such handles on {rt.platform}")
    pointer, size = ctypes.c_void_p(), ctypes.c_size_t(BYTES)
    rt("ExtMallocShared", ctypes.byref(pointer), ctypes.byref(size), KINDS[kind])
    assert size.value >= BYTES and pointer.value
    rt("Memcpy", pointer, b"sixteen letters.", 16, VALUES["MemcpyHostToDevice"])
    handle, descriptor = structure("IpcMemHandle_t")(), ctypes.c_int()
    rt("ExtGetSharedHandle", ctypes.byref(handle), ctypes.byref(descriptor), pointer)
    assert (descriptor.value >= 0) == (kind == "Descriptor")
    words = [rt.platform, KINDS[kind], descriptor.value, size.value, bytes(handle).hex()]
    passed = [descriptor.value] if descriptor.value >= 0 else []
    command = [sys.executable, "-c", OTHER, *map(str, words)]
    done = subprocess.run(command, pass_fds=passed, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [b"sixteen letters.".hex(), "True"], done.stderr
    for one in passed:
        os.close(one)
    seen = (ctypes.c_char * 16)()
    rt("Memcpy", seen, pointer.value + size.value - 16, 16, VALUES["MemcpyDeviceToHost"])
    assert seen.raw == b"sixteen letters."
    rt("ExtFreeShared", pointer)
    assert rt.error("ExtFreeShared", pointer) != "Success"


def test_what_is_refused(cpu: Runtime) -> None:
    pointer, size = ctypes.c_void_p(), ctypes.c_size_t(BYTES)
    assert kinds_of(cpu) == KINDS["Legacy"] | KINDS["Descriptor"]
    out, many = ctypes.byref(pointer), ctypes.byref(size)
    assert cpu.error("ExtMallocShared", out, many, KINDS["Fabric"]) == "ErrorNotSupported"
    assert cpu.error("ExtMallocShared", out, many, 3) == "ErrorInvalidValue"
    assert cpu.error("ExtGetHandleKinds", many, 99) == "ErrorInvalidDevice"
    handle, descriptor = structure("IpcMemHandle_t")(), ctypes.c_int()
    plain = ctypes.c_void_p()
    cpu("Malloc", ctypes.byref(plain), BYTES)
    assert (
        cpu.error("ExtGetSharedHandle", ctypes.byref(handle), ctypes.byref(descriptor), plain)
        == "ErrorInvalidValue"
    )
    assert cpu.error("ExtFreeShared", plain) == "ErrorInvalidValue"
    with open(os.devnull, "rb") as file:
        words = (ctypes.byref(handle), file.fileno(), BYTES, KINDS["Descriptor"])
        assert cpu.error("ExtOpenSharedHandle", out, *words) == "ErrorMapBufferObjectFailed"


def test_memory_outlives_its_owner(cpu: Runtime) -> None:
    """A descriptor keeps it."""
    pointer, size = ctypes.c_void_p(), ctypes.c_size_t(BYTES)
    cpu("ExtMallocShared", ctypes.byref(pointer), ctypes.byref(size), KINDS["Descriptor"])
    ctypes.memmove(pointer.value or 0, b"still", 5)
    handle, descriptor = structure("IpcMemHandle_t")(), ctypes.c_int()
    cpu("ExtGetSharedHandle", ctypes.byref(handle), ctypes.byref(descriptor), pointer)
    cpu("ExtFreeShared", pointer)
    words = (ctypes.byref(handle), descriptor, size, KINDS["Descriptor"])
    cpu("ExtOpenSharedHandle", ctypes.byref(pointer), *words)
    os.close(descriptor.value)
    assert ctypes.string_at(pointer.value or 0, 5) == b"still"
    cpu("ExtFreeShared", pointer)
