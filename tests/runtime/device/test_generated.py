"""The description: files generated from it are the committed ones, and it tells the truth."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hccc.runtime.device.description import PREFIX, DeviceCall, description
from hccc.runtime.device.generate import calls_table, sources, values_table
from tests.docs.pages import DOCS, table
from tests.test_architecture import RUNTIME

FOLDER = RUNTIME / "device"
PAGE = "device-layer.md"
Generated = Callable[[str, str, str], None]

# HetCCL-SNU, Fig. 10, without `tacc`.
FIGURE_10 = """
GetAvailablePlatforms SetPlatform SetPlatformAuto GetPlatform ThreadExchangeStreamCaptureMode
Malloc MallocHost MallocManaged HostAlloc GetDevice SetDevice GetErrorString GetLastError
ExtMallocWithFlags DeviceCanAccessPeer FreeHost DeviceGetAttribute StreamCreateWithFlags Memcpy
MemcpyAsync Free Memset MemsetAsync StreamQuery StreamSynchronize StreamDestroy EventCreate
EventCreateWithFlags EventQuery EventRecord StreamWaitEvent EventDestroy LaunchHostFunc
IpcOpenMemHandle IpcCloseMemHandle IpcGetMemHandle HostRegister HostUnregister
HostGetDevicePointer DeviceGetPCIBusId GetDeviceProperties DeviceGetByPCIBusId
DeviceEnablePeerAccess GetDeviceCount FuncSetAttribute FuncGetAttributes ExtLaunchKernel
LaunchKernel DeviceSetLimit StreamGetCaptureInfo_v2 GraphAddHostNode GraphInstantiate GraphLaunch
GraphExecDestroy GraphDestroy DeviceSynchronize StreamBeginCapture StreamEndCapture DeviceReset
PointerGetAttributes ExtStreamCreateWithCUMask StreamCreate ExtGetLinkTypeAndHopCount HostMalloc
HostFree EventElapsedTime
"""


def test_the_calls_are_those_of_the_figure() -> None:
    named = [call.name for call in description().calls if not call.extra]
    assert len(FIGURE_10.split()) == 66 and sorted(named) == sorted(FIGURE_10.split())


@pytest.mark.parametrize("name", sorted(sources()))
def test_the_generated_files_are_the_descriptions(
    name: str, request: pytest.FixtureRequest
) -> None:
    text, path = sources()[name], FOLDER / name
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{path}: run pytest with --update-golden"


def test_nothing_else_is_generated() -> None:
    found = {f"{f}/{p.name}" for f in ("generated", "include") for p in (FOLDER / f).iterdir()}
    assert found == set(sources())


def test_the_page_has_every_call_and_value(generated: Generated) -> None:
    for group in description().groups:
        rows = calls_table(group)
        text = f"{group.doc}\n\n{table(['call', 'CUDA', 'HIP', 'what it does'], rows)}"
        generated(PAGE, group.name, text)
    text = "\n".join(
        f"**hcccrt{enum.name}_t**: {enum.doc}\n\n"
        + table(["name", "value", "CUDA", "HIP", "meaning"], values_table(enum))
        for enum in description().enums
    )
    generated(PAGE, "values", text)


def test_the_page_has_a_section_for_each_group() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    heads = re.findall(r"^### (.*)$", text, re.M)
    assert heads == [group.title for group in description().groups]


def test_every_call_is_used_in_a_test() -> None:
    texts = "".join(
        p.read_text() for p in Path(__file__).parent.glob("*.py") if p.name != Path(__file__).name
    )
    library = (FOLDER / "device_layer.py").read_text()
    missing = [c.name for c in description().calls if f'"{c.name}"' not in texts + library]
    assert missing == []


def test_values_are_unique() -> None:
    for enum in description().enums:
        values = [row.value for row in enum.rows]
        assert len(set(values)) == len(values), enum.name
        for gpu in ("cuda", "hip"):
            natives = [row.natives[gpu][1] for row in enum.rows if gpu in row.natives]
            assert len(set(natives)) == len(natives), (enum.name, gpu)
        if enum.bits:
            assert all(value & (value - 1) == 0 for value in values)


def _by_pointer(call: DeviceCall) -> list[str]:
    found = [re.fullmatch(rf"{PREFIX}(\w+)_t \*", p.type) for p in call.parameters]
    enums = {enum.name for enum in description().enums}
    return [m[1] for m in found if m and m[1] in enums and m[1] != "Platform"]


def test_values_that_pass_by_pointer_are_alike_everywhere() -> None:
    """Nothing translates them."""
    used = {name for call in description().calls for name in _by_pointer(call)}
    assert used == {"StreamCaptureMode", "StreamCaptureStatus"}
    for name in used:
        for row in description().enum(name).rows:
            assert {value for _, value in row.natives.values()} == {row.value}


# Names that HIP 5 lacks or ignores (hipIpcMemLazyEnablePeerAccess was 0); values are HIP 6's.
LATER = (
    "hipDeviceAttributeWallClockRate",
    "hipDeviceMallocUncached",
    "hipLimitStackSize",
    "hipIpcMemLazyEnablePeerAccess",
)
INCLUDES = {
    "cuda": ("/usr/local/cuda/include", "cuda_runtime_api.h", ()),
    "hip": (
        "/usr/include",
        "hip/hip_runtime_api.h",
        ("-D__HIP_PLATFORM_AMD__", "-D__HIP_PLATFORM_HCC__"),
    ),
}


@pytest.mark.parametrize("gpu", ["cuda", "hip"])
def test_values_are_those_of_the_vendors_header(gpu: str, tmp_path: Path) -> None:
    folder, header, defines = INCLUDES[gpu]
    newest = sorted(Path("/usr/local").glob("cuda-*/include")) if gpu == "cuda" else []
    folders = [Path(folder), *newest]
    found = [f for f in folders if (f / header).exists()]
    if not found or not shutil.which("g++"):
        pytest.skip(f"no {header}")
    lines = [f"#include <{header}>"]
    for enum in description().enums:
        for row in enum.rows:
            if gpu in row.natives:
                name, value = row.natives[gpu]
                lines.append(f'static_assert(static_cast<unsigned>({name}) == {value}u, "{name}");')
    source = tmp_path / "values.cpp"
    source.write_text("\n".join(lines))
    command = ["g++", "-std=c++17", "-fsyntax-only", "-w", *defines, f"-I{found[-1]}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    wrong = [line for line in done.stderr.splitlines() if "error" in line]
    assert [line for line in wrong if not any(name in line for name in LATER)] == []


@pytest.mark.parametrize("language", ["c99", "c++17"])
def test_the_header_is_plain_c(language: str, tmp_path: Path) -> None:
    compiler = "gcc" if language == "c99" else "g++"
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    source = tmp_path / ("a.c" if language == "c99" else "a.cpp")
    source.write_text('#include "hcccrt.h"\nhcccrtStream_t s; hcccrtDim3 d = {1, 2, 3};\n')
    flags = [f"-std={language}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    subprocess.run([compiler, *flags, f"-I{FOLDER / 'include'}", source], check=True, timeout=60)
