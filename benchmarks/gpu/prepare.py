"""Prepares a run for a machine that can download and compile nothing: fills `carried/`.

python -m benchmarks.gpu.prepare [--arch sm_90] [--units 132] [--quick] [--only NAME] [--jobs 2]

Puts hccc's pure-Python dependencies into `carried/`, which run.py looks into last: what the
machine has installed itself goes first. Packages with compiled code must be there already. Then
compiles the programs to plans, and their kernels for the GPU and references for its CPUs
(`carried.py`).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.gpu.paths import PACKAGES, find_packages

PURE = ("lark", "fastjsonschema", "defusedxml", "jinja2", "networkx")
COMPILED = ("numpy", "numba", "ml_dtypes", "scipy", "markupsafe", "cupy")


def command(into: Path) -> list[str]:
    """Returns pip's command."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade"]
    return [*pip, "--no-deps", "--only-binary=:all:", "--target", str(into), *PURE]


def prepare(into: Path, run: Callable[[Sequence[str]], object] = subprocess.check_call) -> None:
    """Fills the folder with packages.

    Raises:
        RuntimeError: a package turned out to have compiled code.
    """
    run(command(into))
    compiled = sorted(str(path.relative_to(into)) for path in into.rglob("*.so"))
    if compiled:
        raise RuntimeError(f"not pure Python, and may not run elsewhere: {', '.join(compiled)}")
    print(f"{into} has {', '.join(PURE)}; the machine needs {', '.join(COMPILED)} itself")


def build(given: argparse.Namespace, place: Path) -> int:
    """Compiles plans and kernels into the folder, anew; returns the bytes that it has then.

    Raises:
        RuntimeError: a kernel does not build.
    """
    from benchmarks.gpu import carried, cases, constants
    from benchmarks.gpu.measured_machine import TargetKernel
    from hccc.runtime.cuda import CudaDevice
    from hccc.runtime.request import LaunchRequest

    device = CudaDevice(None, hip=False, arch=given.arch, units=given.units, cooperative=True)
    settings = cases.GPU_QUICK if given.quick else cases.GPU
    manifest = carried.Manifest(carried.state(), given.arch, given.units, given.quick, given.only)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    found = cases.all_of(2 * given.units, settings, given.only)

    def one(kernel: carried.CarriedKernel) -> None:
        made = TargetKernel(kernel.plan, place / kernel.folder, device, kernel.kind)
        made.build(LaunchRequest(0, kernel.dtype, cases.OP))

    wanted = list(carried.kernels(found))
    with ThreadPoolExecutor(given.jobs) as pool:
        for k, _ in enumerate(pool.map(one, wanted), 1):
            print(f"\r{k} of {len(wanted)} kernels", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    subprocess.run(
        constants.command(given.arch, constants.carried_file(place, given.arch)), check=True
    )
    carried.save(found, manifest, place)
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def main(words: Sequence[str]) -> int:
    """Fills `carried/`; returns 1 where a kernel does not build, or where that is too much."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--units", type=int, default=132, help="multiprocessors; default 132")
    parser.add_argument("--quick", action="store_true", help="for run.py --quick")
    parser.add_argument("--only", default="", help="for run.py --only")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time; default 2")
    given = parser.parse_args(words)
    try:
        prepare(PACKAGES)
        find_packages()
        from benchmarks.gpu.carried import MADE, MOST

        size = build(given, MADE)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(f"benchmarks/gpu: {error}", file=sys.stderr)
        return 1
    print(f"{MADE} has {size / 2**20:.1f} MiB, at most {MOST >> 20} can be carried along")
    return int(size > MOST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
