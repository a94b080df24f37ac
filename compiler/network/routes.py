"""routes: the resources that each transfer uses through a Topology, and its time.

All functions take src, dst: i4[n] and work in blocks of rows, so that memory beyond the result
does not grow with n. O(n · SWITCH groups of one pair of nodes), plus O(n log links); `resources`
and `cost` look at every pair of ranks only once.

A *resource* is a number: 2k and 2k + 1 for the two directions of shared group k, then the links,
then the pairs of meshes and crossbars (never stored), then the single uplinks of
leaves and spines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import B1, I4, I8, Csr, frozen, places_among, starts
from hccc.ir.topology import F8, US_PER_MB, Level, Topology, members

BLOCK = 1 << 18  # rows at a time: a dozen temporaries that stay in cache
PAIRS = 1 << 26  # tables of all pairs of ranks may have this many entries
SPARSE = 64  # and this many for each transfer
ROOM = 1 << 20  # resource numbers up to here are used as they are
ABOVE = (Level.LEAF, Level.SPINE)


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """The resources of n transfers. uses: Csr[n] of rows of `resource` (i8[R] numbers); capacity:
    f8[R] GB/s; bandwidth: f8[n] GB/s of a transfer alone on its route (0: no route); alpha: f8[n]
    µs."""

    uses: Csr
    resource: I8
    capacity: F8
    bandwidth: F8
    alpha: F8


@dataclass(slots=True, eq=False)
class _Block:
    """Some transfers while their routes are found.

    src, dst; bandwidth: GB/s of the narrowest resource so far; alpha: µs; reached: whether there is
    a
    route; columns: one i8[n] of resources for each step of all routes, -1 for none.

    tx and rx are the two *exclusive* resources of a transfer: no other transfer of its sub-pipeline
    may use them (HPDS, ResCCL §4.3). They are the narrowest resources of the route by fair share,
    the
    first of equals for tx and the last for rx, so that both ends of a route count; a direct link is
    both. share_tx, share_rx: their fair shares, the capacity in GB/s divided by the number of
    streams
    that may use the resource at once.
    """

    src: I4
    dst: I4
    bandwidth: F8
    alpha: F8
    reached: B1
    tx: I8
    rx: I8
    share_tx: F8
    share_rx: F8
    columns: list[I8]

    def use(self, where: B1, resource: I8, capacity: F8) -> None:
        """Adds a resource to the routes of the transfers `where`."""
        self.columns.append(np.where(where, resource, -1))
        self.bandwidth = np.where(where, np.minimum(self.bandwidth, capacity), self.bandwidth)

    def hold(self, where: B1, tx: I8, rx: I8, share_tx: F8, share_rx: F8) -> None:
        """Makes `tx` and `rx` the exclusive resources of the transfers `where`, if their shares are
        narrower.

        Of equals the first is sent by and the last received by: both ends of a route count.
        """
        out, into = where & (share_tx < self.share_tx), where & (share_rx <= self.share_rx)
        self.tx, self.rx = np.where(out, tx, self.tx), np.where(into, rx, self.rx)
        self.share_tx = np.where(out, share_tx, self.share_tx)
        self.share_rx = np.where(into, share_rx, self.share_rx)


class Router:
    """The tables for finding routes through one Topology. O(ranks + links + groups)."""

    def __init__(self, t: Topology) -> None:
        self.t = t
        self.capacity, self.links, self.meshes = (x.capacity for x in (t.shared, t.links, t.meshes))
        self.share = self.capacity / _sharers(t)
        self.link_key = t.link_src.astype(np.int64) * len(t) + t.link_dst
        self.first_link = 2 * len(t.shared)
        first_pair = self.first_link + len(t.links)
        self.mesh_place, self.mesh_size = _places(t.mesh)
        bar = t.domain[Level.PORT]
        self.bar_place, self.bar_size = _places(bar)
        sizes = np.concatenate([self.mesh_size, self.bar_size]).astype(np.int64) ** 2
        base = first_pair + starts(sizes)
        self.mesh_base, self.bar_base = np.split(base[:-1], [len(self.mesh_size)])
        self.first_uplink = int(base[-1])
        parallel = t.shared.parallel.astype(np.int64)
        self.uplink_base = self.first_uplink + 2 * (np.cumsum(parallel) - parallel)
        self.n_resources = self.first_uplink + 2 * int(parallel.sum())
        self.nic_place = {level: _nic_places(t, level) for level in ABOVE}
        self.a, self.b = members(t.side_a, t), members(t.side_b, t)
        self.a_node = t.node[t.side_a.index[t.side_a.ptr[:-1]]]  # sides count from their node
        self.switches = _by_nodes(t, 0, t.n_switches)
        self.limits = _by_nodes(t, t.n_switches, len(t.side_a))
        self.first_rank = t.first_rank

    def blocks(self, src: I4, dst: I4) -> Iterator[tuple[slice, _Block]]:
        """Yields the routes of all transfers, BLOCK rows at a time."""
        for begin in range(0, len(src), BLOCK):
            rows = slice(begin, min(begin + BLOCK, len(src)))
            yield rows, self._block(np.asarray(src[rows]), np.asarray(dst[rows]))

    def _block(self, src: I4, dst: I4) -> _Block:
        n = len(src)
        none = np.full(n, -1, np.int64)
        inf = np.full(n, np.inf)
        reached = np.zeros(n, np.bool_)
        b = _Block(src, dst, inf, np.zeros(n), reached, none, none, inf, inf, [])
        left = self._mesh(b, self._direct(b))
        inside = self.t.node[src] == self.t.node[dst]
        if left.any():
            self._crossbar(b, left & inside)
            self._network(b, left & ~inside)
            self._switch_groups(b, left)
        self._limits(b)
        b.bandwidth = np.where(b.reached, b.bandwidth, 0.0)
        return b

    def _direct(self, b: _Block) -> B1:
        """Routes transfers over direct links; returns the others."""
        if not len(self.link_key):
            return np.ones(len(b.src), np.bool_)
        key = b.src.astype(np.int64) * len(self.t) + b.dst
        at = np.minimum(np.searchsorted(self.link_key, key), len(self.link_key) - 1)
        linked = np.equal(self.link_key[at], key)
        self._own_link(b, linked, self.first_link + at, self.links[at], self.t.links.alpha[at])
        others: B1 = ~linked
        return others

    def _mesh(self, b: _Block, left: B1) -> B1:
        """Routes transfers over the links of meshes; returns the others."""
        mesh = self.t.mesh[b.src]
        meshed = left & (mesh >= 0) & (mesh == self.t.mesh[b.dst])
        if not meshed.any():
            return left
        pair = self.mesh_base[mesh] + self.mesh_place[b.src] * self.mesh_size[mesh]
        pair = pair + self.mesh_place[b.dst]
        self._own_link(b, meshed, pair, self.meshes[mesh], self.t.meshes.alpha[mesh])
        others: B1 = left & ~meshed
        return others

    def _own_link(self, b: _Block, where: B1, resource: I8, capacity: F8, alpha: F8) -> None:
        b.use(where, resource, capacity)
        b.hold(where, resource, resource, capacity, capacity)
        b.alpha = np.where(where, alpha, b.alpha)
        b.reached |= where

    def _crossbar(self, b: _Block, where: B1) -> None:
        """Routes transfers through crossbars. A port takes one stream per peer, so the pair is
        exclusive."""
        bar = self.t.domain[Level.PORT]
        where = where & (bar[b.src] >= 0) & (bar[b.src] == bar[b.dst])
        if not where.any():
            return
        self._ports(b, Level.PORT, where)
        at = bar[b.src]
        pair = self.bar_base[at] + self.bar_place[b.src] * self.bar_size[at]
        pair = pair + self.bar_place[b.dst]
        b.tx, b.rx = np.where(where, pair, b.tx), np.where(where, pair, b.rx)
        b.reached |= where

    def _ports(self, b: _Block, level: Level, where: B1) -> tuple[I4, I4]:
        """Adds the source's port out and the destination's port in, at one level; returns both."""
        out, into = self.t.port[level][b.src], self.t.port[level][b.dst]
        b.use(where, 2 * out.astype(np.int64), self.capacity[out])
        b.use(where, 2 * into.astype(np.int64) + 1, self.capacity[into])
        alpha = np.maximum(self.t.shared.alpha[out], self.t.shared.alpha[into])
        b.alpha = np.where(where, b.alpha + alpha, b.alpha)
        return out, into

    def _network(self, b: _Block, where: B1) -> None:
        """Routes transfers out by a NIC, up to the lowest switch above both NICs, and down
        again."""
        crossing = [(Level.NIC, where)]
        for level in ABOVE:
            domain = self.t.domain[level]
            where = where & (domain[b.src] != domain[b.dst])
            crossing.append((level, where))
        joined = crossing[0][1]
        for level, across in crossing:
            port = self.t.port[level]
            joined = joined & (~across | ((port[b.src] >= 0) & (port[b.dst] >= 0)))
        if not joined.any():
            return
        for level, across in crossing:
            if (across := across & joined).any():
                out, into = self._ports(b, level, across)
                tx, rx = self._uplinks(level, out, b.src, 0), self._uplinks(level, into, b.dst, 1)
                b.hold(across, tx, rx, self.share[out], self.share[into])
        b.reached |= joined

    def _uplinks(self, level: Level, group: I4, rank: I4, direction: int) -> I8:
        """Returns the exclusive resource of a group: a NIC itself, or one of its parallel uplinks,
        dealt out to NICs."""
        if level is Level.NIC:
            return 2 * group.astype(np.int64) + direction
        uplink = self.nic_place[level][rank] % self.t.shared.parallel[group]
        return self.uplink_base[group] + 2 * uplink + direction

    def _switch_groups(self, b: _Block, where: B1) -> None:
        """Adds the SWITCH groups with the source at one side and the destination at the other."""
        key, ptr, groups = self.switches
        if not len(key):
            return
        x, y = self.t.node[b.src].astype(np.int64), self.t.node[b.dst]
        wanted = np.minimum(x, y) * self.t.n_nodes + np.maximum(x, y)
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        count = np.where(where & (key[at] == wanted), ptr[at + 1] - ptr[at], 0)
        u, v = b.src - self.first_rank[x], b.dst - self.first_rank[y]
        slowest = np.zeros(len(x))
        for j in range(int(count.max(initial=0))):
            g = groups[np.where(j < count, ptr[at] + j, 0)]
            forth = (j < count) & self.a[g, u] & self.b[g, v] & (self.a_node[g] == x)
            back = (j < count) & self.b[g, u] & self.a[g, v] & (self.a_node[g] == y)
            k = g + self.t.first_switch
            resource = 2 * k + back
            b.use(forth | back, resource, self.capacity[k])
            b.hold(forth | back, resource, resource, self.share[k], self.share[k])
            slowest = np.maximum(slowest, np.where(forth | back, self.t.shared.alpha[k], 0.0))
            b.reached = b.reached | forth | back
        b.alpha = b.alpha + slowest

    def _limits(self, b: _Block) -> None:
        """Adds the LIMIT groups, shared by all routes between two nodes."""
        key, _, groups = self.limits
        if not len(key):
            return
        x, y = self.t.node[b.src].astype(np.int64), self.t.node[b.dst]
        wanted = np.minimum(x, y) * self.t.n_nodes + np.maximum(x, y)
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        held = b.reached & (key[at] == wanted)
        k = groups[at] + self.t.first_switch
        resource = 2 * k + (self.a_node[groups[at]] != x)
        b.use(held, resource, self.capacity[k])
        b.hold(held, resource, resource, self.share[k], self.share[k])
        b.alpha = np.where(held, np.maximum(b.alpha, self.t.shared.alpha[k]), b.alpha)

    def capacities(self, resource: I8) -> F8:
        """Returns the GB/s of resources that have a capacity: groups, links and the pairs of
        meshes."""
        return self._values(resource, self.capacity, self.links, self.meshes)

    def parallels(self, resource: I8) -> I4:
        """Returns how many parallel links each of the same resources has."""
        t = self.t
        of_kind = (t.shared.parallel, t.links.parallel, t.meshes.parallel)
        return self._values(resource, *of_kind).astype(np.int32)

    def _values(self, resource: I8, groups: F8 | I4, links: F8 | I4, meshes: F8 | I4) -> F8:
        """Returns the value of each resource, from those of groups, links and meshes."""
        group = np.minimum(resource // 2, max(len(self.capacity) - 1, 0))
        link = np.clip(resource - self.first_link, 0, max(len(self.links) - 1, 0))
        mesh = np.searchsorted(self.mesh_base, resource, side="right") - 1
        found = np.zeros(len(resource))
        first_pair = self.first_link + len(self.links)
        for where, values, at in (
            (resource < self.first_link, groups, group),
            ((resource >= self.first_link) & (resource < first_pair), links, link),
            (resource >= first_pair, meshes, mesh),
        ):
            if where.any():
                found[where] = values[at[where]]
        return found


@lru_cache(maxsize=4)  # some passes ask for a few routes at a time, thousands of times
def router_of(t: Topology) -> Router:
    """Returns the tables of a Topology, made once."""
    return Router(t)


def _places(domain: I4) -> tuple[I4, I4]:
    """Returns the place of each rank in its domain, and the size of every domain."""
    return places_among(domain), np.bincount(domain[domain >= 0])


def _nic_places(t: Topology, level: Level) -> I4:
    """Returns the place of each rank's NIC among the NICs below the same uplinks: i8[n]."""
    pair = t.port[level].astype(np.int64) * (len(t.shared) + 1) + t.port[Level.NIC]
    kinds, at = np.unique(pair, return_inverse=True)
    above = kinds // (len(t.shared) + 1)
    return places_among(above)[at]


def _sharers(t: Topology) -> I8:
    """Returns how many streams may use each group at once: i8[K], at least 1."""
    count = np.zeros(len(t.shared), np.int64)
    for level in range(len(t.port)):
        np.add.at(count, t.port[level][t.port[level] >= 0], 1)
    count[t.first_switch :] = np.minimum(t.side_a.counts(), t.side_b.counts())
    return np.maximum(count, 1)


def _by_nodes(t: Topology, begin: int, end: int) -> tuple[I8, I8, I8]:
    """Sorts some SWITCH or LIMIT groups by the pair of nodes they join: keys ascending, ptr,
    groups."""
    x, y = (t.node[s.index[s.ptr[begin:end]]].astype(np.int64) for s in (t.side_a, t.side_b))
    key = np.minimum(x, y) * t.n_nodes + np.maximum(x, y)
    order = np.argsort(key, kind="stable")
    keys, first = np.unique(key[order], return_index=True)
    return keys, np.append(first, len(order)), order + begin


def _pairs(t: Topology, src: I4, dst: I4) -> tuple[I4, I4, I4]:
    """Returns the distinct pairs of ranks as src, dst, and the pair of every transfer: i4[n]."""
    n = len(t)
    key = src.astype(np.int64) * n + dst
    if n * n > min(PAIRS, SPARSE * len(key)):
        pairs, pair = np.unique(key, return_inverse=True)
    else:
        number = np.zeros(n * n, np.int32)
        number[key] = 1
        pairs = np.flatnonzero(number)
        number[pairs] = np.arange(len(pairs), dtype=np.int32)
        pair = number[key]
    return pairs // n, pairs % n, pair


def resources(t: Topology, src: I4, dst: I4) -> tuple[I4, I4]:
    """Returns the two exclusive resources of each transfer, tx and rx (`_Block`): i4[n] each.

    No two transfers of a sub-pipeline share them (HPDS, ResCCL §4.3). Both are the same if a link
    is not shared.
    """
    router = router_of(t)
    src, dst, pair = _pairs(t, src, dst)
    tx, rx = np.empty(len(src), np.int64), np.empty(len(src), np.int64)
    for rows, block in router.blocks(src, dst):
        tx[rows], rx[rows] = block.tx, block.rx
    if router.n_resources > max(ROOM, 8 * len(pair)):
        dense = np.unique(np.concatenate([tx, rx]), return_inverse=True)[1]
        tx, rx = dense[: len(src)], dense[len(src) :]
    return frozen(tx, np.int32)[pair], frozen(rx, np.int32)[pair]


def cost(t: Topology, src: I4, dst: I4) -> F8:
    """Returns the µs that one micro-batch takes alone on each transfer's route: f8[n]; inf without
    a route."""
    src, dst, pair = _pairs(t, src, dst)
    time = np.empty(len(src))
    for rows, block in router_of(t).blocks(src, dst):
        with np.errstate(divide="ignore"):
            time[rows] = block.alpha + t.chunk / (block.bandwidth * US_PER_MB)
    times: F8 = time[pair]
    return times


def unreachable(t: Topology, src: I4, dst: I4) -> I8:
    """Finds the transfers without a route: row numbers, ascending."""
    bad = [
        np.flatnonzero(~block.reached) + rows.start for rows, block in router_of(t).blocks(src, dst)
    ]
    return np.concatenate([np.zeros(0, np.int64), *bad])


def routes(t: Topology, src: I4, dst: I4) -> Routes:
    """Returns all resources of each transfer. Takes O(n · longest route) memory."""
    router = router_of(t)
    counts, used = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)]
    bandwidth, alpha = np.empty(len(src)), np.empty(len(src))
    for rows, block in router.blocks(src, dst):
        none = [np.full(len(block.src), -1, np.int64)]  # no transfer has a route
        table: NDArray[np.int64] = np.stack(block.columns or none, axis=1)
        counts.append(np.count_nonzero(table >= 0, axis=1))
        used.append(table[table >= 0])
        bandwidth[rows], alpha[rows] = block.bandwidth, block.alpha
    numbers, at = np.unique(np.concatenate(used), return_inverse=True)
    uses = Csr(np.cumsum(np.concatenate(counts)), at)
    capacity = router.capacities(numbers)
    return Routes(uses, frozen(numbers, np.int64), capacity, bandwidth, alpha)
