"""bodies: what a primitive's body costs on GPUs, counted in what nvcc and clang-19 make of it.

    python -m benchmarks.bodies [--arch sm_90,gfx942] [--dtype float32,bfloat16] [--headers DIR]

No GPU runs. For each number of sources and destinations: registers, bytes spilled, and of each
loop that moves 16 bytes at a time its instructions and the bytes in flight: first of data that is
aligned alike, then of other data. --headers takes those of another tree, to compare with.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from tests import gcn, sass
from tests.runtime.handwritten import INCLUDE
from tests.runtime.test_gpu_compile import kernel_text

SHAPES = [(1, 1), (1, 8), (2, 1), (4, 1), (8, 1), (9, 1), (8, 8), (9, 9)]


def _of_nvidia(source: Path, arch: str, defines: list[str]) -> str:
    cubin = source.with_suffix(".cubin")
    command = ["nvcc", "-std=c++17", "-O3", f"-arch={arch}", "-cubin", "-Xptxas", "-v", *defines]
    done = subprocess.run(
        [*command, str(source), "-o", str(cubin)], capture_output=True, text=True, check=True
    )
    used = sass.used(done.stderr)
    kernel = next(f for f in sass.functions(cubin) if f.name == "hccc_kernel")
    loops = sorted(kernel.moving(), key=lambda loop: loop.kept)
    text = "; ".join(f"{loop.instructions}, {loop.in_flight} B" for loop in loops)
    return f"{used.registers} registers, {used.spills} B spilled, {len(kernel.code)}: {text}"


def _of_amd(source: Path, arch: str, defines: list[str]) -> str:
    to = source.with_suffix(".s")
    target = ["-x", "hip", "--cuda-device-only", f"--offload-arch={arch}", "-nogpulib", "-S"]
    options = ["-nogpuinc", "-O3", "-std=c++17", "--no-gpu-bundle-output", *defines]
    subprocess.run(["clang-19", *target, *options, str(source), "-o", str(to)], check=True)
    text = to.read_text()
    spilled = gcn.used(text, "vgpr_spill_count")
    loops = "; ".join(f"{x.instructions}, {x.in_flight} loads" for x in gcn.moving(text))
    return f"{gcn.used(text, 'vgpr_count')} registers, {spilled} spilled: {loops}"


def main() -> None:
    """Prints a line for each body."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="sm_80,sm_90,sm_100,gfx90a,gfx942")
    parser.add_argument("--dtype", default="float32,bfloat16,float16")
    parser.add_argument("--headers", default=str(INCLUDE))
    asked = parser.parse_args()
    for arch in asked.arch.split(","):
        for dtype in asked.dtype.split(","):
            for k, d in SHAPES:
                with tempfile.TemporaryDirectory() as place:
                    source = Path(place) / "kernel.cu"
                    source.write_text(kernel_text(k, d, inline=1))
                    defines = [f"-I{asked.headers}", f"-DHCCC_DTYPE={dtype}"]
                    of = _of_nvidia if arch.startswith("sm_") else _of_amd
                    print(f"{arch} {dtype} {k} -> {d}: {of(source, arch, defines)}", flush=True)


if __name__ == "__main__":
    main()
