"""What kernels for NVIDIA cost, counted in their machine code; what tests/sass.py counts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import sass
from tests.runtime.handwritten import INCLUDE
from tests.runtime.test_gpu_compile import kernel_text

needs_tools = pytest.mark.skipif(
    shutil.which("nvcc") is None or sass.disassembler() is None, reason="no nvcc or no nvdisasm"
)

TEXT = """
.text.k:
.L_x_0:
        /*0000*/                   LDC.64 R2, c[0x0][0x210] ;
        /*0010*/                   LDG.E.64 R4, desc[UR4][R2.64] ;
        /*0020*/                   LDG.E.128 R8, desc[UR4][R4.64] ;
        /*0030*/                   LDG.E.128 R12, desc[UR4][R4.64+0x10] ;
        /*0040*/                   FADD R8, R8, R12 ;
        /*0050*/                   STG.E.128 desc[UR4][R2.64], R8 ;
        /*0060*/                   ISETP.NE.AND P0, PT, R12, RZ, PT ;
        /*0070*/               @P0 BRA `(.L_x_0) ;
        /*0080*/                   LDG.E R6, desc[UR4][R2.64] ;
        /*0090*/                   EXIT ;
"""


def test_bytes_in_flight_end_with_the_first_use() -> None:
    (f,) = sass.parsed(TEXT)
    (loop,) = f.moving()
    assert (loop.instructions, loop.wide_loads, loop.wide_stores, loop.local) == (8, 2, 1, 0)
    assert loop.in_flight == 32  # the pointer's 8 bytes have arrived by then
    (early,) = sass.parsed(TEXT.replace("R4.64+0x10]", "R8.64]"))
    assert early.moving()[0].in_flight == 16


def test_a_load_waits_for_its_address_and_for_the_branch_before_it() -> None:
    (f,) = sass.parsed(TEXT)
    assert sass.depths(f) == [0, 0, 1, 1, 2, 2, 2, 2, 2, 2]


def test_what_only_a_long_wait_executes_does_not_count() -> None:
    slow = TEXT.replace("FADD R8, R8, R12", "NANOSLEEP 0x20")
    (f,) = sass.parsed(slow)
    assert sass.depths(f)[:8] == [0] * 8


@needs_tools
def test_a_launch_is_entered_by_few_loads_one_after_the_other(tmp_path: Path) -> None:
    """The first fence is that of the notice; those after it let blocks go and raise a signal."""
    source, cubin = tmp_path / "kernel.cu", tmp_path / "kernel.cubin"
    source.write_text(kernel_text(8, 8, inline=1))
    command = ["nvcc", "-std=c++17", "-O3", "-arch=sm_90", "-cubin", f"-I{INCLUDE}"]
    subprocess.run([*command, str(source), "-o", str(cubin)], check=True, timeout=300)
    kernel = next(f for f in sass.functions(cubin) if f.name == "hccc_kernel")
    depth = sass.depths(kernel)
    fences = [at for at, i in enumerate(kernel.code) if i.base == "MEMBAR"]
    announced = next(at for at in range(fences[0], len(kernel.code)) if kernel.is_flag_store(at))
    assert depth[announced] <= 6
    assert len(fences) == 6  # notice, go; a signal, rarely an extension; finished, done
    assert kernel.count("STS") == 1, "each thread stores one operand's place"
    polls = sum(i.name.startswith("LDG.E.STRONG") for i in kernel.code[: fences[0]])
    assert polls <= 4, "before the notice only a block that waits to go polls"
