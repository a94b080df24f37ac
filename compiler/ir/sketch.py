"""Sketch: the groups of ranks that pass on one chunk, stage by stage, until all ranks have it.

A *sub-demand* asks a group of a dimension (`network/dimensions`) that what some of its ranks have
shall reach others of it; which of them sends to which, and when, it leaves open. A *stage* is
sub-demands that are met at once, a sketch stages one after the other, and an *allotment* sketches
that divide a chunk among them. One root is the unit: all collectives come from copies of it that
the symmetry of the cluster moves to other roots. Printed (`lang/sketch`):

    sketch 1/2:
        stage:
            node 0: 0 -> 1-3
        stage:
            rail 0: 0 -> 4
            rail 1: 1 -> 5
            ...

Invariants
1. The first stage has one source, the root.
2. The sources of a sub-demand have the chunk before its stage; every other rank is a target once.
3. Sources and targets of a sub-demand are ranks of its group.
4. The shares of an allotment are positive, and their sum is 1.

Source: SyCCL §4.1 (R_{k,d,g}), §4.2 (t_i).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from hccc.ir.arrays import I4


@dataclass(frozen=True, slots=True)
class SubDemand:
    """A sub-demand: what `sources` have shall reach `targets`, ranks of a dimension's group."""

    dimension: str
    group: int
    sources: tuple[int, ...]
    targets: tuple[int, ...]


Stage = tuple[SubDemand, ...]


@dataclass(frozen=True, slots=True)
class Sketch:
    """The stages of a sketch."""

    stages: tuple[Stage, ...]

    @property
    def root(self) -> int:
        """The rank that has the chunk at first."""
        return self.stages[0][0].sources[0]


@dataclass(frozen=True, slots=True)
class Allotment:
    """Sketches of one root, and the share of a chunk that each carries."""

    sketches: tuple[Sketch, ...]
    shares: tuple[Fraction, ...]


class SketchFault(NamedTuple):
    """A broken invariant. stage, demand: which sub-demand, None for none; rank: of its sources or
    targets, if it is about one."""

    message: str
    help: str
    stage: int | None = None
    demand: int | None = None
    rank: int | None = None


def check(s: Sketch, groups: Mapping[str, I4]) -> Iterator[SketchFault]:
    """Yields the invariants that `s` breaks. groups: of each dimension the group of each rank,
    i4[n], -1 for none."""
    n = len(next(iter(groups.values()))) if groups else 0
    have = {s.root}
    for k, stage in enumerate(s.stages):
        reached = set[int]()
        for j, demand in enumerate(stage):
            yield from _faults(demand, groups, have, reached, k, j)
            reached |= set(demand.targets)
        have |= reached
    if lacking := sorted(set(range(n)) - have):
        others = f", nor are {len(lacking) - 1} more" if lacking[1:] else ""
        yield SketchFault(f"rank {lacking[0]} is never reached{others}", "all ranks must be")


def _faults(
    demand: SubDemand, groups: Mapping[str, I4], have: set[int], reached: set[int], k: int, j: int
) -> Iterator[SketchFault]:
    """Yields the faults of sub-demand `j` of stage `k`. have: ranks with the chunk before the
    stage; reached: by the stage so far."""
    if demand.dimension not in groups:
        known = ", ".join(groups) or "no dimension"
        yield SketchFault(f"there is no dimension {demand.dimension}", f"there is {known}", k, j)
        return
    group = groups[demand.dimension]
    if not 0 <= demand.group <= int(group.max(initial=-1)):
        last = int(group.max(initial=-1))
        message = f"{demand.dimension} has no group {demand.group}"
        yield SketchFault(message, f"0 to {last}", k, j)
        return
    if k == 0 and demand.sources != (next(iter(have)),):
        help = "all sub-demands of the first stage have the root as their one source"
        yield SketchFault("the first stage has more than one source", help, k, j)
    seen = set[int]()
    for rank in (*demand.sources, *demand.targets):
        if not 0 <= rank < len(group):
            yield SketchFault(f"there is no rank {rank}", f"0 to {len(group) - 1}", k, j, rank)
        elif group[rank] != demand.group:
            message = f"rank {rank} is not in {demand.dimension} {demand.group}"
            help = f"it is in {demand.dimension} {group[rank]}"
            help = help if group[rank] >= 0 else f"it is in no {demand.dimension}"
            yield SketchFault(message, help, k, j, rank)
        elif rank in seen:
            yield SketchFault(f"rank {rank} is named twice", "once is enough", k, j, rank)
        seen.add(rank)
    for rank in demand.sources:
        if rank not in have:
            help = "sources have the chunk before the stage"
            yield SketchFault(f"rank {rank} does not have the chunk yet", help, k, j, rank)
    for rank in demand.targets:
        if rank in have or rank in reached:
            help = "every rank is reached once"
            yield SketchFault(f"rank {rank} has been reached before", help, k, j, rank)
