"""described: what a library must say of itself (`runtime/include/hccc/library.h`), fact by fact.

The order is that of `include/hccc/record_library.h`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hccc.base.version import __version__
from hccc.emit.targets import Target
from hccc.ir.arrays import I4
from hccc.ir.catalogue import Catalogue
from hccc.ir.digest import library_digest
from hccc.ir.kernel_shape import kernel_shape
from hccc.ir.plan import Plan


def facts(compiled: Plan | Catalogue) -> list[tuple[str, int]]:
    """(what, value) of all that is told, strings as 1 where they are right. O(ranks + ranges)."""
    return list(_facts(compiled))


def rows(compiled: Plan | Catalogue) -> I4:
    """The values of `facts`: i4[facts, 1]."""
    return np.array([[value] for _, value in facts(compiled)], np.int64).astype(np.int32)


def says(compiled: Plan | Catalogue, target: Target) -> str:
    """C: the strings that it must tell."""
    words = (compiled.name, __version__, target.name, compiled.collective.op.value)
    return ", ".join(f'"{word}"' for word in words)


def difference(found: I4, compiled: Plan | Catalogue) -> str | None:
    """The first fact that is told wrong, in words."""
    wanted = facts(compiled)
    for (what, value), said in zip(wanted, found[:, 0].tolist(), strict=False):
        if said != value:
            return f"the library's {what}: the text says {said}, not {value}"
    return None if len(found) == len(wanted) else "the library does not tell all of itself"


def _facts(compiled: Plan | Catalogue) -> Iterator[tuple[str, int]]:
    catalogue = compiled if isinstance(compiled, Catalogue) else None
    plans = catalogue.plans if catalogue else (compiled,)
    first, c = plans[0], compiled.collective
    assert isinstance(first, Plan)
    yield from ((what, 1) for what in ("size", "name", "compiler", "target", "collective"))
    yield "n_ranks", c.n_ranks
    yield "root", c.root if c.rooted else -1
    yield "reduces", int(first.reduces)
    yield "touches_peers", int(any(isinstance(p, Plan) and p.touches_peers() for p in plans))
    yield from _long("digest", library_digest(compiled))
    for rank, domain in enumerate(first.memory_domain.tolist()):
        yield f"domain of rank {rank}", domain
        yield f"input blocks of rank {rank}", c.input_blocks(rank)
        yield f"output blocks of rank {rank}", c.output_blocks(rank)
    yield "n_plans", len(plans)
    for plan in plans:
        assert isinstance(plan, Plan)
        for name, value in kernel_shape(plan).constants().items():
            yield f"{name} of {plan.name}", value
    blocks = c.most_blocks()
    ranges = (
        [(r.in_place, r.plan, r.window, r.grain, -(-r.begin // blocks)) for r in catalogue.ranges]
        if catalogue
        else [(mode, 0, 0, first.grain, 0) for mode in first.modes]
    )
    yield "n_ranges", len(ranges)
    for k, (in_place, number, window, grain, begin) in enumerate(ranges):
        yield f"range {k}, in_place", int(in_place)
        yield f"range {k}, plan", number
        yield f"range {k}, window", window
        yield f"range {k}, grain", grain
        yield from _long(f"range {k}, begin", begin)
    yield "launch", 1


def _long(what: str, value: int) -> Iterator[tuple[str, int]]:
    for half in (value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF):
        yield what, half - (1 << 32) * (half >> 31)
