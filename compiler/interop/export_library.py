"""export_library: a Catalogue as MSCCL XML, one file for each plan and its range of sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hccc.base.diagnostics import fail
from hccc.interop.export_msccl import XmlOptions, export_msccl, largest_message
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan

KINDS = {False: "out_of_place", True: "in_place"}


def export_library(library: Catalogue, options: XmlOptions) -> dict[str, str]:
    """Returns the text of each file by name. minBytes and maxBytes of a file bound the sizes of its
    plan, so a runtime that loads all files chooses the same plan as the library.

    A plan whose sizes the runtime's FIFOs cannot carry gets no file; NCCL takes those sizes.
    Neighbouring ranges of one plan become one, since the runtime cuts calls its own way.

    Raises:
        UserError: E524 the library does not serve this kind of calls; any error of `export_msccl`.
    """
    if library.alone:
        return {f"{library.name}.xml": export_msccl(library.plans[0], options)}
    kinds = [False, True] if options.in_place is None else [options.in_place]
    made = {}
    for kind in kinds:
        if kind not in library.modes:
            message = f"{library.name} serves no calls {KINDS[kind].replace('_', ' ')}"
            raise fail("E524", message, help="another --calls")
        several = f"_{KINDS[kind]}" if len(kinds) > 1 else ""
        for name, plan, begin, end in _spans(library, kind):
            own = replace(options, in_place=kind, min_bytes=begin, max_bytes=end)
            largest = largest_message(plan, own)
            if largest is None or largest >= begin:
                made[f"{name}{several}.xml"] = export_msccl(plan, own)
    return made


def _spans(library: Catalogue, kind: bool) -> Iterator[tuple[str, Plan, int, int | None]]:
    """Yields name, plan, first and last size (None: without end) of each run of ranges with one
    plan."""
    of_kind = [one for one in library.ranges if one.in_place == kind]
    firsts = [k for k, one in enumerate(of_kind) if not k or of_kind[k - 1].plan != one.plan]
    count: dict[int, int] = {}
    for first, after in zip(firsts, [*firsts[1:], len(of_kind)], strict=True):
        one = of_kind[first]
        count[one.plan] = count.get(one.plan, 0) + 1
        again = f"_{count[one.plan]}" if count[one.plan] > 1 else ""
        end = of_kind[after].begin - 1 if after < len(of_kind) else None
        yield library.plans[one.plan].name + again, library.plans[one.plan], one.begin, end
