"""CUDA and HIP: which functions are called with which values, as fake libraries write it down."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hccc.base.building.build import build_pieces
from hccc.runtime.device.description import DeviceCall, Parameter, description
from hccc.runtime.device.device_layer import DEVICE, LINK, PLATFORMS, DeviceLibrary, structure
from tests.runtime.device.harness import VALUES

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
HERE = Path(__file__).parent
OWN = (
    "GetDeviceCount",
    "RuntimeGetVersion",
    "GetErrorString",
    "DeviceGetAttribute",
    "PointerGetAttributes",
)
PROPERTIES = (
    'int {name}(char *out, int device) {{ note("{name}", {{device}}, {{}});'
    " return properties(out, {memory}, {arch}); }}"
)
# Platform and version → (functions with bodies, functions that are not there)
VARIANTS: dict[tuple[str, int], tuple[dict[str, str], set[str]]] = {
    ("cuda", 13000): (
        {
            "cudaGetDeviceProperties": PROPERTIES.format(
                name="cudaGetDeviceProperties", memory=288, arch=0
            )
        },
        {"cudaGetDeviceProperties_v2", "cudaStreamGetCaptureInfo_v2"},
    ),
    ("cuda", 12040): (
        {
            "cudaGetDeviceProperties_v2": PROPERTIES.format(
                name="cudaGetDeviceProperties_v2", memory=288, arch=0
            )
        },
        set(),
    ),
    ("hip", 60300000): (
        {
            "hipGetDevicePropertiesR0600": PROPERTIES.format(
                name="hipGetDevicePropertiesR0600", memory=288, arch=1160
            )
        },
        set(),
    ),
    ("hip", 50221153): (
        {
            "hipGetDeviceProperties": PROPERTIES.format(
                name="hipGetDeviceProperties", memory=256, arch=396
            )
        },
        {"hipGetDevicePropertiesR0600", "hipLaunchHostFunc", "hipDeviceSetLimit"},
    ),
}
NEWEST = [("cuda", 13000), ("hip", 60300000)]


@dataclass
class Fake:
    """A copy of the device layer over a runtime that records its calls."""

    platform: str
    layer: DeviceLibrary
    runtime: Any

    def written(self) -> list[list[Any]]:
        """Returns [function, words...] of each call since the last time."""
        self.runtime.fake_written.restype = ctypes.c_char_p
        lines = [line.split() for line in self.runtime.fake_written().decode().splitlines()]
        self.runtime.fake_clear()
        return [[name, *map(int, words)] for name, *words in lines]

    def error(self, name: str, *arguments: Any) -> str:
        """Returns the name of a call's result, or its number where it has none."""
        found = self.layer.try_call(name, *arguments)
        return next(
            (r.name for r in description().enum("Error").rows if r.value == found), str(found)
        )


Make = Callable[..., Fake]


def _symbols(platform: str) -> list[str]:
    every = [s for call in description().calls for s in call.bindings[platform].symbols]
    return list(dict.fromkeys(every))


def build(folder: Path, platform: str, version: int) -> Path:
    """Builds the fake runtime that records its calls."""
    bodies, absent = VARIANTS[platform, version]
    prefix = description().platforms[platform].prefix
    plain = [
        s
        for s in _symbols(platform)
        if s not in absent | set(bodies) and s.removeprefix(prefix) not in OWN
    ]
    made = folder / f"{platform}-{version}.so"
    defines = [
        f"-DPREFIX={prefix}",
        f"-DVERSION={version}",
        f"-DEXTRA={' '.join(bodies.values())}",
        "-DSYMBOLS=" + " ".join(f"X({s})" for s in plain),
        f"-DPOINTER_TYPE={1 if version == 50221153 else 2}",
    ]
    command = ["g++", "-std=c++17", "-O0", "-shared", "-fPIC", *defines]
    subprocess.run([*command, HERE / "fake_runtime.cpp", "-o", made], check=True, timeout=100)
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Path]:
    """Builds all fake runtimes, once."""
    folder = tmp_path_factory.mktemp("fake")
    return {which: build(folder, *which) for which in VARIANTS}


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HCCC_CUDA_LIBRARY", "HCCC_HIP_LIBRARY"):
            patch.setenv(name, "/nowhere/at/all.so")
        patch.delenv("HCCC_PLATFORM", raising=False)
        for name, value in values.items():
            patch.setenv(name, value)
        yield


def copy_of_the_layer(folder: Path, **environment: str) -> DeviceLibrary:
    """Loads a device layer with globals of its own that looks for platforms in this environment."""
    name = f"copy-{len(list(folder.iterdir()))}.so"  # one that is loaded must not be written over
    path = shutil.copy(build_pieces([DEVICE], LINK), folder / name)
    with _environment(**environment):
        layer = DeviceLibrary(Path(path))
        layer.call("GetAvailablePlatforms", ctypes.byref(ctypes.c_uint()))
        layer.call("SetPlatformAuto")
    return layer


def _opened(path: Path) -> Any:
    """Opens a fake runtime that succeeds, has two devices, and was never called."""
    runtime = ctypes.CDLL(str(path))
    runtime.fake_result(0)
    runtime.fake_devices(2)
    runtime.fake_clear()
    return runtime


@pytest.fixture
def make(tmp_path: Path, built: dict[tuple[str, int], Path]) -> Make:
    """Returns a function that makes a device layer over a runtime of that platform and version."""

    def made(platform: str, version: int) -> Fake:
        path = built[platform, version]
        runtime = _opened(path)
        variable = description().platforms[platform].path
        layer = copy_of_the_layer(tmp_path, **{variable: str(path)})
        runtime.fake_clear()
        return Fake(platform, layer, runtime)

    return made


def _argument(p: Parameter, platform: str, i: int) -> tuple[Any, int | None]:
    """Returns (the argument passed, the value that the runtime must see)."""
    if p.enum is None:
        return _plain(p, i)
    rows = [row for row in p.enum.rows if platform in row.natives]
    if p.enum.bits:
        own, native = 0, 0
        for row in rows:
            own, native = own | row.value, native | row.natives[platform][1]
        return own, native
    row = rows[-1]
    return row.value, row.natives[platform][1]


def _plain(p: Parameter, i: int) -> tuple[Any, int | None]:
    if p.type == "hcccrtDim3":
        return structure("Dim3")(10 + i, 20 + i, 30 + i), None
    if p.type == "hcccrtIpcMemHandle_t":
        return structure("IpcMemHandle_t")(bytes(range(64))), None
    if p.type == "const char *":
        return None, 0
    return 1000 + i, 1000 + i


def _words(p: Parameter, passed: Any, seen: int | None) -> tuple[list[int], bool]:
    """Returns (an argument's words, whether they go on the stack even if registers are free)."""
    if p.type == "hcccrtDim3":
        return [passed.x | passed.y << 32, passed.z], False
    if p.type == "hcccrtIpcMemHandle_t":
        raw = bytes(passed)
        return [
            int.from_bytes(raw[k : k + 8], "little", signed=True) for k in range(0, 64, 8)
        ], True
    assert seen is not None
    return [seen], False


def _check(call: DeviceCall, fake: Fake) -> None:
    registers: list[int] = []
    stack: list[int] = []
    given = []
    for i, p in enumerate(call.parameters):
        passed, seen = _argument(p, fake.platform, i)
        given.append(passed)
        words, memory = _words(p, passed, seen)
        in_stack = memory or len(registers) + len(words) > 6
        (stack if in_stack else registers).extend(words)
    assert fake.error(call.name, *given) == "Success", call.name
    ((name, *found),) = fake.written()
    assert name in call.bindings[fake.platform].symbols
    for k, word in [*enumerate(registers), *enumerate(stack, 6)]:
        # The upper half of a word that holds 32 bits is anybody's.
        assert found[k] & 0xFFFFFFFF == word & 0xFFFFFFFF, (call.name, k)
        if word >> 32 > 0 and word < 1 << 63:
            assert found[k] == word or found[k] >> 32 == word >> 32, (call.name, k)


@pytest.mark.slow
@pytest.mark.parametrize("which", NEWEST, ids=lambda w: f"{w[0]}-{w[1]}")
def test_every_plain_call_reaches_its_function(make: Make, which: tuple[str, int]) -> None:
    fake, n = make(*which), 0
    own = {"GetDeviceCount", "DeviceGetAttribute"}
    for call in description().calls:
        if call.bindings[fake.platform].kind == "direct" and call.name not in own:
            _check(call, fake)
            n += 1
    assert n > 45


@pytest.mark.parametrize("which", NEWEST, ids=lambda w: f"{w[0]}-{w[1]}")
def test_every_other_call_says_that_there_is_none(make: Make, which: tuple[str, int]) -> None:
    fake = make(*which)
    none = {c.name for c in description().calls if c.bindings[fake.platform].kind == "none"}
    assert none == (
        {"ExtStreamCreateWithCUMask", "ExtGetLinkTypeAndHopCount"} if which[0] == "cuda" else set()
    )
    for name in none:
        (call,) = (c for c in description().calls if c.name == name)
        given = [_argument(p, fake.platform, i)[0] for i, p in enumerate(call.parameters)]
        assert fake.error(name, *given) == "ErrorNotSupported"


def test_what_a_runtime_is_too_old_for(make: Make) -> None:
    fake = make("hip", 50221153)
    assert fake.error("LaunchHostFunc", None, 1, None) == "ErrorNotSupported"
    assert fake.error("DeviceSetLimit", 0, 1) == "ErrorNotSupported"
    assert fake.error("DeviceSynchronize") == "Success"


def test_values_that_only_one_vendor_has(make: Make, tmp_path: Path) -> None:
    out = ctypes.byref(ctypes.c_void_p())
    cuda = make("cuda", 13000)
    coherent, read_only = VALUES["HostAllocCoherent"], VALUES["HostRegisterReadOnly"]
    assert cuda.error("HostAlloc", out, 1, coherent) == "ErrorNotSupported"
    assert cuda.error("HostAlloc", out, 1, 8) == "ErrorInvalidValue"
    assert cuda.error("Memcpy", 1, 2, 3, 9) == "ErrorInvalidValue"
    assert cuda.written() == []
    assert cuda.error("HostRegister", 1, 2, read_only) == "Success"
    hip = make("hip", 60300000)
    assert hip.error("HostRegister", 1, 2, read_only) == "ErrorNotSupported"
    assert hip.error("HostAlloc", out, 1, coherent | 1) == "Success"
    assert hip.written()[0][3] & 0xFFFFFFFF == 0x40000001
    assert hip.error("EventCreateWithFlags", out, VALUES["EventReleaseToSystem"]) == "Success"
    assert hip.written()[0][2] & 0xFFFFFFFF == 0x80000000
    assert hip.error("ExtMallocWithFlags", out, 8, VALUES["ExtMallocUncached"]) == "Success"
    assert hip.written()[0][0] == "hipExtMallocWithFlags"


def test_memory_of_a_kind_on_cuda(make: Make) -> None:
    fake, out = make("cuda", 13000), ctypes.byref(ctypes.c_void_p())
    for kind in ("Default", "Finegrained", "Uncached"):
        assert fake.error("ExtMallocWithFlags", out, 8, VALUES[f"ExtMalloc{kind}"]) == "Success"
        assert fake.written()[0][0] == "cudaMalloc"
    signal = VALUES["ExtMallocSignal"]
    assert fake.error("ExtMallocWithFlags", out, 8, signal) == "ErrorNotSupported"
    assert fake.error("ExtMallocWithFlags", out, 8, 9) == "ErrorInvalidValue"


def test_a_kernel_between_events_on_cuda(make: Make) -> None:
    fake, dim = make("cuda", 13000), structure("Dim3")
    launch = (77, dim(1, 2, 3), dim(4, 5, 6), None, 10, 99)
    assert fake.error("ExtLaunchKernel", *launch, 11, 22, 0) == "Success"
    assert [[*words[:3]] for words in fake.written()] == [
        ["cudaEventRecord", 11, 99],
        ["cudaLaunchKernel", 77, 1 | 2 << 32],
        ["cudaEventRecord", 22, 99],
    ]
    assert fake.error("ExtLaunchKernel", *launch, None, None, 0) == "Success"
    assert [words[0] for words in fake.written()] == ["cudaLaunchKernel"]
    assert fake.error("ExtLaunchKernel", *launch, None, None, 1) == "ErrorNotSupported"


@pytest.mark.parametrize("which", VARIANTS, ids=lambda w: f"{w[0]}-{w[1]}")
def test_what_a_device_is(make: Make, which: tuple[str, int]) -> None:
    """Whatever a version's structure looks like."""
    fake, out = make(*which), structure("DeviceProp")()
    assert fake.error("GetDeviceProperties", ctypes.byref(out), 1) == "Success"
    (asked,) = {words[0] for words in fake.written() if "Properties" in words[0]}
    assert asked in VARIANTS[which][0]
    assert (out.name, out.totalGlobalMem) == (b"A GPU", 80 << 30)

    def native(name: str) -> int:
        (row,) = (r for r in description().enum("DeviceAttr").rows if r.name == f"DevAttr{name}")
        return 1000 + row.natives[which[0]][1]

    assert out.multiProcessorCount == native("MultiProcessorCount")
    assert (out.pciBusID, out.warpSize) == (native("PciBusId"), native("WarpSize"))
    capability = (native("ComputeCapabilityMajor"), native("ComputeCapabilityMinor"))
    arch = "sm_{}{}".format(*capability) if which[0] == "cuda" else "gfx942"
    assert out.arch.decode() == arch


@pytest.mark.parametrize("which", VARIANTS, ids=lambda w: f"{w[0]}-{w[1]}")
def test_what_a_pointer_is_to(make: Make, which: tuple[str, int]) -> None:
    fake, out = make(*which), structure("PointerAttributes")()
    assert fake.error("PointerGetAttributes", ctypes.byref(out), 4096) == "Success"
    assert (out.type, out.device) == (VALUES["MemoryTypeDevice"], 1)
    assert (out.devicePointer, out.hostPointer) == (4096, None)
    fake.runtime.fake_result(1)  # invalid value
    error = fake.error("PointerGetAttributes", ctypes.byref(out), 4096)
    if which[0] == "hip":
        assert (error, out.type, out.device) == ("Success", VALUES["MemoryTypeUnregistered"], -1)
    else:
        assert error == "ErrorInvalidValue"


def test_captures_in_both_forms_of_cuda(make: Make) -> None:
    out, n = ctypes.c_int(), ctypes.c_size_t()
    given = (5, ctypes.byref(out), 6, 7, 8, ctypes.byref(n))
    for version, name, where in (
        (12040, "cudaStreamGetCaptureInfo_v2", 6),
        (13000, "cudaStreamGetCaptureInfo", 7),
    ):
        fake = make("cuda", version)
        assert fake.error("StreamGetCaptureInfo_v2", *given) == "Success"
        ((asked, *words),) = fake.written()
        assert (asked, words[0], words[2:5]) == (name, 5, [6, 7, 8])
        assert words[where - 1] == ctypes.addressof(n)
        assert version < 13000 or words[5] == 0  # edge data


@pytest.mark.parametrize(("which", "base"), [(NEWEST[0], 100000), (NEWEST[1], 200000)])
def test_errors_of_the_vendor(make: Make, which: tuple[str, int], base: int) -> None:
    fake = make(*which)
    for row in description().enum("Error").rows:
        if which[0] in row.natives:
            fake.runtime.fake_result(row.natives[which[0]][1])
            assert fake.error("DeviceSynchronize") == row.name
    fake.runtime.fake_result(333)  # has no name here
    assert fake.layer.try_call("DeviceSynchronize") == base + 333
    assert fake.layer.string_of(base + 333) == "the vendor's error 333"
    fake.runtime.fake_result(0)
    assert fake.layer.try_call("GetLastError") == base + 333
    assert fake.error("GetLastError") == "Success"
    fake.runtime.fake_result(700)  # of a kernel of another launch
    assert fake.error("PeekAtLastError") == "ErrorIllegalAddress"
    assert fake.written()[-1][0].endswith("PeekAtLastError")
    assert fake.error("GetLastError") == "ErrorIllegalAddress"
    fake.runtime.fake_result(600)
    assert fake.error("GetLastError") == "Success"  # not ready is no error


def test_several_platforms_in_one_process(
    tmp_path: Path, built: dict[tuple[str, int], Path]
) -> None:
    cuda, hip = (built[which] for which in NEWEST)
    fakes = {"cuda": _opened(cuda), "hip": _opened(hip)}
    layer = copy_of_the_layer(tmp_path, HCCC_CUDA_LIBRARY=str(cuda), HCCC_HIP_LIBRARY=str(hip))
    mask, platform = ctypes.c_uint(), ctypes.c_int()
    layer.call("GetAvailablePlatforms", ctypes.byref(mask))
    assert mask.value == 0b1110
    layer.call("GetPlatform", ctypes.byref(platform))
    assert PLATFORMS[platform.value - 1] == "cuda"  # found first
    for name in ("hip", "cuda", "cpu", "hip"):
        for fake in fakes.values():
            fake.fake_clear()
        layer.call("SetPlatform", PLATFORMS.index(name) + 1)
        layer.call("DeviceSynchronize")
        for of, fake in fakes.items():
            found = Fake(of, layer, fake).written()
            assert [words[0] for words in found] == ([f"{of}DeviceSynchronize"] * (of == name))


def test_a_library_without_devices_is_no_platform(
    tmp_path: Path, built: dict[tuple[str, int], Path]
) -> None:
    path = built["cuda", 13000]
    _opened(path).fake_devices(0)
    layer = copy_of_the_layer(tmp_path, HCCC_CUDA_LIBRARY=str(path))
    text, platform = ctypes.create_string_buffer(300), ctypes.c_int()
    layer.call("GetPlatform", ctypes.byref(platform))
    assert PLATFORMS[platform.value - 1] == "cpu"
    layer.call("GetPlatformMessage", 2, text, 300)
    assert text.value.decode() == f"{path}, version 13000: no device"
    assert layer.try_call("SetPlatform", 2) == VALUES["ErrorPlatformUnavailable"]
    layer.call("GetPlatformMessage", 3, text, 300)
    assert b"$HCCC_HIP_LIBRARY: /nowhere/at/all.so" in text.value
