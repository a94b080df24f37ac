"""flow: a Topology as a flow network, in which every route is a path.

Vertices are the ranks, then hubs (crossbars, leaves, spines, the core) and the two ends of every
resource that several routes share; each arc is one direction, with a capacity and a latency. A
port or NIC of one rank is an arc between rank and hub; a resource of several ranks is one arc
that all their routes share.

The network is a *relaxation*: every route of `routes` is a path from its source to its
destination that crosses only resources of the route, each with no more than half of its ports'
latency at either end. So no schedule can carry more than the network, or be faster. The network
is more generous than the Topology in these ways: two GPUs of a node may meet at a NIC's switch; a
pair with a link of its own may also go by switches; SWITCH groups do not hold a pair that goes by
a hub; a LIMIT group does not hold a pair that goes by uplinks; of ports with unequal latencies the
mean counts, not the larger; the links of meshes too large for `PAIRS` arcs are divided freely
among a rank's peers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import B1, I4, I8, Csr, frozen, places, starts
from hccc.ir.hashing import mixed
from hccc.ir.topology import F8, Level, Topology
from hccc.network.graph import HUBS, Edges, spokes
from hccc.network.routes import Router, router_of, routes

PAIRS = 1 << 17  # arcs for the links of meshes and for SWITCH groups, one a pair
MARKED = 64  # ranks that are marked in turn, to tell arcs apart
ROUNDS = 64  # of colour refinement, more than the diameter of a network


@dataclass(frozen=True, slots=True, eq=False)
class FlowNetwork:
    """A flow network; the first `ranks` of its `vertices` are ranks. Arcs: tail, head i8[m];
    capacity f8[m] GB/s (inf: free); alpha f8[m] µs; resource i8[m] as numbered in `routes`, -1 for
    none."""

    ranks: int
    vertices: int
    tail: I8
    head: I8
    capacity: F8
    alpha: F8
    resource: I8

    def reversed(self) -> FlowNetwork:
        """Returns the network with every arc in the other direction."""
        return FlowNetwork(
            self.ranks,
            self.vertices,
            self.head,
            self.tail,
            self.capacity,
            self.alpha,
            self.resource,
        )

    def crossing(self, inside: B1) -> B1:
        """Tells which arcs lead into a set of vertices: b1[m]."""
        into: B1 = ~inside[self.tail] & inside[self.head]
        return into

    def contracted(self, label: I8) -> FlowNetwork:
        """Merges groups of ranks to one rank each. label: i8[ranks], 0 to groups - 1."""
        groups = int(label.max()) + 1
        hubs = np.arange(self.vertices - self.ranks) + groups
        name = np.concatenate([label, hubs])
        tail, head = name[self.tail], name[self.head]
        kept = tail != head
        return FlowNetwork(
            groups,
            groups + len(hubs),
            tail[kept],
            head[kept],
            self.capacity[kept],
            self.alpha[kept],
            self.resource[kept],
        )


@dataclass(slots=True)
class _Arcs:
    """Arcs during construction, and the number of vertices so far."""

    vertices: int
    rows: list[tuple[I8, I8, F8, F8, I8]] = field(default_factory=list)

    def add(self, tail: I8, head: I8, capacity: F8, alpha: F8, resource: I8) -> None:
        """Adds arcs, whose columns are broadcast to one length."""
        columns = np.broadcast_arrays(tail, head, capacity, alpha, resource)
        self.rows.append(tuple(columns))  # type: ignore[arg-type]

    def free(self, tail: I8, head: I8) -> None:
        """Adds arcs without capacity or latency limits, each once."""
        pairs = np.unique(np.stack([tail, head], axis=1), axis=0)
        self.add(pairs[:, 0], pairs[:, 1], np.inf, 0.0, -1)  # type: ignore[arg-type]

    def new(self, count: int) -> I8:
        """Adds vertices and returns their numbers."""
        self.vertices += count
        return np.arange(self.vertices - count, self.vertices)

    def network(self, ranks: int) -> FlowNetwork:
        tail, head, capacity, alpha, resource = (
            np.concatenate(column) if self.rows else np.zeros(0)
            for column in (zip(*self.rows, strict=True) if self.rows else ((),) * 5)
        )
        return FlowNetwork(
            ranks,
            self.vertices,
            frozen(tail, np.int64),
            frozen(head, np.int64),
            frozen(capacity, np.float64),
            frozen(alpha, np.float64),
            frozen(resource, np.int64),
        )


def network(t: Topology) -> FlowNetwork:
    """Builds the flow network of a Topology. O(ranks + links + pairs of meshes and SWITCH
    groups)."""
    router = router_of(t)
    arcs = _Arcs(len(t))
    limits = _LimitGroups(t)
    held = np.flatnonzero(limits.between(t.node[t.link_src], t.node[t.link_dst]) >= 0)
    head = t.link_dst.astype(np.int64)
    head[held] = arcs.new(len(held))
    arcs.add(
        t.link_src,
        head,
        router.links,
        t.links.alpha,
        router.first_link + np.arange(len(t.links)),
    )
    _meshes(t, router, arcs)
    base, kinds = {"rank": 0}, [e for e in spokes(t) if e.above not in ("mesh", "switch")]
    for name in HUBS:
        last = [int(e.hub.max(initial=-1)) for e in kinds if e.above == name]
        last += [int(e.member.max(initial=-1)) for e in kinds if e.below == name]
        base[name] = int(arcs.new(max(last, default=-1) + 1).min(initial=arcs.vertices))
    leaves = _SplitLeaves(t, limits, arcs, base["leaf"], kinds) if limits.count else None
    for edges in kinds:
        _shared(t, arcs, edges, base, leaves)
    begin, end = _switches(t, router, arcs)
    if leaves is not None:
        number = limits.between(t.node[t.link_src[held]], t.node[t.link_dst[held]])
        arcs.free(head[held], begin[number])
        arcs.free(end[number], t.link_dst[held].astype(np.int64))
        leaves.join(arcs, limits, begin, end)
    return arcs.network(len(t))


class _LimitGroups:
    """The LIMIT group between two nodes, by their numbers. nodes: those that have a limit."""

    def __init__(self, t: Topology) -> None:
        x, y = (t.node[s.index[s.ptr[t.n_switches : -1]]] for s in (t.side_a, t.side_b))
        x, y = x.astype(np.int64), y.astype(np.int64)
        number = 2 * np.arange(t.n_switches, len(t.side_a))
        key = np.concatenate([x * t.n_nodes + y, y * t.n_nodes + x])
        order = np.argsort(key)
        self.n_nodes = t.n_nodes
        self.key, self.number = key[order], np.concatenate([number, number + 1])[order]
        self.nodes = np.unique(np.concatenate([x, y]))
        self.count = len(number)

    def between(self, x: I4 | I8, y: I4 | I8) -> I8:
        """Returns 2 · group (from SWITCH group 0) + direction from node x to y, -1 for none."""
        if not self.count:
            return np.full(len(x), -1)
        wanted = x.astype(np.int64) * self.n_nodes + y
        at = np.minimum(np.searchsorted(self.key, wanted), len(self.key) - 1)
        return np.where(self.key[at] == wanted, self.number[at], -1)


class _SplitLeaves:
    """The vertices of leaves in a Topology with limits.

    In a network without limits a leaf is one vertex. Here traffic between two nodes with a limit
    must pass its LIMIT group, so each node with a limit has vertices of its own at each of its
    leaves: `own_send` and `own_receive`, by (leaf, node) as in `key`. The other nodes of the leaf
    share `send` and `receive`; uplinks join `up` and `down`. Free arcs between them:

        send(leaf)           → receive(leaf), up(leaf), own_receive(leaf, any node)
        down(leaf)           → receive(leaf), own_receive(leaf, any node)
        own_send(leaf, x)    → receive(leaf), up(leaf)
        own_send(leaf, x)    → own_receive(leaf, y)                    x, y without a limit
        own_send(leaf, x)    → LIMIT group of x, y → own_receive(leaf, y)      with a limit
    """

    def __init__(
        self, t: Topology, limits: _LimitGroups, arcs: _Arcs, first: int, edges: list[Edges]
    ) -> None:
        nics = next(e for e in edges if e.above == "leaf")
        self.node, leaves = t.node.astype(np.int64), int(nics.hub.max(initial=-1)) + 1
        self.send, self.n_nodes = first + np.arange(leaves), t.n_nodes
        self.receive, self.up, self.down = (arcs.new(leaves) for _ in range(3))
        own = np.isin(self.node, limits.nodes)[nics.member]
        at = nics.hub[own].astype(np.int64) * self.n_nodes + self.node[nics.member[own]]
        self.key = np.unique(at)
        self.own_send, self.own_receive = arcs.new(len(self.key)), arcs.new(len(self.key))

    def nic_vertices(self, rank: I8, leaf: I8) -> tuple[I8, I8]:
        """Returns the vertices that the rank's NIC at a leaf sends to and receives from."""
        if not len(self.key):
            return self.send[leaf], self.receive[leaf]
        wanted = leaf.astype(np.int64) * self.n_nodes + self.node[rank]
        at = np.minimum(np.searchsorted(self.key, wanted), len(self.key) - 1)
        own = self.key[at] == wanted
        send = np.where(own, self.own_send[at], self.send[leaf])
        return send, np.where(own, self.own_receive[at], self.receive[leaf])

    def join(self, arcs: _Arcs, limits: _LimitGroups, begin: I8, end: I8) -> None:
        """Adds the free arcs. begin, end: the ends of all groups, by 2 · group + direction."""
        leaf, node = self.key // self.n_nodes, self.key % self.n_nodes
        for tail, head in (
            (self.send, self.receive),
            (self.send, self.up),
            (self.down, self.receive),
            (self.send[leaf], self.own_receive),
            (self.down[leaf], self.own_receive),
            (self.own_send, self.receive[leaf]),
            (self.own_send, self.up[leaf]),
        ):
            arcs.free(tail, head)
        a, b = (x.ravel() for x in np.indices((len(self.key),) * 2))
        both = (leaf[a] == leaf[b]) & (node[a] != node[b])
        a, b = a[both], b[both]
        number = limits.between(node[a], node[b])
        free, held = number < 0, number >= 0
        arcs.free(self.own_send[a[free]], self.own_receive[b[free]])
        arcs.free(self.own_send[a[held]], begin[number[held]])
        arcs.free(end[number[held]], self.own_receive[b[held]])


def _meshes(t: Topology, router: Router, arcs: _Arcs) -> None:
    """Adds the links between any two ranks of a mesh that have no direct link."""
    size = router.mesh_size.astype(np.int64)
    if int((size * (size - 1)).sum()) > PAIRS:
        rank = np.flatnonzero(t.mesh >= 0)
        mesh, hub = t.mesh[rank], arcs.new(len(size))[t.mesh[rank]]
        capacity, alpha = router.meshes[mesh] * (size[mesh] - 1), t.meshes.alpha[mesh] / 2
        none = np.full(len(rank), -1)
        arcs.add(rank, hub, capacity, alpha, none)
        arcs.add(hub, rank, capacity, alpha, none)
        return
    order = np.argsort(t.mesh, kind="stable")[np.count_nonzero(t.mesh < 0) :]
    first = starts(size)
    of = np.repeat(np.arange(len(size)), size**2)
    place = places(size**2)
    u, v = order[first[of] + place // size[of]], order[first[of] + place % size[of]]
    own = (u != v) & ~np.isin(u * len(t) + v, router.link_key)
    of, place = of[own], place[own]
    arcs.add(u[own], v[own], router.meshes[of], t.meshes.alpha[of], router.mesh_base[of] + place)


def _shared(
    t: Topology, arcs: _Arcs, e: Edges, base: dict[str, int], leaves: _SplitLeaves | None
) -> None:
    """Adds ports, NICs or uplinks: one arc if one vertex uses it, else an arc between two new
    ends."""
    member, hub = e.member.astype(np.int64) + base[e.below], e.hub.astype(np.int64) + base[e.above]
    if e.above == "port":
        meshed = _all_in_one_mesh(t, e)
        member, hub, rate = member[~meshed], hub[~meshed], e.rate[~meshed]
    else:
        rate = e.rate
    ends: list[tuple[NDArray[Any], NDArray[Any]]] = [(member, hub), (hub, member)]
    if leaves is not None and e.above == "leaf":
        send, receive = leaves.nic_vertices(e.member, e.hub)
        ends = [(member, send), (receive, member)]
    elif leaves is not None and e.below == "leaf":
        ends = [(leaves.up[e.member], hub), (hub, leaves.down[e.member])]
    group, at, users = np.unique(rate, return_inverse=True, return_counts=True)
    capacity, alpha = t.shared.capacity[group], t.shared.alpha[group] / 2
    for direction in (0, 1):
        tail, head = ends[direction]
        alone = users[at] == 1
        k = at[alone]
        arcs.add(tail[alone], head[alone], capacity[k], alpha[k], 2 * group[k] + direction)
        many = np.flatnonzero(users > 1)
        begin, end = np.zeros(len(group), np.int64), np.zeros(len(group), np.int64)
        begin[many], end[many] = arcs.new(len(many)), arcs.new(len(many))
        arcs.add(begin[many], end[many], capacity[many], alpha[many], 2 * group[many] + direction)
        arcs.free(tail[~alone], begin[at[~alone]])
        arcs.free(end[at[~alone]], head[~alone])


def _all_in_one_mesh(t: Topology, e: Edges) -> B1:
    """Tells which ranks are on a crossbar without traffic, since all its ranks are in one mesh:
    b1."""
    n = int(e.hub.max(initial=-1)) + 1
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, -1, np.int64)
    np.minimum.at(low, e.hub, t.mesh[e.member])
    np.maximum.at(high, e.hub, t.mesh[e.member])
    meshed: B1 = ((low == high) & (low >= 0))[e.hub]
    return meshed


def _switches(t: Topology, router: Router, arcs: _Arcs) -> tuple[I8, I8]:
    """Adds the SWITCH groups, and returns the ends of all groups, by 2 · group + direction.

    A pair of ranks that only SWITCH groups join gets a chain through all of its groups, the narrow
    sides outside, and then through its LIMIT group.
    """
    a, b = t.side_a.counts(), t.side_b.counts()
    if not len(a):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ends = 2 * (len(router.capacity) - t.first_switch)
    begin, end = arcs.new(ends), arcs.new(ends)
    k = t.first_switch + np.arange(ends) // 2
    alpha = np.where(t.level[k] == Level.SWITCH, t.shared.alpha[k], 0.0)
    free = 2 * t.first_switch + np.arange(ends)
    if not lists_switch_pairs(t):
        arcs.add(begin, end, router.capacity[k], alpha, free)
        for side, direction in ((t.side_a, 0), (t.side_b, 1)):
            joins = side.owner() < t.n_switches
            owner, rank = side.owner()[joins], side.index[joins]
            arcs.free(rank, begin[2 * owner + direction])
            arcs.free(end[2 * owner + 1 - direction], rank)
        return begin, end
    src, dst, uses = switch_pairs(t)
    owner, number = uses.owner(), uses.index - 2 * t.first_switch
    # A route's α is that of its slowest group; divided by the longest chain, no chain exceeds it.
    longest = np.ones(ends)
    np.maximum.at(longest, number, np.bincount(owner, minlength=len(src))[owner])
    arcs.add(begin, end, router.capacity[k], alpha / longest, free)
    group, back = number // 2, number % 2
    narrow = np.where(back == 0, a[group] - b[group], b[group] - a[group])
    order = np.lexsort((number, narrow, owner))
    owner, number = owner[order], number[order]
    another = owner[1:] != owner[:-1]
    first, last = np.r_[True, another][: len(owner)], np.r_[another, True][: len(owner)]
    arcs.free(src[owner[first]], begin[number[first]])
    arcs.free(end[number[last]], dst[owner[last]])
    arcs.free(end[number[:-1][~another]], begin[number[1:][~another]])
    return begin, end


def lists_switch_pairs(t: Topology) -> bool:
    """Tells whether a network has the pairs of its SWITCH groups one by one."""
    a, b = t.side_a.counts(), t.side_b.counts()
    return int((a * b).sum()) * 2 <= PAIRS


def switch_pairs(t: Topology) -> tuple[I4, I4, Csr]:
    """Returns the pairs of ranks that only SWITCH groups join: sources, destinations, i4[n] each,
    and the SWITCH and LIMIT groups of each, by their resources."""
    src, dst = _pairs(t)
    used = routes(t, src, dst)
    owner, number = used.uses.owner(), used.resource[used.uses.index]
    groups = np.minimum(number // 2, len(t.level) - 1)
    switch = (number < 2 * len(t.level)) & (t.level[groups] >= Level.SWITCH)
    only = np.ones(len(src), np.bool_)
    only[owner[~switch]] = False
    count = used.uses.counts()[only]
    return src[only], dst[only], Csr(starts(count), number[only[owner]])


def chains(t: Topology, net: FlowNetwork) -> B1:
    """Tells which arcs of a network are of the chains of pairs that SWITCH groups join: b1[m]."""
    group = np.where((net.resource >= 0) & (net.resource < 2 * len(t.level)), net.resource // 2, -1)
    mine = group >= 0
    mine[mine] = t.level[group[mine]] == Level.SWITCH
    end = np.zeros(net.vertices, np.bool_)
    end[net.tail[mine]] = end[net.head[mine]] = True
    found: B1 = end[net.tail] | end[net.head]
    return found


def _pairs(t: Topology) -> tuple[I4, I4]:
    """Returns all (source, destination) with a SWITCH group between them, each once."""
    a, b = t.side_a.counts()[: t.n_switches], t.side_b.counts()[: t.n_switches]
    of = np.repeat(np.arange(len(a)), a * b)
    place = places(a * b)
    u = t.side_a.index[t.side_a.ptr[of] + place // b[of]].astype(np.int64)
    v = t.side_b.index[t.side_b.ptr[of] + place % b[of]].astype(np.int64)
    key = np.unique(np.concatenate([u * len(t) + v, v * len(t) + u]))
    return (key // len(t)).astype(np.int32), (key % len(t)).astype(np.int32)


def colours(net: FlowNetwork, marked: I8 | None = None) -> I8:
    """Returns a number for each rank, equal for ranks that colour refinement cannot tell apart:
    i8[ranks].

    marked: i8[ranks], numbers that tell ranks apart from the start. Symmetric ranks always get one
    colour.
    """
    return np.unique(vertex_colours(net, marked)[: net.ranks], return_inverse=True)[1]


def vertex_colours(net: FlowNetwork, marked: I8 | None = None) -> I8:
    """Returns the `colours` of all vertices, 0 to the number of colours - 1: i8[vertices]. Any two
    vertices of one colour have equally many arcs of each capacity and latency from, and to, the
    vertices of any colour."""
    return np.unique(_refined(net, marked), return_inverse=True)[1]


def arc_colours(net: FlowNetwork) -> tuple[I8, I8]:
    """Returns colours of vertices, i8[vertices], and of arcs, i8[m], as finer refinement has them.

    Two links between ranks of one colour may differ for a third rank. So each of up to `MARKED`
    ranks is marked in turn; with more ranks colours are those of `vertex_colours`. O(ranks · arcs ·
    rounds).
    """
    base = _refined(net, None)
    vertex, arc = base.copy(), np.zeros(len(net.tail), np.uint64)
    ends = mixed(net.capacity.view(np.uint64)) + mixed(base[net.tail]) * np.uint64(3)
    arc += mixed(ends + base[net.head])
    if net.ranks <= MARKED:
        for rank in range(net.ranks):
            own = _refined(net, (np.arange(net.ranks) == rank).astype(np.int64))
            vertex += mixed(own)
            arc += mixed(mixed(own[net.tail]) * np.uint64(3) + own[net.head])
    found = (np.unique(x, return_inverse=True)[1] for x in (vertex, arc))
    return next(found), next(found)


def _refined(net: FlowNetwork, marked: I8 | None) -> NDArray[np.uint64]:
    """Returns the colours of vertices as hashes: u8[vertices]."""
    start = np.zeros(net.vertices, np.uint64)
    start[: net.ranks] = 1 if marked is None else marked + 2
    arc = mixed(mixed(net.capacity.view(np.uint64)) + net.alpha.view(np.uint64))
    colour: NDArray[np.uint64] = mixed(start)
    kinds = 0
    for _ in range(ROUNDS):
        out, into = np.zeros_like(colour), np.zeros_like(colour)
        np.add.at(out, net.tail, mixed(arc + colour[net.head]))
        np.add.at(into, net.head, mixed(arc ^ colour[net.tail]))
        colour = mixed(colour + mixed(out) * np.uint64(3) + into)
        if (count := len(np.unique(colour))) == kinds:
            break
        kinds = count
    return colour
