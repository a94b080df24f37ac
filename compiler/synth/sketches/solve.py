"""solve: which rank sends a chunk to which, in every sub-demand of a sketch.

Each target has one source within its sub-demand. Sub-demands that a move of ranks makes the same
(`symmetry`) are one class, which is solved once and copied (SyCCL §5.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I8, frozen
from hccc.ir.sketch import Sketch, SubDemand
from hccc.synth.sketches.symmetry import Symmetry

_Class = tuple[str, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A solved sketch. parent: i8[n] the rank that sends to each, -1 at the root; stage: i8[n] when
    it does, -1 at the root; order: i8[n] its place among what its parent sends in that stage."""

    parent: I8
    stage: I8
    order: I8

    def __post_init__(self) -> None:
        for name in ("parent", "stage", "order"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64))

    def moved(self, s: Symmetry) -> Tree:
        """Returns the tree with its root moved to rank 0."""
        root = int(np.flatnonzero(self.parent < 0)[0])
        if root == 0:
            return self
        at = s.minus(np.arange(len(s)), np.array(root))
        parent, stage, order = (np.empty(len(s), np.int64) for _ in range(3))
        parent[at] = np.where(self.parent < 0, -1, at[self.parent])
        stage[at], order[at] = self.stage, self.order
        return Tree(parent, stage, order)

    def carried(self) -> I8:
        """Returns how many ranks lie at or below each: i8[n]."""
        count = np.ones(len(self.parent), np.int64)
        for k in range(int(self.stage.max()), -1, -1):
            now = np.flatnonzero(self.stage == k)
            np.add.at(count, self.parent[now], count[now])
        return count


class Solver:
    """Solves sketches of one cluster; keeps what it found for each class of sub-demands."""

    def __init__(self, s: Symmetry) -> None:
        self.s = s
        self.solved = dict[_Class, I8]()

    def tree(self, sketch: Sketch) -> Tree:
        """Returns the tree of a sketch. O(ranks) where the classes are known."""
        n = len(self.s)
        parent, stage, order = (np.full(n, -1) for _ in range(3))
        for k, demands in enumerate(sketch.stages):
            sent = np.zeros(n, np.int64)
            for demand in reversed(demands):  # slow dimensions first
                targets = np.array(demand.targets)
                parent[targets] = self._sources(demand)
                stage[targets] = k
            for target in np.flatnonzero(stage == k).tolist():
                order[target] = sent[parent[target]]
                sent[parent[target]] += 1
        return Tree(parent, stage, order)

    def _sources(self, demand: SubDemand) -> I8:
        """Returns the source of each target: of its class, moved."""
        base = np.array(demand.sources[0])
        sources, targets = (np.array(ranks) for ranks in (demand.sources, demand.targets))
        apart = [self.s.minus(ranks, base) for ranks in (sources, targets)]
        key = (demand.dimension, tuple(apart[0].tolist()), tuple(apart[1].tolist()))
        if key not in self.solved:
            self.solved[key] = self._balanced(demand, *apart)
        return self.s.plus(self.solved[key], base)

    def _balanced(self, demand: SubDemand, sources: I8, targets: I8) -> I8:
        """Returns a source for each target: one that no lower dimension joins it with, where there
        is one; of these the least busy, then the one at the same place of its node."""
        lower = []
        for d in self.s.dimensions:
            if d.name == demand.dimension:
                break
            lower.append(d.group)
        busy, found = np.zeros(len(sources), np.int64), np.empty(len(targets), np.int64)
        for k, target in enumerate(targets.tolist()):
            joined = np.zeros(len(sources), np.bool_)
            for group in lower:
                joined |= group[sources] == group[target]
            elsewhere = self.s.local[sources] != self.s.local[target]
            best = int(np.lexsort((elsewhere, busy, joined))[0])
            busy[best] += 1
            found[k] = sources[best]
        return found
