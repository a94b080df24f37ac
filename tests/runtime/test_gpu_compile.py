"""The same text for NVIDIA and AMD: it compiles, without warnings and without spilling."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hccc.base.dtypes import OPS, reduces
from hccc.runtime.layout import DTYPES
from tests.marks import LONG, slow, some
from tests.runtime.handwritten import INCLUDE, PROGRAMS

PRIMITIVES = [(2, 1), (8, 1), (8, 8), (1, 7)]
CUDA = [slow("sm_80"), "sm_90"]
AROUND_LOOKS = (
    96  # bytes spilled around hccc_poll_deadlines, which a wait calls when it has lasted long
)
HIP = ["gfx90a", "gfx942"]


def kernel_text(sources: int, destinations: int, inline: int, ranks: int = 32) -> str:
    """Returns a kernel of one primitive with that many operands, all of them at 32 ranks."""
    operands = ", ".join(f"hccc_input(b, (b.rank + {i}) % 32, {i})" for i in range(sources))
    results = ", ".join(f"hccc_output(b, (b.rank + {i}) % 32, 1)" for i in range(destinations))
    waits = ", ".join(str(i) for i in range(min(sources, 8)))
    posts = ", ".join(f"hccc_post((b.rank + {i}) % 32, {i})" for i in range(destinations))
    mode = "HCCC_REDUCE | HCCC_FINAL" if sources > 1 else "HCCC_COPY"
    constants = {"RANKS": ranks, "SUB": 8, "CHANNELS": 2, "BLOCKS": 1, "THREADS": 512, "FLAGS": 32}
    constants |= {"SCRATCH": 0, "STAGE": 0, "QUEUES": 0, "SENDS": 0, "SLOTS": 1, "GRAIN": 1 << 13}
    constants["INLINE"] = inline
    defines = "\n".join(f"#define HCCC_{name} {value}" for name, value in constants.items())
    return f"""{defines}
#include "hccc/device.h"
HCCC_FN void hccc_program(hccc_block& b) {{
  HCCC_WINDOWS(b) {{
    hccc_prim<{mode}>(b, 0, 1, hccc_waits({waits}), hccc_from({operands}),
                      hccc_to({results}), hccc_posts({posts}));
  }}
}}
HCCC_FN int hccc_neighbour_count(int) {{ return 31; }}
HCCC_FN int hccc_neighbour(int rank, int i) {{ return (rank + i + 1) % 32; }}
HCCC_KERNEL
"""


def run(command: list[str]) -> str:
    """Returns the compiler's messages; it must succeed without warnings."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr
    return done.stderr


def cuda_spills(source: Path, arch: str, *defines: str) -> int:
    """Returns the bytes that the worst function of `source` spills."""
    nvcc = shutil.which("nvcc")
    if not nvcc:
        pytest.skip("no nvcc")
    include = [f"-I{INCLUDE}", f"-I{PROGRAMS}"]
    command = [nvcc, "-std=c++17", "-O3", f"-arch={arch}", "-cubin", "-Xptxas", "-v", *include]
    said = run([*command, *defines, str(source), "-o", str(source.with_suffix(".cubin"))])
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", said)]
    assert spills, said
    return max(spills)


def hip_spills(source: Path, arch: str, *defines: str) -> int:
    """Returns the vector registers that the worst function of `source` spills."""
    clang = shutil.which("clang-19") or shutil.which("clang++-19")
    if not clang:
        pytest.skip("no clang-19")
    target = ["-x", "hip", "--cuda-device-only", f"--offload-arch={arch}", "-nogpulib"]
    options = ["-nogpuinc", "-O3", "-std=c++17", "--no-gpu-bundle-output", "-Wall", "-Wextra"]
    include = [f"-I{INCLUDE}", f"-I{PROGRAMS}", "-Rpass-analysis=kernel-resource-usage"]
    command = [clang, *target, *options, *include, *defines]
    said = run([*command, str(source), "-o", str(source.with_suffix(".hsaco"))])
    spills = [int(n) for n in re.findall(r"VGPRs Spill: (\d+)", said)]
    assert spills, said
    return max(spills)


def write(directory: Path, text: str) -> Path:
    """Writes a source file."""
    source = directory / "kernel.cu"
    source.write_text(text)
    return source


@pytest.mark.slow
@pytest.mark.parametrize("arch", CUDA)
@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_cuda_bodies_do_not_spill(tmp_path: Path, primitive: tuple[int, int], arch: str) -> None:
    source = write(tmp_path, kernel_text(*primitive, inline=1))
    for dtype in ("float32", "bfloat16"):
        spilled = cuda_spills(source, arch, f"-DHCCC_DTYPE={dtype}", "-DHCCC_OP=avg")
        assert spilled <= AROUND_LOOKS


EACH = some(list(DTYPES), 4)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", EACH)
def test_cuda_every_dtype_does_not_spill(tmp_path: Path, dtype: str) -> None:
    """Every reduction of float32, of other types every other one, in turn."""
    turn = OPS if dtype == "float32" or LONG > 1 else OPS[EACH.index(dtype) % 2 :: 2]
    for primitive in PRIMITIVES if dtype == EACH[0] or LONG > 1 else [(8, 1), (8, 8)]:
        source = write(tmp_path, kernel_text(*primitive, inline=1))
        wanted = turn if primitive == (8, 1) else ("avg",)
        for op in (op for op in wanted if reduces(dtype, op)):
            spilled = cuda_spills(source, "sm_90", f"-DHCCC_DTYPE={dtype}", f"-DHCCC_OP={op}")
            assert spilled <= AROUND_LOOKS


@pytest.mark.slow
def test_cuda_many_operands_and_calls(tmp_path: Path) -> None:
    assert cuda_spills(write(tmp_path, kernel_text(32, 16, inline=0)), "sm_90") <= 128
    assert cuda_spills(write(tmp_path, kernel_text(8, 1, inline=0)), "sm_80") <= 128


@pytest.mark.slow
@pytest.mark.parametrize("arch", HIP)
def test_hip_bodies_do_not_spill(tmp_path: Path, arch: str) -> None:
    for primitive in PRIMITIVES:
        source = write(tmp_path, kernel_text(*primitive, inline=1))
        assert hip_spills(source, arch, "-DHCCC_DTYPE=float16", "-DHCCC_OP=avg") == 0
    assert hip_spills(write(tmp_path, kernel_text(8, 1, inline=0)), arch) == 0


@pytest.mark.quick(0)
@pytest.mark.parametrize("program", ["ring", slow("mesh"), slow("staged")])
def test_programs_that_record_compile_for_both(tmp_path: Path, program: str) -> None:
    """They read the device's clock three times a micro-batch, one thread of each block."""
    source = write(tmp_path, f'#include "{program}.inc"\nHCCC_KERNEL\n')
    assert cuda_spills(source, "sm_90", "-DHCCC_TRACE") <= 128
    assert hip_spills(source, "gfx942", "-DHCCC_TRACE") == 0


@pytest.mark.slow
@pytest.mark.parametrize("program, inline", [slow("ring", 1), ("mesh", 1), slow("staged", 0)])
def test_programs_compile_for_both(tmp_path: Path, program: str, inline: int) -> None:
    source = write(tmp_path, f'#include "{program}.inc"\nHCCC_KERNEL\n')
    option = f"-DHCCC_INLINE={inline}"
    assert cuda_spills(source, "sm_90", option) <= (AROUND_LOOKS if inline else 128)
    assert hip_spills(source, "gfx942", option) == 0


@pytest.mark.slow
@pytest.mark.parametrize("trace", [False, True])
def test_host_part_compiles(tmp_path: Path, trace: bool) -> None:
    nvcc = shutil.which("nvcc")
    if not nvcc:
        pytest.skip("no nvcc")
    text = """#include "ring.inc"
HCCC_KERNEL
#include "hccc/gpu_launch.h"
extern "C" int ring_cuda(const hccc_comm* comm, const hccc_call* call, cudaStream_t stream) {
  return hccc_gpu_launch(comm, call, stream);
}
"""
    source = write(tmp_path, text)
    options = ["-std=c++17", "-arch=sm_90", "-shared", "-Xcompiler", "-fPIC,-Wall,-Wextra"]
    options += ["-DHCCC_TRACE"] * trace
    library = str(tmp_path / "ring.so")
    run([nvcc, *options, f"-I{INCLUDE}", f"-I{PROGRAMS}", str(source), "-o", library])
    nm = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True)
    assert (" V hccc_tracing\n" in nm.stdout) is trace


HIP_LIBRARY = """#include "ring.inc"
HCCC_KERNEL
#include "hccc/gpu_launch.h"
#ifdef HCCC_GPU
extern "C" int ring_hip(const hccc_comm* comm, const hccc_call* call, hipStream_t stream) {
  return hccc_gpu_launch(comm, call, stream);
}
#endif
"""


def hip_host(place: Path, *more: str) -> str:
    """Returns the symbols of HIP_LIBRARY's host part, compiled with all warnings as errors."""
    clang = shutil.which("clang++-19")
    if not clang:
        pytest.skip("no clang-19")
    flags = ["-x", "hip", "--offload-host-only", "-nogpulib", "-nogpuinc", "-std=c++17", "-c"]
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    include = [f"-I{INCLUDE}", f"-I{PROGRAMS}", "-o", str(place / "host.o")]
    run([clang, *flags, *warnings, *include, *more, str(write(place, HIP_LIBRARY))])
    return subprocess.run(
        ["nm", str(place / "host.o")], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_hip_host_part_compiles_where_hip_is(tmp_path: Path) -> None:
    if not Path("/usr/include/hip/hip_runtime_api.h").exists():
        pytest.skip("HIP's headers are not installed")
    for trace in (False, True):
        symbols = hip_host(tmp_path, *["-DHCCC_TRACE"] * trace)
        assert (" V hccc_tracing\n" in symbols) is trace
    assert " T ring_hip\n" in symbols and " U hipLaunchCooperativeKernel\n" in symbols


@pytest.mark.slow
def test_hip_kernels_need_no_headers(tmp_path: Path) -> None:
    for arch in HIP:
        assert hip_spills(write(tmp_path, HIP_LIBRARY), arch, "-nostdinc") == 0
    assert hip_spills(write(tmp_path, HIP_LIBRARY), "gfx942", "-D__HIPCC_RTC__") == 0


def test_a_hip_host_part_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"hip_runtime_api\.h is not on the include path"):
        hip_host(tmp_path, "-nostdinc")


@pytest.mark.slow
def test_cpu_build_has_no_warnings() -> None:
    for compiler in ("g++", "clang++-19"):
        path = shutil.which(compiler)
        if not path:
            continue
        flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        run([path, *flags, "-DHCCC_TRACE", f"-I{INCLUDE}", str(PROGRAMS / "staged_cpu.cpp")])
        for program in ("ring", "mesh", "staged", "many", "stuck"):
            run([path, *flags, f"-I{INCLUDE}", str(PROGRAMS / f"{program}_cpu.cpp")])


@pytest.mark.slow
def test_many_ranks_take_no_more_shared_memory_than_there_is(tmp_path: Path) -> None:
    source = write(tmp_path, kernel_text(8, 8, inline=0, ranks=1 << 16))
    assert cuda_spills(source, "sm_80") <= 128
    assert hip_spills(source, "gfx90a") == 0


@pytest.mark.slow
def test_more_operands_than_two_for_every_rank(tmp_path: Path) -> None:
    text = kernel_text(8, 8, inline=0, ranks=2)
    source = write(tmp_path, f"#define HCCC_OPERANDS 16\n{text}")
    assert cuda_spills(source, "sm_90") <= 128
    assert hip_spills(source, "gfx942") == 0
