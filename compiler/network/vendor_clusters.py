"""vendor_clusters: finds the vendor clusters of a Topology, and their border ranks.

The ranks of one vendor are a vendor cluster. Where a vendor's NICs carry twice as much as those of
another or more, its nodes may be several, each with about as much as the least (HetCCL §4.2.1,
§4.4): which is faster depends on the collective and the size of calls.
Border ranks are those of a node that are nearest to its NICs. What a cluster file says of either
goes before.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import I4, I8
from hccc.ir.job import MAX_WEIGHT, VendorClusters, vendor_clusters
from hccc.ir.topology import Level, Topology

F8 = NDArray[np.float64]
FINEST = 12  # the largest denominator of a ratio of two NICs' bandwidths


def divisions(t: Topology) -> tuple[VendorClusters, ...]:
    """Returns the vendor clusters of a cluster, and those with one of each vendor, if others."""
    split, whole = vendor_clusters_of(t), vendor_clusters_of(t, split=False)
    return (split,) if len(split) == len(whole) else (split, whole)


def vendor_clusters_of(t: Topology, *, split: bool = True) -> VendorClusters:
    """Returns the vendor clusters of a cluster, in the order of their first ranks. split: by the
    bandwidth of NICs."""
    vendor = np.array([device.vendor for device in t.devices])[t.device]
    of = _of_ranks(t, vendor, split)
    _, first = np.unique(of, return_index=True)
    rows = []
    for c in of[np.sort(first)].tolist():
        ranks = np.flatnonzero(of == c)
        border = _border(t, of, ranks)
        names = "+".join(dict.fromkeys(vendor[ranks].tolist()))
        rows.append((names, ranks.tolist(), border.tolist(), _weights(t, of, border)))
    return vendor_clusters(rows)


def _of_ranks(t: Topology, vendor: NDArray[np.str_], split: bool) -> I8:
    """Returns a number for each rank's vendor cluster: the file's, or one of its vendor: i8[n]."""
    of = np.full(len(t), -1) if not len(t.vendor_cluster) else t.vendor_cluster.astype(np.int64)
    left = of < 0
    next = int(of.max(initial=-1)) + 1
    named = [np.flatnonzero(of == c) for c in range(next)]
    found = [np.flatnonzero(left & (vendor == name)) for name in np.unique(vendor[left])]
    carried = [_carried(t, ranks) for ranks in (*named, *found) if len(ranks)]
    least = min((x for x in carried if x > 0), default=0.0)
    for ranks in found:
        for part in _split(t, ranks, least) if split else [ranks]:
            of[part] = next
            next += 1
    return of


def _carried(t: Topology, ranks: I8) -> float:
    """Returns the GB/s of all NICs of ranks in one direction."""
    nics = t.port[Level.NIC][ranks]
    return float(t.shared.capacity[np.unique(nics[nics >= 0])].sum())


def _split(t: Topology, ranks: I8, least: float) -> list[I8]:
    """Splits a vendor's ranks by whole nodes into parts of about `least` GB/s each."""
    nodes = np.unique(t.node[ranks])
    each = np.array([_carried(t, ranks[t.node[ranks] == node]) for node in nodes])
    total = float(each.sum())
    count = min(len(nodes), int(total / least)) if least > 0 else 1
    middle = np.cumsum(each) - each / 2
    part = np.minimum(middle * count // total, count - 1) if count > 1 else np.zeros(len(nodes))
    return [ranks[np.isin(t.node[ranks], nodes[part == k])] for k in np.unique(part)]


def _border(t: Topology, of: I8, ranks: I8) -> I8:
    """Returns the border ranks of a vendor cluster: by the file, else by NICs, else by links, else
    all."""
    if len(t.border) and t.border[ranks].any():
        return ranks[t.border[ranks] > 0]
    nic = t.port[Level.NIC][ranks]
    if (nic >= 0).any():
        far = np.where(nic >= 0, t.shared.alpha[nic], np.inf)
        nearest = np.full(t.n_nodes, np.inf)
        np.minimum.at(nearest, t.node[ranks], far)
        near: I8 = ranks[(nic >= 0) & (far <= nearest[t.node[ranks]])]
        return near
    linked: I8 = np.intersect1d(ranks, t.link_src[of[t.link_src] != of[t.link_dst]])
    return linked if len(linked) else ranks


def _weights(t: Topology, of: I8, border: I8) -> list[int]:
    """Returns the shares of border ranks in whole numbers, as the bandwidths of their NICs (each
    divided among those that share it) or of their links are."""
    rate = _rates(t, of, border)
    if not (rate > 0).all():
        return [1] * len(border)
    ratios = [Fraction(x / rate.min()).limit_denominator(FINEST) for x in rate.tolist()]
    common = lcm(*(ratio.denominator for ratio in ratios))
    whole = [int(ratio * common) for ratio in ratios]
    return [min(x // int(np.gcd.reduce(whole)), MAX_WEIGHT) for x in whole]


def _rates(t: Topology, of: I8, border: I8) -> F8:
    nic: I4 = t.port[Level.NIC][border]
    rate = np.zeros(len(border))
    has = nic >= 0
    sharing = np.bincount(nic[has], minlength=len(t.shared))
    rate[has] = t.shared.capacity[nic[has]] / sharing[nic[has]]
    across = of[t.link_src] != of[t.link_dst]
    direct = np.bincount(t.link_src[across], weights=t.links.capacity[across], minlength=len(t))
    return np.where(has, rate, direct[border])
