"""symmetry: the moves of ranks that a cluster of alike nodes does not notice.

Every rank has coordinates: the spine, the leaf below it, the node below that (on rails only the
node); within the node the rail, the NIC on it, and its place at the NIC. Adding to coordinates,
each modulo its size, moves groups of every dimension to groups of the same dimension (SyCCL §4.2, H
and H_d), and there is one move of each rank to each other. Ranks, added and subtracted so, are
*differences*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hccc.base.diagnostics import UserError, fail
from hccc.ir.arrays import I8, frozen
from hccc.ir.topology import Level, Topology
from hccc.network.dimensions import NODE, RAIL, Dimension


@dataclass(frozen=True, slots=True, eq=False)
class Symmetry:
    """The moves of n ranks. dimensions: of the cluster; node, local: i8[n] of each rank; size:
    i8[axes]; at: i8[n, axes] the coordinates of each rank; rank: i8[∏ size] the rank at each."""

    dimensions: tuple[Dimension, ...]
    node: I8
    local: I8
    size: I8
    at: I8
    rank: I8

    def __post_init__(self) -> None:
        for name in ("node", "local", "size", "at", "rank"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64))

    def __len__(self) -> int:
        return len(self.at)

    def plus(self, a: I8, b: I8) -> I8:
        """Returns the ranks that b's coordinates beyond rank 0 lead to from `a`: i8, broadcast."""
        return self._of(self.at[a] + self.at[b])

    def minus(self, a: I8, b: I8) -> I8:
        """Returns the ranks that lie so from rank 0 as `a` from `b`: i8, broadcast."""
        return self._of(self.at[a] - self.at[b])

    def _of(self, coordinates: I8) -> I8:
        found: I8 = self.rank[self._key(coordinates % self.size)]
        return found

    def _key(self, coordinates: I8) -> I8:
        weights = np.append(np.cumprod(self.size[::-1])[::-1][1:], 1)
        found: I8 = coordinates @ weights
        return found


def symmetry(t: Topology, found: tuple[Dimension, ...]) -> Symmetry:
    """Returns the symmetry of `t`, of these dimensions.

    Raises:
        UserError: E451 no dimension joins nodes, or groups of one are unlike.
    """
    if not found or (found[0].name == NODE and len(found) == 1 and len(found[0].sizes) > 1):
        help = "it has links or switches between nodes, not NICs"
        raise fail("E451", "sketches need a dimension that joins all ranks", help=help)
    for d in found:
        if not d.alike:
            message = f"sketches need {d.name} groups that are alike"
            raise fail("E451", message, help="greedy and compose do without")
    n = len(t)
    node = found[0].group.astype(np.int64) if found[0].name == NODE else np.arange(n)
    nodes, gpus = int(node.max()) + 1, n // (int(node.max()) + 1)
    ranks = np.argsort(node, kind="stable").reshape(nodes, gpus)
    rails = any(d.name == RAIL for d in found)
    above = [d.group[ranks[:, 0]] for d in found[::-1] if d.name not in (NODE, RAIL)]
    tiers = (Level.SPINE, Level.LEAF) if rails else ()
    inside = [*(t.domain[level][ranks] for level in tiers), t.port[Level.NIC][ranks]]
    for label in inside:
        numbered = np.array([np.unique(row, return_inverse=True)[1] for row in label])
        if (numbered != numbered[0]).any():
            raise _unlike("nodes divide their GPUs among NICs or rails unequally")
    local_axes = _axes([label[0] for label in inside], gpus)
    node_axes = _axes(above, nodes)
    at = np.empty((n, len(node_axes) + len(local_axes)), np.int64)
    for k, axis in enumerate(node_axes):
        at[ranks, k] = axis[:, None]
    for k, axis in enumerate(local_axes, len(node_axes)):
        at[ranks, k] = axis[None, :]
    size = at.max(0) + 1
    weights = np.append(np.cumprod(size[::-1])[::-1][1:], 1)
    rank = np.empty(n, np.int64)
    rank[at @ weights] = np.arange(n)
    local = np.empty(n, np.int64)
    local[ranks] = np.arange(gpus)
    return Symmetry(found, node, local, size, at, rank)


def _axes(labels: Sequence[np.ndarray], count: int) -> list[I8]:
    """Returns the coordinates of `count` things, i8[count] each: their class of each label within
    the class of those before, and their place in it.

    Raises:
        UserError: E451 classes are unlike.
    """
    of, axes = np.zeros(count, np.int64), list[I8]()
    for label in [*labels, np.arange(count)]:
        pairs = np.stack([of, np.unique(label, return_inverse=True)[1]])
        classes, at = np.unique(pairs, axis=1, return_inverse=True)
        parents = np.bincount(classes[0])
        if (parents != parents[0]).any():
            raise _unlike("groups have unequal parts")
        axes.append((np.arange(len(classes[0])) % parents[0])[at.ravel()])
        of = at.ravel()
    sizes = np.bincount(of)
    if (sizes != 1).any():
        raise _unlike("groups have unequal parts")
    return axes


def _unlike(why: str) -> UserError:
    return fail(
        "E451",
        f"sketches need nodes that are alike: {why}",
        help="greedy and compose do without",
    )
