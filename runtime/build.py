"""build: compiles a generated directory's CPU source to a shared library, once per dtype and op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from hccc.base.building.build import FLAGS, STRIPPED, compile_once, digest_of, flags_for
from hccc.base.building.compiler import own_options, processor
from hccc.base.diagnostics import UserError, fail
from hccc.base.dtypes import KINDS, NAMES, OPS, REDUCTIONS, is_own, named, reduces
from hccc.base.files.libraries import stem_of
from hccc.base.interruptible import at_once
from hccc.base.reductions.parse import own


@dataclass(frozen=True, slots=True)
class Variant:
    """The dtype and the reduction that a translation unit is compiled for. op: a name, or the text
    of one's own."""

    dtype: str
    op: str = "sum"
    trace: bool = False  # whether launches can be recorded: include/hccc/trace.h

    def __post_init__(self) -> None:
        if self.dtype not in NAMES:
            raise fail("E417", f"unknown dtype `{self.dtype}`", help=f"one of: {', '.join(NAMES)}")
        if not is_own(self.op) and self.op not in OPS:
            raise fail("E411", f"unknown reduction `{self.op}`", help=f"one of: {', '.join(OPS)}")
        if not reduces(self.dtype, self.op):
            raise _no_reduction(self.dtype, self.op)

    @property
    def name(self) -> str:
        """The dtype and the name of the reduction, as entries are called after them."""
        return f"{self.dtype}_{named(self.op)}"

    @property
    def entry(self) -> str:
        """The variant as dispatchers are told of it."""
        return f"ENTRY({self.dtype}, {named(self.op)})"

    def defines(self) -> list[str]:
        """Returns the compiler options of the variant."""
        trace = ["-DHCCC_TRACE"] if self.trace else []
        return [f"-DHCCC_DTYPE={self.dtype}", f"-DHCCC_OP={named(self.op)}", *trace]


def _no_reduction(dtype: str, op: str) -> UserError:
    those = ", ".join(other for other in OPS if reduces(dtype, other))
    kinds = own(op).kinds if is_own(op) else next(r.kinds for r in REDUCTIONS if r.name == op)
    of = ", ".join(KINDS[kind] for kind in kinds)
    large = " that its numbers fit" if is_own(op) else ""
    help = f"{named(op)} is for {of}{large}; {dtype} has {those}"
    return fail("E411", f"there is no {named(op)} of {dtype}", help=help)


def pairs(dtypes: Sequence[str], ops: Sequence[str]) -> list[tuple[str, str]]:
    """Returns each dtype with each reduction that it has.

    Raises:
        UserError: E411 a dtype has none of the reductions, or a reduction none of the dtypes.
    """
    found = [(dtype, op) for dtype, op in product(dtypes, ops) if reduces(dtype, op)]
    for dtype, op in product(dtypes, ops):
        if dtype not in {d for d, _ in found} or op not in {o for _, o in found}:
            raise _no_reduction(dtype, op)
    return found


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
    return _Unit(source, variant, [*FLAGS, *flags], include).made(".so")


def build_several(
    dispatch: Path,
    sources: Sequence[Path],
    variants: Sequence[Variant],
    *,
    include: Sequence[Path] = (),
    march: str = "",
) -> Path:
    """Compiles kernels for each of the variants, and `dispatch`, which finds them, to one shared
    library.

    Each source is compiled by itself, a few at a time. march: the processors that it is for, by
    default this machine's. Raises UserError E412 to E414.
    """
    every = [*flags_for(march), STRIPPED] if march else FLAGS
    flags = [*(flag for flag in every if flag not in ("-shared", STRIPPED)), "-c"]
    objects = [_Unit(source, variant, flags, include) for source in sources for variant in variants]
    entries = " ".join(v.entry for v in variants)
    whole = _Unit(dispatch, variants[0], [*every, f"-DHCCC_BUILT(ENTRY)={entries}"], include)

    def linked() -> list[str]:
        return at_once(lambda unit: str(unit.made(".o")), objects, counted=True)

    return whole.made(".so", linked, [unit.stem() for unit in objects])


# GCC fuses products with sums where it can; `hccc_product` of types.h forbids others to do so.
_ROUNDS = "-ffp-contract=off"


@dataclass(frozen=True, slots=True)
class _Unit:
    """A source that is compiled for a variant with flags; include: directories with headers."""

    source: Path
    variant: Variant
    flags: Sequence[str]
    include: Sequence[Path]

    def _options(self) -> list[str]:
        return [*self.flags, _ROUNDS, *self.variant.defines(), *own_options()]

    def _searched(self) -> list[Path]:
        return [self.source.resolve().parent, *(path.resolve() for path in self.include)]

    def stem(self, linked: Sequence[str] = ()) -> str:
        """Returns the name of its result; linked: the names of objects that go into that."""
        words = [self.source.name, processor(), *self._options(), *linked]
        of = f"{self.variant.dtype}-{named(self.variant.op)}"
        return stem_of(self.source.resolve(), digest_of(self._searched(), words), of)

    def made(
        self,
        suffix: str,
        linked: Callable[[], Sequence[str]] = list,
        names: Sequence[str] = (),
    ) -> Path:
        """Compiles it, unless that is done already. linked: makes the objects that go into it, of
        these names."""
        source = self.source.resolve()
        search = [f"-I{path}" for path in self._searched()]

        def arguments() -> list[str]:
            return [*self._options(), *search, str(source), *linked()]

        return compile_once(source, self.stem(names), suffix, arguments)


def build_all(
    source: Path, variants: Sequence[Variant], *, include: Sequence[Path] = ()
) -> dict[Variant, Path]:
    """Builds several variants, a few at a time."""
    made = at_once(lambda v: build_library(source, v, include=include), variants, counted=True)
    return dict(zip(variants, made, strict=True))
