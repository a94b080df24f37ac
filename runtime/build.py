"""build: compiles a generated directory's CPU source to a shared library, once per dtype and op."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from hccc.base.building.build import FLAGS, build_once, digest_of
from hccc.base.building.compiler import compiler_words, find_compiler, own_options
from hccc.base.diagnostics import fail
from hccc.base.dtypes import NAMES, OPS
from hccc.base.files.libraries import stem_of


@dataclass(frozen=True, slots=True)
class Variant:
    """The dtype and the reduction that a translation unit is compiled for."""

    dtype: str
    op: str = "sum"
    trace: bool = False  # whether launches can be recorded: include/hccc/trace.h

    def __post_init__(self) -> None:
        if self.dtype not in NAMES:
            raise fail("E417", f"unknown dtype `{self.dtype}`", help=f"one of: {', '.join(NAMES)}")
        if self.op not in OPS:
            raise fail("E411", f"unknown reduction `{self.op}`", help=f"one of: {', '.join(OPS)}")

    def defines(self) -> list[str]:
        """Returns the compiler options of the variant."""
        trace = ["-DHCCC_TRACE"] if self.trace else []
        return [f"-DHCCC_DTYPE={self.dtype}", f"-DHCCC_OP={self.op}", *trace]


def build_library(
    source: Path,
    variant: Variant,
    *,
    include: Sequence[Path] = (),
    flags: Sequence[str] = (),
) -> Path:
    """Compiles `source` for `variant`, unless it was already; returns the shared library.

    `include`: directories with the hccc headers where the source's own has none; `flags` come
    after the usual ones. Raises UserError E412 to E414.
    """
    return _compiled(source, variant, ".so", [*FLAGS, *flags], include)


def build_several(
    dispatch: Path,
    sources: Sequence[Path],
    variants: Sequence[Variant],
    *,
    include: Sequence[Path] = (),
) -> Path:
    """Compiles kernels for each of the variants, and `dispatch`, which finds them, to one shared
    library.

    Each source is compiled by itself, a few at a time. Raises UserError E412 to E414.
    """
    flags = [flag for flag in FLAGS if flag != "-shared"]
    pieces = list(product(sources, variants))
    with ThreadPoolExecutor(max(1, min(len(pieces), os.cpu_count() or 1))) as pool:
        made = pool.map(lambda p: _compiled(p[0], p[1], ".o", [*flags, "-c"], include), pieces)
        objects = [str(path) for path in made]
    entries = " ".join(f"ENTRY({v.dtype}, {v.op})" for v in variants)
    built = f"-DHCCC_BUILT(ENTRY)={entries}"
    return _compiled(dispatch, variants[0], ".so", [*FLAGS, built], include, objects)


def _compiled(
    source: Path,
    variant: Variant,
    suffix: str,
    flags: Sequence[str],
    include: Sequence[Path],
    linked: Sequence[str] = (),
) -> Path:
    """Compiles `source` with `flags`; linked: objects that go into the result."""
    source = source.resolve()
    compiler = find_compiler()
    options = [*flags, *variant.defines(), *own_options()]
    searched = [source.parent, *(path.resolve() for path in include)]
    words = [source.name, *compiler_words(), *options, *linked]
    name = stem_of(source, digest_of(searched, words), f"{variant.dtype}-{variant.op}")
    search = [f"-I{path}" for path in searched]
    return build_once(source, name, suffix, [compiler, *options, *search, str(source), *linked])


def build_all(
    source: Path, variants: Sequence[Variant], *, include: Sequence[Path] = ()
) -> dict[Variant, Path]:
    """Builds several variants, a few at a time."""
    workers = max(1, min(len(variants), os.cpu_count() or 1))
    with ThreadPoolExecutor(workers) as pool:
        made = pool.map(lambda v: build_library(source, v, include=include), variants)
        return dict(zip(variants, made, strict=True))
