"""gpu_kernels: a GPU library of an emitted directory, built by nvcc or hipcc for GPUs here.

It has the same content as the library of the directory's CMakeLists.txt, without CMake: an object
for each plan, type and reduction, and the dispatcher. Libraries are cached as those for the CPU.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from hccc.base.building.build import BUILT, build_once, digest_of
from hccc.base.building.compiler import TIMEOUT_S, environment, find_compiler
from hccc.base.building.places import user_directory
from hccc.base.diagnostics import fail
from hccc.base.files.libraries import stem_of
from hccc.base.interruptible import at_once
from hccc.runtime.build import Variant

# The compiler of each platform, how it is told what to compile for, and what else.
COMPILERS = {"cuda": "nvcc", "hip": "hipcc"}
FLAGS = {
    "cuda": ("-std=c++17", "-O3", "-Xcompiler=-fPIC"),
    "hip": ("-std=c++17", "-O3", "-fPIC"),
}


COMBINE = Path(__file__).parents[1] / "include" / "combine.cu"


def find_gpu_compiler(platform: str) -> str:
    """Finds $NVCC or $HIPCC, else the compiler of that name on PATH. Raises UserError E412."""
    name = COMPILERS[platform]
    found = shutil.which(os.environ.get(name.upper(), name))
    if found:
        return found
    message = f"no compiler for {platform.upper()} found (looked for {name})"
    other = f"load what CMake builds of the directory with -DHCCC_TARGETS={platform}"
    raise fail("E412", message, help=f"install it, or {other}")


def target_of(platform: str) -> list[str]:
    """Returns the options for the GPUs to compile for: HCCC_GPU_ARCH (sm_90, gfx942), else this
    machine's."""
    wanted = os.environ.get("HCCC_GPU_ARCH", "native")
    return [f"-arch={wanted}" if platform == "cuda" else f"--offload-arch={wanted}"]


def build_for_gpu(
    platform: str, dispatch: Path, sources: Sequence[Path], variants: Sequence[Variant]
) -> Path:
    """Builds the shared library of kernels for each of the variants. Raises UserError E412 to
    E414."""
    compiler = find_gpu_compiler(platform)
    flags = [*FLAGS[platform], *target_of(platform)]
    pieces = list(product(sources, variants))

    def compiled(piece: tuple[Path, Variant]) -> str:
        source, variant = piece
        kernel = f"-DHCCC_KERNEL_NAME={source.stem}_{variant.name}_kernel"
        options = [*flags, "-c", kernel, *variant.defines()]
        return str(_made(compiler, source, ".o", options, variant.name))

    objects = at_once(compiled, pieces, counted=True)
    # nvcc would cut the macro at its commas.
    entries = " ".join(v.entry for v in variants)
    options = ["-std=c++17", "-O2", "-fPIC", "-c", f"-DHCCC_BUILT(ENTRY)={entries}"]
    objects.append(str(_made(find_compiler(), dispatch, ".o", options, "dispatch")))
    return _made(compiler, dispatch, ".so", [*flags, "-shared"], "library", objects)


def build_combine(platform: str, dtype: str, op: str) -> Path:
    """Builds the library that reduces two arrays on a GPU, and divides an average: of jobs. Raises
    UserError E411, E412 to E414."""
    compiler, source = find_gpu_compiler(platform), COMBINE
    flags, variant = [*FLAGS[platform], *target_of(platform)], Variant(dtype, op)
    language = ["-x", "hip"] if platform == "hip" else []
    options = [*flags, "-c", *variant.defines(), *language]
    place = user_directory(BUILT)  # a package cannot be written to
    compiled = [str(_made(compiler, source, ".o", options, variant.name, place=place))]
    shared = [*flags, "-shared"]
    return _made(compiler, source, ".so", shared, variant.name, compiled, place)


def _made(
    compiler: str,
    source: Path,
    suffix: str,
    options: Sequence[str],
    of: str,
    linked: Sequence[str] = (),
    place: Path | None = None,
) -> Path:
    """Compiles a source unless it is cached; linked: links these objects instead; place: as of
    `build_once`."""
    source = source.resolve()
    words = [compiler, "--version"]
    told = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, env=environment())
    version = hashlib.sha256(told.stdout).hexdigest()
    words = [source.name, compiler, version, *options, *linked]
    name = stem_of(source, digest_of([source.parent], words), of)
    command = [compiler, *options, f"-I{source.parent}", *(linked or [str(source)])]
    return build_once(source, name, suffix, command, place)
