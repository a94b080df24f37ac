"""Devices, platforms, and errors that a thread keeps."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
from typing import Any

import pytest

from hccc.base.diagnostics import UserError
from hccc.runtime.device import device_layer as module
from hccc.runtime.device.description import description
from hccc.runtime.device.device_layer import (
    DeviceLibrary,
    available,
    current,
    message,
    structure,
    use,
)
from tests.runtime.device.harness import VALUES, Runtime


def run(code: str, **environment: str) -> str:
    """Returns the output of a process of its own, with the device layer imported."""
    head = "import ctypes, os\nfrom hccc.runtime.device.device_layer import *\nl = library()\n"
    plain = {k: v for k, v in os.environ.items() if k not in ("HCCC_PLATFORM", "HCCC_CPU_DEVICES")}
    done = subprocess.run(
        [sys.executable, "-c", head + code],
        env=plain | environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_each_thread_has_its_device(rt: Runtime) -> None:
    n = rt.number("GetDeviceCount")
    assert n >= 1
    rt("SetDevice", n - 1)
    seen: list[int] = []

    def work() -> None:
        use(rt.platform)
        seen.append(rt.number("GetDevice"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert (rt.number("GetDevice"), seen) == (n - 1, [0])
    assert rt.error("SetDevice", n) == "ErrorInvalidDevice"
    assert rt.error("SetDevice", -1) == "ErrorInvalidDevice"
    assert rt.number("GetDevice") == n - 1


def test_what_a_device_is(rt: Runtime) -> None:
    out = structure("DeviceProp")()
    rt("GetDeviceProperties", ctypes.byref(out), 0)
    assert out.name and out.arch and out.totalGlobalMem > 1 << 28
    assert out.maxThreadsPerBlock == 1024

    def attribute(name: str) -> int:
        return rt.number("DeviceGetAttribute", VALUES[f"DevAttr{name}"], 0)

    assert out.multiProcessorCount == attribute("MultiProcessorCount") >= 1
    assert out.warpSize == attribute("WarpSize") >= 1
    place = (out.pciDomainID, out.pciBusID, out.pciDeviceID)
    assert place == tuple(attribute(f"Pci{part}Id") for part in ("Domain", "Bus", "Device"))
    assert rt.error("GetDeviceProperties", ctypes.byref(out), 99) == "ErrorInvalidDevice"


def test_every_attribute_is_answered_or_not_supported(rt: Runtime) -> None:
    out = ctypes.c_int()
    for row in description().enum("DeviceAttr").rows:
        error = rt.error("DeviceGetAttribute", ctypes.byref(out), row.value, 0)
        has = rt.platform == "cpu" or rt.platform in row.natives
        assert error == ("Success" if has else "ErrorNotSupported"), row.name
    assert rt.error("DeviceGetAttribute", ctypes.byref(out), 123456, 0) == "ErrorInvalidValue"


def test_pci_addresses(rt: Runtime) -> None:
    for device in range(rt.number("GetDeviceCount")):
        text = ctypes.create_string_buffer(32)
        rt("DeviceGetPCIBusId", text, 32, device)
        assert re.fullmatch(rb"[0-9a-fA-F]{4,}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.0", text.value)
        assert rt.number("DeviceGetByPCIBusId", text.value) == device
    out = ctypes.byref(ctypes.c_int())
    for wrong in (b"", b"nonsense", b"0000:zz:00.0"):
        assert rt.error("DeviceGetByPCIBusId", out, wrong) != "Success"


def test_pci_addresses_of_the_cpu(cpu: Runtime) -> None:
    out, text = ctypes.byref(ctypes.c_int()), ctypes.create_string_buffer(32)
    for absent in (b"ffff:00:02.0", b"ffff:01:00.0", b"0000:00:00.0", b"ffff:00:00.1"):
        assert cpu.error("DeviceGetByPCIBusId", out, absent) == "ErrorInvalidDevice"
    assert cpu.error("DeviceGetByPCIBusId", out, b"ffff:00:00.0x") == "ErrorInvalidValue"
    assert cpu.error("DeviceGetPCIBusId", text, 12, 0) == "ErrorInvalidValue"  # one too short
    cpu("DeviceGetPCIBusId", text, 13, 1)
    assert text.value == b"ffff:00:01.0"


def test_peers(cpu: Runtime) -> None:
    assert cpu.number("DeviceCanAccessPeer", 0, 1) == 1
    assert cpu.number("DeviceCanAccessPeer", 1, 1) == 0
    cpu("DeviceEnablePeerAccess", 1, 0)
    again = cpu.error("DeviceEnablePeerAccess", 1, 0)
    assert again == "ErrorPeerAccessAlreadyEnabled"
    assert cpu.error("DeviceEnablePeerAccess", 0, 0) == "ErrorInvalidDevice"
    assert cpu.error("DeviceCanAccessPeer", ctypes.byref(ctypes.c_int()), 0, 2) == (
        "ErrorInvalidDevice"
    )
    a = cpu.put(b"from the other")
    cpu("SetDevice", 1)
    b = cpu.handle("Malloc", 14)
    cpu("Memcpy", b, a, 14, 3)
    assert cpu.get(b, 14) == b"from the other"


def test_what_joins_devices(cpu: Runtime) -> None:
    link, hops = ctypes.c_uint(), ctypes.c_uint()
    arguments = (ctypes.byref(link), ctypes.byref(hops))
    cpu("ExtGetLinkTypeAndHopCount", 0, 1, *arguments)
    assert (link.value, hops.value) == (VALUES["LinkTypeMemory"], 1)
    assert cpu.error("ExtGetLinkTypeAndHopCount", 0, 0, *arguments) == "ErrorInvalidDevice"


def test_the_stack_of_later_threads(cpu: Runtime) -> None:
    import resource

    cpu("DeviceSetLimit", VALUES["LimitStackSize"], 64 << 20)
    seen: list[int] = []

    def size() -> None:
        pthread = ctypes.CDLL(None)
        attributes = (ctypes.c_char * 64)()
        pthread.pthread_self.restype = ctypes.c_void_p
        pthread.pthread_getattr_np(ctypes.c_void_p(pthread.pthread_self()), attributes)
        out = ctypes.c_size_t()
        pthread.pthread_attr_getstacksize(attributes, ctypes.byref(out))
        seen.append(out.value)

    cpu.launch_host(cpu.stream(), size)
    cpu("DeviceSynchronize")
    assert seen == [64 << 20] and seen[0] != resource.getrlimit(resource.RLIMIT_STACK)[0]
    other = cpu.error("DeviceSetLimit", VALUES["LimitPrintfFifoSize"], 1)
    assert other == "ErrorUnsupportedLimit"


def test_errors_are_kept_until_they_are_asked_for(rt: Runtime) -> None:
    assert rt.error("GetLastError") == "Success"
    assert rt.error("SetDevice", 99) == "ErrorInvalidDevice"
    rt.number("GetDevice")  # a success forgets nothing
    seen: list[str] = []

    def work() -> None:
        use(rt.platform)
        seen.append(rt.error("GetLastError"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["Success"]  # it is this thread's
    assert rt.error("PeekAtLastError") == rt.error("PeekAtLastError") == "ErrorInvalidDevice"
    assert rt.error("GetLastError") == "ErrorInvalidDevice"
    assert rt.error("GetLastError") == "Success"


def test_not_ready_is_no_error(rt: Runtime) -> None:
    stream = rt.stream()
    gate = rt.block(stream)
    assert rt.error("StreamQuery", stream) == "ErrorNotReady"
    gate.set()
    rt("StreamSynchronize", stream)
    assert rt.error("GetLastError") == "Success"


def test_every_error_says_what_it_means(layer: DeviceLibrary) -> None:
    rows = description().enum("Error").rows
    texts = [layer.string_of(row.value) for row in rows]
    assert texts == [row.doc for row in rows] and len(set(texts)) == len(texts)
    assert layer.string_of(-5) == layer.string_of(12345) == "not an error of the device layer"


def test_a_failed_call_is_an_error_for_people(cpu: Runtime) -> None:
    with pytest.raises(
        UserError, match=r"E472.*hcccrtSetDevice failed: there is no device .*\(101\)"
    ):
        cpu("SetDevice", 99)


def test_platforms(cpu: Runtime) -> None:
    assert "cpu" in available() and current() == "cpu"
    mask, number = ctypes.c_uint(), ctypes.c_int()
    cpu("GetAvailablePlatforms", ctypes.byref(mask))
    cpu("GetPlatform", ctypes.byref(number))
    assert mask.value >> VALUES["PlatformCPU"] & 1 and number.value == VALUES["PlatformCPU"]
    assert re.search(r"2 devices", message("cpu"))
    text = ctypes.create_string_buffer(b"?" * 20)
    cpu("GetPlatformMessage", VALUES["PlatformCPU"], text, 4)
    assert len(text.value) == 3
    for wrong in (0, 4, -1):
        assert cpu.error("SetPlatform", wrong) == "ErrorInvalidValue"
    assert current() == "cpu"


def test_an_unknown_platform() -> None:
    with pytest.raises(UserError, match=r"E470.*`tpu` is no platform"):
        use("tpu")


@pytest.mark.parametrize("platform", ["cuda", "hip"])
def test_a_platform_that_is_not_here(cpu: Runtime, platform: str) -> None:
    if platform in available():
        pytest.skip("it is here")
    with pytest.raises(UserError, match=rf"(?s)E470.*there is no {platform} here: .+cpu"):
        use(platform)
    assert current() == "cpu"


def test_each_thread_has_its_platform(cpu: Runtime) -> None:
    """A thread that chooses none has the process's, whatever others chose."""
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(current()))
    thread.start()
    thread.join()
    use(None)
    assert seen == [current()]


def test_the_environment_names_the_platform() -> None:
    code = "print(current(), '|', message())"
    assert run(code, HCCC_PLATFORM="CPU") == "cpu | HCCC_PLATFORM is CPU"
    absent = "-".join(sorted({"cuda", "hip"} - set(available()))).split("-")[0]
    wrong = """
try:
    current()
except Exception as e:
    print(e)
print(l.try_call("Malloc", ctypes.byref(ctypes.c_void_p()), 1), l.string_of(9001))
l.call("SetPlatform", 1)
l.call("Malloc", ctypes.byref(ctypes.c_void_p()), 1)
"""
    said = run(wrong, HCCC_PLATFORM="tpu")
    assert "E470" in said and "HCCC_PLATFORM is `tpu`" in said and "9001" in said
    if absent:
        assert f"HCCC_PLATFORM is {absent}" in run(wrong, HCCC_PLATFORM=absent)


@pytest.mark.parametrize("count", ["0", "65", "many", "1x"])
def test_a_wrong_number_of_devices(count: str) -> None:
    code = "l.try_call('SetPlatform', 1) == 9001 and print(message('cpu'))"
    assert f"HCCC_CPU_DEVICES is `{count}`" in run(code, HCCC_CPU_DEVICES=count)


def test_a_forked_process_is_told() -> None:
    code = """
use("cpu")
p = ctypes.c_void_p()
l.call("Malloc", ctypes.byref(p), 1)
if (child := os.fork()) == 0:
    os._exit(l.try_call("Malloc", ctypes.byref(p), 1))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(code) == str(VALUES["ErrorInitializationError"])


def test_modules_say_what_is_here() -> None:
    rows = [row for row in description().enum("Platform").rows if row.value]
    names = [row.name.removeprefix("Platform").lower() for row in rows]
    assert names == list(module.PLATFORMS)
