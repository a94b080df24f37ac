"""CUDA without a GPU: a runtime that works on the CPU, and emitted libraries compiled for it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from hccc.base.building.build import Piece, build_pieces
from hccc.emit import directory
from hccc.emit.targets import CUDA, Target
from hccc.ir import catalogue_json, plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from tests.test_architecture import RUNTIME

HERE = Path(__file__).parent
FLAGS = ("-std=c++17", "-O0", "-fPIC", "-pthread", "-fvisibility=hidden")


def _run(place: Path, *command: str | Path) -> None:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def working_runtime() -> Path:
    """Builds the runtime, once for all workers: a shared library for HCCC_CUDA_LIBRARY."""
    source = HERE.parent / "runtime" / "device" / "working_cuda.cpp"
    return build_pieces([Piece(source, (RUNTIME / "device",))], ["-ldl"])


def emitted(given: Plan | Catalogue, place: Path, *targets: Target) -> Path:
    """Writes a plan's kernels, or several plans', by default for CUDA. Returns their directory."""
    wanted = list(targets) or [CUDA]
    made = given if isinstance(given, Catalogue) else Catalogue.of(given)
    text = catalogue_json.dumps(made) if isinstance(given, Catalogue) else plan_json.dumps(given)
    directory.write(place, directory.files(made, wanted, text))
    return place


def library(plan: Plan | Catalogue, place: Path, runtime: Path, summed: str = "int32") -> Path:
    """Compiles the CUDA library of a plan, or of several, for sums of a type, for the CPU against
    that runtime."""
    emitted(plan, place)
    plans = plan.plans if isinstance(plan, Catalogue) else (plan,)
    dtype = summed if plans[0].reduces else "uint32"  # what only moves is built once for its width
    header = place / "hccc" / "gpu_launch.h"
    launch = (HERE / "working_launch.h").read_text()
    header.write_text(f"{launch}\n{header.read_text()}")
    flags = [*FLAGS, "-D__device__="]
    kernel = ["-x", "c++", f"-DHCCC_DTYPE={dtype}", "-DHCCC_OP=sum", "-c"]
    for one in plans:
        _run(place, "g++", *flags, *kernel, f"{one.name}.cu", "-o", f"{one.name}.o")
    built = f"-DHCCC_BUILT(ENTRY)=ENTRY({dtype}, sum)"
    objects = [f"{one.name}.o" for one in plans]
    dispatch = [built, f"{plan.name}_cuda_dispatch.cpp", *objects, str(runtime)]
    made = place / "library.so"
    visible = [flag for flag in FLAGS if "visibility" not in flag]
    _run(place, "g++", *visible, "-shared", *dispatch, f"-Wl,-rpath,{runtime.parent}", "-o", made)
    return made


COMPILER = """#!/bin/sh
source= copy=$(mktemp -d)
trap 'rm -r "$copy"' EXIT
for word; do
  shift
  case $word in
  -arch=*|-Xcompiler=*|-I*|-DHCCC_KERNEL_NAME=*) ;;
  *.cu) source=$word;;
  *) set -- "$@" "$word";;
  esac
done
case " $* " in
*" --version "*) echo "a compiler that stands for nvcc";;
*" -shared "*) g++ -O0 "$@" -pthread '{runtime}' -Wl,-rpath,'{place}';;
*) cp -r "${{source%/*}}"/* "$copy"
   case $source in */combine.cu) set -- "$@" -include '{combine}';; esac
   cat '{launch}' "${{source%/*}}/hccc/gpu_launch.h" > "$copy/hccc/gpu_launch.h"
   g++ -x c++ "$copy/${{source##*/}}" -O0 -fPIC -pthread -fvisibility=hidden -D__device__= "$@";;
esac
"""


def compiler(place: Path, runtime: Path) -> None:
    """Writes a script that takes nvcc's options, and compiles for the CPU against that runtime."""
    launch = HERE / "working_launch.h"
    combine = HERE.parent / "job" / "working_combine.h"
    known = {"runtime": runtime, "place": runtime.parent, "launch": launch, "combine": combine}
    place.write_text(COMPILER.format(**known))
    place.chmod(0o700)


def environment(runtime: Path, has: str = "vmm descriptor", **more: str) -> dict[str, str]:
    """Returns the environment of ranks on that runtime. has: as FAKE_CUDA of working_cuda.cpp."""
    return {
        "HCCC_PLATFORM": "cuda",
        "HCCC_CUDA_LIBRARY": str(runtime),
        "FAKE_CUDA": has,
        "HCCC_SCRATCH_BYTES": str(1 << 20),
        **more,
    }


def have_compiler() -> bool:
    """Tells whether there is a compiler."""
    return shutil.which("g++") is not None
