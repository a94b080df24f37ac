"""library_facts: the facts that a library states about itself (`runtime/include/hccc/library.h`).

Their order is that of `include/hccc/record_library.h`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hccc.base.dtypes import named
from hccc.base.version import __version__
from hccc.emit.targets import Target
from hccc.ir.arrays import I4
from hccc.ir.catalogue import Catalogue
from hccc.ir.digest import library_digest
from hccc.ir.kernel_shape import kernel_shape


def facts(catalogue: Catalogue) -> list[tuple[str, int]]:
    """Lists the expected (fact, value) pairs; strings are compared in C and recorded as 1 if equal.
    O(ranks + ranges)."""
    return list(_facts(catalogue))


def rows(catalogue: Catalogue) -> I4:
    """Returns the values of `facts`: i4[facts, 1]."""
    return np.array([[value] for _, value in facts(catalogue)], np.int64).astype(np.int32)


def strings(catalogue: Catalogue, target: Target) -> str:
    """Returns the strings that the library must state, as C text."""
    own_ops = " ".join(map(named, catalogue.plans[0].reductions))
    words = (catalogue.name, __version__, target.name, catalogue.collective.name, own_ops)
    return ", ".join(f'"{word}"' for word in words)


def difference(found: I4, catalogue: Catalogue) -> str | None:
    """Describes the first fact that is stated wrong; None if all are right."""
    wanted = facts(catalogue)
    for (what, value), said in zip(wanted, found[:, 0].tolist(), strict=False):
        if said != value:
            return f"the library's {what}: the text says {said}, not {value}"
    return None if len(found) == len(wanted) else "the library does not tell all of itself"


def _facts(catalogue: Catalogue) -> Iterator[tuple[str, int]]:
    plans, c = catalogue.plans, catalogue.collective
    first = plans[0]
    yield from (
        (what, 1) for what in ("size", "name", "compiler", "target", "collective", "own_ops")
    )
    yield "n_ranks", c.n_ranks
    yield "root", c.root if c.rooted else -1
    yield "reduces", int(first.reduces)
    yield "touches_peers", int(any(plan.touches_peers() for plan in plans))
    yield from _long("digest", library_digest(catalogue))
    for rank, domain in enumerate(first.memory_domain.tolist()):
        yield f"domain of rank {rank}", domain
        yield f"input blocks of rank {rank}", c.input_blocks(rank)
        yield f"output blocks of rank {rank}", c.output_blocks(rank)
    yield "n_plans", len(plans)
    for plan in plans:
        for name, value in kernel_shape(plan).constants().items():
            yield f"{name} of {plan.name}", value
    blocks = c.most_blocks()
    yield "n_ranges", len(catalogue.ranges)
    for k, one in enumerate(catalogue.ranges):
        yield f"range {k}, in_place", int(one.in_place)
        yield f"range {k}, plan", one.plan
        yield f"range {k}, window", 0 if catalogue.alone else one.window  # a plan's is in its shape
        yield f"range {k}, grain", one.grain
        yield from _long(f"range {k}, begin", -(-one.begin // blocks))
    yield "launch", 1


def _long(what: str, value: int) -> Iterator[tuple[str, int]]:
    for half in (value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF):
        yield what, half - (1 << 32) * (half >> 31)
