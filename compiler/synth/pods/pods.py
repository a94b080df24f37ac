"""pods: the parts of a cluster, which of them are alike, and the ranks where data enters them.

A *pod* is the ranks of one memory domain: a node, as a rule. A *plane* is a rank of each pod, its
*gateway*; gateways of a plane reach each other over the network: the first NICs of all nodes, or
the NICs on one rail. Only planes join pods. Two pods are of one *kind* where ranks of the same
place have routes of the same capacities that share resources in the same way, so that trees of the
one serve the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, permutations

import numpy as np

from hccc.ir.arrays import I8, places_among, starts
from hccc.ir.topology import Level, Topology
from hccc.network.routes import routes, unreachable


@dataclass(frozen=True, slots=True, eq=False)
class Pods:
    """N pods of n ranks. pod, local: i8[n] the pod of each rank, and its place there; ranks: i8[n]
    by pod, of pod x at first[x]:first[x + 1]; kind: i8[N], from 0; gateway: i8[N, planes] ranks, -1
    where a pod is not on a plane; joined: whether planes reach each other, then pods are on all."""

    pod: I8
    local: I8
    ranks: I8
    first: I8
    kind: I8
    gateway: I8
    joined: bool

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def size(self) -> I8:
        """The number of ranks of each pod: i8[N]."""
        return np.diff(self.first)

    def of(self, pod: int) -> I8:
        """Returns the ranks of a pod."""
        return self.ranks[self.first[pod] : self.first[pod + 1]]


def pods(t: Topology) -> Pods:
    """Finds the pods of `t`. O(ranks · ranks of a pod)."""
    pod = t.dense_memory_domain().astype(np.int64)
    ranks = np.argsort(pod, kind="stable")
    first = starts(np.bincount(pod))
    return Pods(pod, places_among(pod), ranks, first, _kinds(t, ranks, first), *_gateways(t, pod))


def _kinds(t: Topology, ranks: I8, first: I8) -> I8:
    """Returns the kind of each pod: pods whose inner routes are the same, but for the numbers of
    resources, have one."""
    kinds = dict[bytes, int]()
    found = []
    for begin, end in pairwise(first):
        own = ranks[begin:end].astype(np.int32)
        src, dst = (a[~np.eye(len(own), dtype=np.bool_)] for a in np.meshgrid(own, own))
        r = routes(t, src, dst)
        used, at = np.unique(r.uses.index, return_index=True)
        order = np.empty(len(r.capacity), np.int64)
        order[used[np.argsort(at)]] = np.arange(len(used))  # by first use
        capacity = r.capacity[used[np.argsort(at)]]
        nic = t.port[Level.NIC, own] >= 0
        what = (r.uses.ptr, order[r.uses.index], capacity, r.bandwidth, nic)
        key = b"".join(a.tobytes() for a in what)
        found.append(kinds.setdefault(key, len(kinds)))
    return np.array(found)


def _gateways(t: Topology, pod: I8) -> tuple[I8, bool]:
    """Returns `Pods.gateway` and `Pods.joined`: where all leaves reach each other, a pod's ranks
    with NICs share the planes; else a plane is on one leaf."""
    with_nic = t.port[Level.NIC] >= 0
    able = np.flatnonzero(with_nic | ~np.isin(pod, pod[with_nic]))  # all, of a pod without any
    leaf = t.domain[Level.LEAF][able]
    count = np.bincount(pod[able], minlength=int(pod.max()) + 1)
    if _joined(t, able, leaf):
        planes = int(count.max())
        of = np.repeat(np.arange(len(count)), planes)
        place = np.tile(np.arange(planes), len(count)) * count[of] // planes
        able = able[np.argsort(pod[able], kind="stable")]
        return able[starts(count)[of] + place].reshape(-1, planes), True
    again = places_among(pod[able] * (int(leaf.max()) + 2) + leaf)
    plane = np.unique(leaf * (int(again.max()) + 1) + again, return_inverse=True)[1]
    gateway = np.full((len(count), int(plane.max()) + 1), -1)
    gateway[pod[able], plane] = able
    return gateway, False


def _joined(t: Topology, able: I8, leaf: I8) -> bool:
    """Tells whether NICs on any two leaves reach each other, where these are of two nodes."""
    src, dst = list[int](), list[int]()
    groups = [able[leaf == one] for one in np.unique(leaf)]
    for a, b in permutations(groups, 2):
        other = b[t.node[b] != t.node[a[0]]]
        if len(other):
            src.append(int(a[0]))
            dst.append(int(other[0]))
    return not len(unreachable(t, np.array(src, np.int32), np.array(dst, np.int32)))
