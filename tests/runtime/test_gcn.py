"""What kernels for AMD cost, counted in clang's assembly; what tests/gcn.py counts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import gcn
from tests.runtime.handwritten import INCLUDE
from tests.runtime.test_gpu_compile import HIP, kernel_text

TEXT = """
.LBB0_1:
	global_load_dwordx4 v[0:3], v[8:9], off nt
	global_load_dwordx4 v[4:7], v[8:9], off offset:16 nt
	s_waitcnt vmcnt(1)
	global_load_dwordx4 v[10:13], v[8:9], off offset:32 nt
	s_waitcnt vmcnt(0)
	scratch_store_dword off, v0, s32
	s_cbranch_execnz .LBB0_1
	s_endpgm
"""


def test_loads_are_in_flight_until_they_are_waited_for() -> None:
    assert list(gcn.moving(TEXT)) == [gcn.Loop(7, 3, 2, 1)]
    assert list(gcn.moving(TEXT.replace("vmcnt(1)", "vmcnt(2)"))) == [gcn.Loop(7, 3, 3, 1)]
    assert list(gcn.moving(TEXT.replace(" nt", ""))) == []


BODIES = [("float32", 1, 1), ("float32", 9, 1), ("bfloat16", 2, 1), ("float16", 8, 8)]


@pytest.mark.slow
@pytest.mark.parametrize("arch", HIP)
@pytest.mark.parametrize(("dtype", "sources", "destinations"), BODIES)
def test_bodies_have_eight_loads_in_flight(
    dtype: str, sources: int, destinations: int, arch: str, tmp_path: Path
) -> None:
    """In the loop and in the turn that is left over, without scratch; 128 registers, of which 512
    threads of a unit have no more."""
    clang = shutil.which("clang-19") or shutil.which("clang++-19")
    if not clang:
        pytest.skip("no clang-19")
    source, to = tmp_path / "kernel.hip", tmp_path / "kernel.s"
    source.write_text(kernel_text(sources, destinations, inline=1))
    target = ["-x", "hip", "--cuda-device-only", f"--offload-arch={arch}", "-nogpulib", "-S"]
    options = ["-nogpuinc", "-O3", "-std=c++17", "--no-gpu-bundle-output", f"-I{INCLUDE}"]
    command = [clang, *target, *options, f"-DHCCC_DTYPE={dtype}", str(source), "-o", str(to)]
    subprocess.run(command, check=True, timeout=300)
    text = to.read_text()
    (loop,) = gcn.moving(text)
    assert loop.in_flight >= loop.streamed == max(8, sources) and loop.local == 0
    assert gcn.used(text, "vgpr_spill_count") == gcn.used(text, "agpr_count") == 0
