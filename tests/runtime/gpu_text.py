"""The texts of GPUs on the host: gpu_body.h, and float16 as the GPU's port converts it.

No GPU: the headers' text is compiled for the CPU with programs/gpu_port.h in the place of port.h.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hccc.emit import directory
from hccc.emit.targets import Target
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from tests.runtime.handwritten import INCLUDE, PROGRAMS

_INSTRUCTION = re.compile(
    r'asm\("([\w.]+) %0, %1(?:, %2)?;" : "=\w"\((\w+)\) : "\w"\((\w+)\)(?:, "\w"\((\w+)\))?\);'
)
_CONVERSIONS = ("hccc_half_up", "hccc_half_down")
_PAIRS = ("hccc_halves_down", "hccc_brains_down")  # of CUDA's port


def functions(target: str, *names: str) -> str:
    """Returns the text of a port's functions."""
    text = (INCLUDE / "hccc" / f"port_{target}.h").read_text()
    each = rf"^HCCC_FN .*\b(?:{'|'.join(names)})\(.*\{{(?:.*\}}|\n(?:.*\n)*?\}})$"
    found = [one.group(0) for one in re.finditer(each, text, re.M)]
    assert len(found) == len(names), found
    return "\n".join(found)


def conversions(target: str) -> str:
    """Returns the text of a port's conversions, with functions for PTX's instructions."""
    pairs = _PAIRS if target == "cuda" else ()
    text = _INSTRUCTION.sub(
        lambda m: (
            f"{m[2]} = ptx_{m[1].replace('.', '_')}({', '.join(filter(None, m.group(3, 4)))});"
        ),
        functions(target, *_CONVERSIONS, *pairs),
    )
    return f"#define HCCC_PAIRS {int(bool(pairs))}\n{text}"


def headers(target: str, place: Path) -> None:
    """Puts the port of the target on the host into an emitted directory, or makes one."""
    if not (place / "hccc").exists():
        shutil.copytree(INCLUDE / "hccc", place / "hccc")
    shutil.copy(PROGRAMS / "gpu_port.h", place / "hccc" / "port.h")
    (place / "hccc" / "conversions.h").write_text(conversions(target))


def compiled(target: str, place: Path, *arguments: str) -> Path:
    """Compiles sources of `place` to a library, by a compiler that has the target's types."""
    compiler = shutil.which("clang++-19" if target == "hip" else "g++")
    if not compiler:
        pytest.skip("no clang++-19 or no g++")
    flags = [
        "-std=c++17",
        "-O0",
        "-shared",
        "-fPIC",
        "-pthread",
        "-w",
        "-DHCCC_THREADS_AS_BLOCKS=1",
    ]
    command = [compiler, "-x", "c++", *flags, "-I.", *arguments, "-o", "library.so"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place / "library.so"


def built(plan: Plan, target: Target, dtype: str, op: str, place: Path) -> Path:
    """Builds the emitted text of a GPU, host part and all, as a library for the CPU."""
    directory.write(place, directory.files(Catalogue.of(plan), [target], plan_json.dumps(plan)))
    headers(target.name, place)
    launch = place / "hccc" / "gpu_launch.h"
    launch.write_text((PROGRAMS / "fake_cuda.h").read_text() + launch.read_text())
    entry = f"ENTRY({dtype}, {op})"
    (place / f"{plan.name}_built.h").write_text(f"#define HCCC_BUILT(ENTRY) {entry}\n")
    chosen = [f"-DHCCC_DTYPE={dtype}", f"-DHCCC_OP={op}", "-D__device__="]
    sources = [f"{plan.name}{target.suffix}", f"{plan.name}_{target.name}_dispatch.cpp"]
    return compiled(target.name, place, *chosen, *sources)
