"""Blocks: placed primitives with a thread block for each, before any waits.

Invariants
1. Every primitive has a thread block, numbered from 0 within its rank, none left out.
2. The primitives keep their invariants (`ir/primitives`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.ir import primitives as primitives_ir
from hccc.ir.arrays import I4, frozen
from hccc.ir.primitives import Primitives, primitive_text


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Placed primitives, and for each its thread block within its owner: tb i4[n]."""

    primitives: Primitives
    tb: I4

    def __post_init__(self) -> None:
        object.__setattr__(self, "tb", frozen(self.tb, np.int32))


def check(blocks: Blocks) -> list[str]:
    """Lists the invariants that `blocks` breaks, in words; empty when it is sound. O(n log n)."""
    p, tb = blocks.primitives, blocks.tb
    problems = primitives_ir.check(p)
    if len(tb) != len(p) or (tb < 0).any():
        return [*problems, "a primitive has no thread block"]
    pairs = np.unique(np.stack([p.owner, tb]), axis=1)
    starts = np.r_[True, pairs[0][1:] != pairs[0][:-1]]
    within = np.arange(pairs.shape[1]) - np.flatnonzero(starts)[np.cumsum(starts) - 1]
    if (pairs[1] != within).any():
        problems.append("thread blocks of a rank are not numbered without gaps")
    return problems


def lines(blocks: Blocks) -> Iterator[str]:
    """Prints the Blocks, one primitive per line, in order of execution."""
    p = blocks.primitives
    yield f"# {p.dag.program.name}: {len(p)} primitives in thread blocks"
    for i in range(len(p)):
        yield f"{i}: tb {blocks.tb[i]} {primitive_text(p, i)}"
