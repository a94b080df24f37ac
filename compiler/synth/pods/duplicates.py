"""duplicates: chunks that ranks get over the network though their pod has them already.

Where links within a pod are scarce (NVLink of an H800 beside a NIC for each GPU), a rank is served
sooner if its NIC brings some of the chunks that its neighbours got. Each such copy takes the place
of the last transfer along a tree: over the plane of its rank, from the pod where the chunk starts.
Copies are put into classes (by distance between pods, and between places) that load all planes
alike, and as many classes are taken, evenly, as make the pod's links and the network finish
together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import B1, I8
from hccc.ir.topology import F8, Topology
from hccc.network.routes import routes


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """m transfers, some of which may have another source: chunk, src, dst, step i8[m]; other: i8[m]
    a rank of another pod that could send instead, -1 for none; later: i8[m] the step of that;
    group: i8[m] the class, from 0."""

    chunk: I8
    src: I8
    dst: I8
    step: I8
    other: I8
    later: I8
    group: I8

    def resent(self, chosen: B1) -> Moves:
        """Returns the same with `chosen`, b1[m], from their other sources."""
        src, step = np.where(chosen, self.other, self.src), np.where(chosen, self.later, self.step)
        return Moves(self.chunk, src, self.dst, step, self.other, self.later, self.group)


class _Loads:
    """The resources of transfers from either source, for the times of the busiest."""

    def __init__(self, t: Topology, m: Moves, pod: I8, turned: bool) -> None:
        self.n, self.m = len(t), m
        able = m.other >= 0
        key = np.concatenate([m.src * self.n + m.dst, (m.other * self.n + m.dst)[able]])
        pair, at = np.unique(key, return_inverse=True)
        src, dst = np.divmod(pair, self.n)
        ends = (dst, src) if turned else (src, dst)
        found = routes(t, *(end.astype(np.int32) for end in ends))
        self.own, self.instead = at[: len(m.src)], np.full(len(m.src), -1)
        self.instead[able] = at[len(m.src) :]
        self.bad = found.bandwidth[self.instead] <= 0
        self.uses, self.capacity, self.pairs = found.uses, found.capacity, len(pair)
        self.network = np.zeros(len(found.capacity), np.bool_)
        self.network[found.uses.index[(pod[src] != pod[dst])[found.uses.owner()]]] = True

    def times(self, chosen: B1) -> tuple[float, float]:
        """Returns the loads of the busiest resource within pods and of the network's, where
        `chosen` have their other sources: chunks over GB/s."""
        count = np.bincount(np.where(chosen, self.instead, self.own), minlength=self.pairs)
        used = np.bincount(self.uses.index, count[self.uses.owner()], len(self.capacity))
        time: F8 = used / self.capacity
        return (
            float(time[~self.network].max(initial=0.0)),
            float(time[self.network].max(initial=0.0)),
        )


def duplicated(t: Topology, m: Moves, pod: I8, turned: bool = False) -> tuple[Moves, float]:
    """Returns `m`, with duplicates where that is faster, and the load of its busiest resource:
    chunks over GB/s. pod: i8[n]; turned: links are turned round. O(transfers · log classes)."""
    loads = _Loads(t, m, pod, turned)
    able = (m.other >= 0) & ~loads.bad
    classes = int(m.group[able].max(initial=-1)) + 1

    def chosen(some: int) -> B1:
        before, after = ((m.group + k) * some // max(1, classes) for k in (0, 1))
        evenly: B1 = able & (after > before)
        return evenly

    least, most = 0, classes  # with `least` pods wait for their links, with `most` not
    while least < most:
        middle = (least + most) // 2
        within, network = loads.times(chosen(middle))
        if within > network:
            least = middle + 1
        else:
            most = middle
    time, best = min((max(loads.times(chosen(k))), k) for k in {max(0, most - 1), most})
    return m.resent(chosen(best)), time
