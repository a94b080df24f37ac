"""export_library: a Catalogue as MSCCL XML, a file for each plan and the sizes that are its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hccc.base.diagnostics import fail
from hccc.interop.export_msccl import XmlOptions, carried, export_msccl
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan

KINDS = {False: "out_of_place", True: "in_place"}


def export_library(library: Catalogue, options: XmlOptions) -> dict[str, str]:
    """File name → text. minBytes and maxBytes of each file are those of its sizes, so that a
    runtime which is given all files takes the plan that the library would.

    A plan whose sizes the runtime's FIFOs do not carry has no file; NCCL takes those. How calls are
    cut is the runtime's own: neighbouring ranges of one plan are one.

    Raises:
        UserError: E524 calls of a kind that the library does not serve; what `export_msccl` raises.
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
            largest = carried(plan, own)
            if largest is None or largest >= begin:
                made[f"{name}{several}.xml"] = export_msccl(plan, own)
    return made


def _spans(library: Catalogue, kind: bool) -> Iterator[tuple[str, Plan, int, int | None]]:
    """Name, plan, first and last size (None: without end) of each run of ranges of one plan."""
    of_kind = [one for one in library.ranges if one.in_place == kind]
    firsts = [k for k, one in enumerate(of_kind) if not k or of_kind[k - 1].plan != one.plan]
    count: dict[int, int] = {}
    for first, after in zip(firsts, [*firsts[1:], len(of_kind)], strict=True):
        one = of_kind[first]
        count[one.plan] = count.get(one.plan, 0) + 1
        again = f"_{count[one.plan]}" if count[one.plan] > 1 else ""
        end = of_kind[after].begin - 1 if after < len(of_kind) else None
        yield library.plans[one.plan].name + again, library.plans[one.plan], one.begin, end
