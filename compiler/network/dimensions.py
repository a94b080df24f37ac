"""dimensions: the levels at which a cluster joins ranks, and the groups of ranks at each.

SyCCL §3.1: the lowest dimension joins the ranks of a memory domain, as a rule a node; the next ones
those below a leaf (a *rail* where a node is below several), those below a spine, and all. Two ranks
that share groups of several dimensions are joined by the lowest. A level that joins no pair that a
lower one does not is no dimension: one leaf a node, one spine over one leaf.

Links and switches between nodes that are not NICs are no dimension, nor are limits between nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I4, I8, frozen, starts
from hccc.ir.topology import F8, Level, Topology
from hccc.network.routes import routes

NODE, RAIL, LEAF, SPINE, CORE = "node", "rail", "leaf", "spine", "core"
NAMES = (NODE, RAIL, LEAF, SPINE, CORE)
TRIED = 64  # distances between peers to try, of which the best tells the rates of a dimension
SAME = 1e-9  # part of a rate by which it may differ from an equal one


@dataclass(frozen=True, slots=True, eq=False)
class Dimension:
    """A dimension. group: i4[n] of each rank, from 0 by first rank, -1 for none; rate: f8[n] GB/s
    of each rank while all send to a peer of their group, 0 without one; alpha: µs, the longest."""

    name: str
    group: I4
    rate: F8
    alpha: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", frozen(self.group, np.int32))
        object.__setattr__(self, "rate", frozen(self.rate, np.float64))

    @property
    def sizes(self) -> I8:
        """The number of ranks of each group: i8[groups]."""
        return np.bincount(self.group[self.group >= 0])

    @property
    def alike(self) -> bool:
        """Whether all groups have as many ranks, and all ranks are in one, at the same rate."""
        sizes, least = self.sizes, float(self.rate.min())
        rates_alike = float(self.rate.max()) <= least * (1 + SAME)
        return bool((self.group >= 0).all() and (sizes == sizes[0]).all() and rates_alike)

    def members(self, group: int) -> I8:
        """Returns the ranks of a group, ascending."""
        return np.flatnonzero(self.group == group)

    def facts(self) -> dict[str, object]:
        """Returns the dimension for JSON; rates in GB/s, times in µs."""
        return {
            "name": self.name,
            "groups": [self.members(g).tolist() for g in range(len(self.sizes))],
            "alike": self.alike,
            "rate": [float(self.rate.min()), float(self.rate.max())],
            "alpha": self.alpha,
        }


def dimensions(t: Topology) -> tuple[Dimension, ...]:
    """Finds the dimensions of `t`, the lowest first. O(ranks), a few dozen times."""
    found = list[Dimension]()
    for name, label in _levels(t):
        group = _numbered(label)
        peer = _peers(group, [lower.group for lower in found])
        if peer is None:
            continue
        u = np.flatnonzero(peer >= 0).astype(np.int32)
        r = routes(t, u, peer[u].astype(np.int32))
        used = np.bincount(r.uses.index, minlength=len(r.capacity))
        share = (r.capacity / np.maximum(used, 1))[r.uses.index]
        rate = np.zeros(len(t))
        some = r.uses.counts() > 0
        rate[u[some]] = np.minimum.reduceat(share, r.uses.ptr[:-1][some])
        found.append(Dimension(name, group, rate, float(r.alpha.max(initial=0.0))))
    return tuple(found)


def _levels(t: Topology) -> Iterator[tuple[str, I8]]:
    """Yields each level that may be a dimension, with the group of each rank, -1 for none: i8[n].

    A rank crosses a level where it has a port there, and below it (`routes`).
    """
    node = t.dense_memory_domain().astype(np.int64)
    yield NODE, node
    able = t.port[Level.NIC] >= 0
    leaf, spine = (t.domain[level].astype(np.int64) for level in (Level.LEAF, Level.SPINE))
    below = np.unique(np.stack([node, leaf])[:, able], axis=1)
    several = bool((np.bincount(below[0], minlength=1) > 1).any())
    yield RAIL if several else LEAF, _among(leaf, able)
    able = able & (t.port[Level.LEAF] >= 0)
    yield SPINE, _among(spine, able)
    able = able & (t.port[Level.SPINE] >= 0)
    yield CORE, _among(np.zeros(len(t), np.int64), able)


def _among(domain: I8, able: np.ndarray) -> I8:
    """Returns the domain of each rank that is able to use it, -1 for the others: i8[n]."""
    return np.where(able, domain - domain.min(), -1)


def _numbered(label: I8) -> I8:
    """Numbers groups by their first ranks, from 0: i8[n], -1 for none."""
    found = np.full(len(label), -1)
    inside = np.flatnonzero(label >= 0)
    first, at = np.unique(label[inside], return_index=True, return_inverse=True)[1:]
    order = np.empty(len(first), np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    found[inside] = order[at]
    return found


def _peers(group: I8, lower: list[I4]) -> I8 | None:
    """Returns for each rank a peer in its group that no lower dimension joins it with, i8[n], -1
    where there is none: all the same distance on, so that few have the same peer. None: no rank
    has one."""
    inside = np.flatnonzero(group >= 0)
    if not len(inside):
        return None
    ranks = inside[np.argsort(group[inside], kind="stable")]
    size = np.bincount(group[inside])
    of, first = group[ranks], starts(size)
    place = np.arange(len(ranks)) - first[of]
    largest = int(size.argmax())
    own = ranks[first[largest] : first[largest + 1]]
    apart = np.flatnonzero(~_joined(lower, np.full(len(own), own[0]), own) & (own != own[0]))
    best: I8 | None = None
    for distance in apart[:TRIED].tolist():
        to = ranks[first[of] + (place + distance) % size[of]]
        to = np.where(_joined(lower, ranks, to) | (to == ranks), -1, to)
        if best is None or (to >= 0).sum() > (best >= 0).sum():
            best = to
        if (best >= 0).all():
            break
    if best is None:
        return None
    peer = np.full(len(group), -1)
    peer[ranks] = best
    return peer


def _joined(lower: list[I4], u: I8, v: I8) -> np.ndarray:
    """Tells which pairs of ranks some lower dimension joins: b1[len(u)]."""
    found = np.zeros(len(u), np.bool_)
    for group in lower:
        found |= (group[u] == group[v]) & (group[u] >= 0)
    return found
