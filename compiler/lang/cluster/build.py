"""build: Site to Topology: every kind of node once, repeated as arrays, then without failed parts.

Printing and parsing are exact because groups have one order: node by node the ports, then node by
node the NICs, then leaves, spines, SWITCH groups within nodes, SWITCH groups between nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from hccc.ir.arrays import B1, I8, starts
from hccc.ir.device import Device, Network
from hccc.ir.topology import F8, Level, Rate, Rates, Topology
from hccc.lang.cluster.build_tables import (
    RateRows,
    as_rates,
    as_table,
    compressed,
    dense,
    members,
    pick,
    working,
)
from hccc.lang.cluster.site import Between, Degraded, NodeKind, ResolvedEntry, Site, Tier
from hccc.lang.mistakes import Mistake


def build(site: Site) -> Topology:
    """Builds the Topology of a site. Raises `Mistake`. Linear in its links, ranks and group
    members."""
    return _TopologyBuilder(site).topology()


class _TopologyBuilder:
    """Gathers arrays over all GPUs, failed ones too, until `_assemble` renumbers the working ones
    as ranks."""

    def __init__(self, site: Site) -> None:
        self.site = site
        kinds = site.kinds
        self.sizes = np.repeat([k.size for k in kinds], [k.count for k in kinds])
        self.first = starts(self.sizes)
        n = int(self.first[-1])
        self.n = n
        self.node = np.repeat(np.arange(site.n_nodes), self.sizes)
        self.local = np.arange(n) - self.first[self.node]
        self.port, self.domain = np.full((4, n), -1), np.full((4, n), -1)
        self.mesh, self.meshes, self.links, self.shared = (
            np.full(n, -1),
            RateRows(),
            RateRows(),
            RateRows(),
        )
        self.level: list[I8] = []
        self.a: list[tuple[I8, I8]] = []  # (group, GPU) rows of side A, and of side B
        self.b: list[tuple[I8, I8]] = []
        self.nic_number: I8 = np.zeros(0, np.int64)
        self.groups: dict[tuple[str, int], int] = {}  # (link or tier, number) -> its first group

    def topology(self) -> Topology:
        """Returns the Topology; adds all parts in the order that the module states."""
        for level, link in ((Level.PORT, "port"), (Level.NIC, "nic")):
            for i, kind in enumerate(self.site.kinds):
                self._ports(i, kind, level, kind.entries(link))
        for kind in self.site.kinds:
            self._links(kind)
        self._tiers()
        first_switch = self._n_groups()
        for i, kind in enumerate(self.site.kinds):
            self._switches(i, kind, first_switch)
        for between in self.site.between:
            self._between(between, first_switch)
        self._limits(first_switch)
        links = self._degrade()
        self._fail_nics()
        return self._assemble(*links)

    def _n_groups(self) -> int:
        return sum(map(len, self.level))

    def _nodes(self, kind: NodeKind) -> I8:
        """Returns the first GPU of each node of a kind: i8[count, 1]."""
        return self.first[kind.first : kind.first + kind.count, None]

    def _groups(self, level: Level, rates: Sequence[Rate], repeat: int) -> I8:
        """Adds groups and returns their numbers, i8[repeat, len(rates)]."""
        begin = self._n_groups()
        count = repeat * len(rates)
        self.level.append(np.full(count, level))
        self.shared.add(np.zeros((0, 2), np.int64), rates, repeat)
        return begin + np.arange(count).reshape(repeat, len(rates))

    def _ports(self, i: int, kind: NodeKind, level: Level, entries: list[ResolvedEntry]) -> None:
        """Adds a port for every GPU of an entry, or one NIC for all of them."""
        if not entries:
            return
        own = level is Level.PORT
        rates = [e.rate for e in entries for _ in (e.a if own else [0])]
        groups = self._groups(level, rates, kind.count)
        self.groups[level.name.lower(), i] = int(groups[0, 0])
        gpus = np.array([gpu for e in entries for gpu in e.a])
        column = (
            np.arange(len(gpus))
            if own
            else np.repeat(np.arange(len(entries)), [len(e.a) for e in entries])
        )
        at = self._nodes(kind) + gpus
        self.port[level, at] = groups[:, column]
        self.domain[level, at] = self.node[at]

    def _links(self, kind: NodeKind) -> None:
        """Adds direct links and meshes of all nodes of a kind."""
        if entries := kind.entries("direct"):
            ends = np.array([(*e.a, *e.b) for e in entries])
            both = self._nodes(kind)[:, :, None] + ends[None]
            self.links.add(both.reshape(-1, 2), [e.rate for e in entries], kind.count)
        entries = kind.entries("mesh")
        begin = sum(map(len, self.meshes.rate))
        for j, entry in enumerate(entries):
            at = self._nodes(kind) + np.array(entry.a)
            self.mesh[at] = begin + np.arange(kind.count)[:, None] * len(entries) + j
        if entries:
            self.meshes.add(np.zeros((0, 2), np.int64), [e.rate for e in entries], kind.count)

    def _switches(self, i: int, kind: NodeKind, first_switch: int) -> None:
        if not (entries := kind.entries("switch")):
            return
        groups = self._groups(Level.SWITCH, [e.rate for e in entries], kind.count) - first_switch
        self.groups["switch", i] = int(groups[0, 0]) + first_switch
        self._sides(groups, self._nodes(kind), self._nodes(kind), entries)

    def _sides(self, groups: I8, first_a: I8, first_b: I8, entries: list[ResolvedEntry]) -> None:
        """Adds the members of groups i8[repeat, entries]; first_a, first_b: the first GPU of each
        side's node."""
        for j, entry in enumerate(entries):
            for into, first, gpus in ((self.a, first_a, entry.a), (self.b, first_b, entry.b)):
                group = np.repeat(groups[:, j], len(gpus))
                into.append((group, (first + np.array(gpus)).ravel()))

    def _between(self, between: Between, first_switch: int) -> None:
        """Adds the links and switches of every pair of the nodes, in the order they are named."""
        pairs = np.array(list(combinations(between.nodes, 2)))
        x, y = self.first[pairs[:, 0], None], self.first[pairs[:, 1], None]
        entries = _resolved(between, "direct", self.site)
        if entries:
            ends = np.stack(
                [x + np.array([e.a[0] for e in entries]), y + np.array([e.b[0] for e in entries])],
                axis=2,
            )
            self.links.add(ends.reshape(-1, 2), [e.rate for e in entries], len(pairs))
        if entries := _resolved(between, "switch", self.site):
            groups = (
                self._groups(Level.SWITCH, [e.rate for e in entries], len(pairs)) - first_switch
            )
            self._sides(groups, x, y, entries)

    def _limits(self, first_switch: int) -> None:
        """Adds a LIMIT group for every pair of nodes that `define degraded` names."""
        slow = {
            (min(e.number, other), max(e.number, other)): e.rate
            for e in self.site.degraded
            if e.kind == "node"
            for other in e.ids or []
        }
        for nodes, s in sorted(slow.items()):
            rate = Rate(s.bandwidth, s.parallel, s.alpha or 0.0)
            group = self._groups(Level.LIMIT, [rate], 1)[0] - first_switch
            for into, node in zip((self.a, self.b), nodes, strict=True):
                gpus = np.arange(self.first[node], self.first[node + 1])
                into.append((np.repeat(group, len(gpus)), gpus))

    def _fail_nics(self) -> None:
        """Takes failed NICs from their GPUs."""
        gone: set[int] = set()
        for node, nic, at in self.site.failed_nics:
            i = self.site.kind_number(node)
            kind = self.site.kinds[i]
            first = self.groups["nic", i] + (node - kind.first) * len(kind.written["nic"])
            if first + nic in gone:
                raise Mistake("E134", f"NIC {nic} of node{node + 1} failed twice", at)
            gone.add(first + nic)
        without = np.isin(self.port[Level.NIC], list(gone))
        for level in (Level.NIC, Level.LEAF, Level.SPINE):
            self.port[level, without] = self.domain[level, without] = -1

    def _tiers(self) -> None:
        """Adds leaves and spines; without any, one switch joins all NICs."""
        wired = self.port[Level.NIC] >= 0
        self.domain[Level.LEAF, wired] = self.domain[Level.SPINE, wired] = 0
        if not self.site.leaves:
            return
        self.domain[Level.LEAF] = -1
        self.nic_number = self._nic_number()
        for number, tier in enumerate(self.site.leaves):
            below = self._below_leaf(tier)
            if (self.domain[Level.LEAF, below] >= 0).any():
                raise Mistake("E134", "a NIC here is below another leaf already", tier.at)
            self._tier(Level.LEAF, number, tier, below)
        for gpu in np.flatnonzero(wired & (self.domain[Level.LEAF] < 0)):
            where = f"node{self.node[gpu] + 1}"
            message = f"the NIC of GPU {self.local[gpu]} of {where} is below no leaf"
            raise Mistake("E135", message, self.site.kind(int(self.node[gpu])).at)
        self._spines(wired)

    def _spines(self, wired: B1) -> None:
        if not self.site.spines:
            return
        self.domain[Level.SPINE] = -1
        for number, tier in enumerate(self.site.spines):
            below = np.isin(self.domain[Level.LEAF], tier.below[0][0]) & wired
            if (self.domain[Level.SPINE, below] >= 0).any():
                raise Mistake("E134", "a leaf here is below another spine already", tier.at)
            self._tier(Level.SPINE, number, tier, below)
        for leaf in np.unique(self.domain[Level.LEAF, wired & (self.domain[Level.SPINE] < 0)]):
            tier = self.site.leaves[leaf]
            raise Mistake("E135", f"leaf{leaf + 1} is below no spine", tier.at)

    def _below_leaf(self, tier: Tier) -> B1:
        below, numbers = np.zeros(self.n, np.bool_), self.nic_number
        for nodes, nics in tier.below:
            mine = np.isin(self.node, nodes) & (self.port[Level.NIC] >= 0)
            below |= mine if nics is None else mine & np.isin(numbers, nics)
        if not below.any():
            raise Mistake("E134", "no NIC is below this leaf", tier.at, "`define nic` comes before")
        return below

    def _nic_number(self) -> I8:
        """Returns the number of each GPU's NIC in its node; -1 without one."""
        first, group = np.zeros(self.n, np.int64), self.port[Level.NIC]
        for i, kind in enumerate(self.site.kinds):
            if ("nic", i) in self.groups:
                count = len(kind.written["nic"])
                mine = slice(self.first[kind.first], self.first[kind.first + kind.count])
                first[mine] = self.groups["nic", i] + (self.node[mine] - kind.first) * count
        return np.where(group >= 0, group - first, -1)

    def _tier(self, level: Level, number: int, tier: Tier, below: B1) -> None:
        self.domain[level, below] = number
        if (s := tier.uplinks) is not None:
            default = self.site.outside[level.name.lower()]
            rate = Rate(s.bandwidth, s.parallel, default if s.alpha is None else s.alpha)
            group = self._groups(level, [rate], 1)
            self.groups[level.name.lower(), number] = int(group[0, 0])
            self.port[level, below] = group[0, 0]

    def _degrade(self) -> tuple[I8, Rates, Rates]:
        """Returns the ends and rates of links, and the rates of groups, after `define degraded`."""
        table, (key, wires) = as_table(self.shared.rates()), self._sorted_links()
        meshes = self.meshes.rates()
        slow: dict[int, list[float]] = {}
        for entry in self.site.degraded:
            if entry.kind == "node":
                continue
            if entry.kind != "direct":
                for group in self._affected(entry):
                    table[group] = _slowed(entry, table[group, 2])
                continue
            u, v = (int(self.first[entry.number]) + gpu for gpu in entry.ids or [])
            at, name = int(np.searchsorted(key, u * self.n + v)), u * self.n + v
            if at < len(key) and key[at] == name:
                wires[at] = _slowed(entry, wires[at, 2])
            elif self.mesh[u] >= 0 and self.mesh[u] == self.mesh[v]:
                # A direct link takes precedence over the mesh, whose other links keep their rate.
                slow[name] = _slowed(entry, meshes.alpha[self.mesh[u]])
            else:
                message = f"there is no link from {self._gpu(u)} to {self._gpu(v)}"
                raise Mistake("E132", message, entry.at)
        key = np.concatenate([key, np.array(list(slow), np.int64)])
        wires = np.concatenate([wires, np.array(list(slow.values())).reshape(-1, 3)])
        order = np.argsort(key, kind="stable")
        ends = np.stack([key // self.n, key % self.n], axis=1)
        return ends[order], as_rates(wires[order]), as_rates(table)

    def _sorted_links(self) -> tuple[I8, F8]:
        """Returns direct links by source and destination: source · n + destination, and their
        rates."""
        ends = np.concatenate([np.zeros((0, 2), np.int64), *self.links.ids])
        key = ends[:, 0] * self.n + ends[:, 1]
        order = np.argsort(key, kind="stable")
        key = key[order]
        if (again := np.flatnonzero(key[1:] == key[:-1])).size:
            u, v = divmod(int(key[again[0]]), self.n)
            message = f"the link from {self._gpu(u)} to {self._gpu(v)} is there twice"
            raise Mistake("E134", message, self.site.kind(int(self.node[u])).at)
        return key, as_table(self.links.rates())[order]

    def _gpu(self, gpu: int) -> str:
        return f"GPU {self.local[gpu]} of node{self.node[gpu] + 1}"

    def _affected(self, entry: Degraded) -> list[int]:
        """Returns the groups that a degraded entry names."""
        if entry.kind in ("leaf", "spine"):
            if (entry.kind, entry.number) not in self.groups:
                raise Mistake("E132", f"this {entry.kind} has no uplinks", entry.at)
            return [self.groups[entry.kind, entry.number]]
        i = self.site.kind_number(entry.number)
        kind = self.site.kinds[i]
        if (entry.kind, i) not in self.groups:
            raise Mistake("E132", f"node{entry.number + 1} has no {entry.kind}", entry.at)
        if entry.kind == "port":
            gpus = slice(self.first[entry.number], self.first[entry.number + 1])
            ports = self.port[Level.PORT, gpus]
            ports = ports if entry.ids is None else ports[entry.ids]
            return [int(p) for p in ports if p >= 0]
        count = len(kind.written[entry.kind])
        first = self.groups[entry.kind, i] + (entry.number - kind.first) * count
        return [first + k for k in (range(count) if entry.ids is None else entry.ids)]

    def _assemble(self, ends: I8, links: Rates, shared: Rates) -> Topology:
        """Makes the Topology of the working GPUs, without the groups that none of them uses."""
        alive, failed = self._alive()
        rank = np.cumsum(alive) - 1
        stays = alive[ends[:, 0]] & alive[ends[:, 1]]
        mesh, meshes = dense(self.mesh[alive], self.meshes.rates(), least=2)
        sides = [working(rows, alive, rank) for rows in (self.a, self.b)]
        level = np.concatenate([np.zeros(0, np.int64), *self.level])
        n_switch = int(np.count_nonzero(level >= Level.SWITCH))
        used = np.zeros(len(level), np.bool_)
        port = self.port[:, alive]
        used[port[port >= 0]] = True
        full = [np.bincount(group, minlength=n_switch) > 0 for group, _ in sides]
        switch = full[0] & full[1]
        used[len(level) - n_switch :] = switch
        number = np.cumsum(used) - 1
        kept = [members(group, gpu, switch) for group, gpu in sides]
        devices, device = self._devices(alive)
        networks, network = self._networks()
        kinds = self.site.kinds
        return Topology(
            devices=devices,
            node=self.node[alive],
            local=self.local[alive],
            device=device,
            node_size=self.sizes,
            failed=failed,
            link_src=rank[ends[stays, 0]],
            link_dst=rank[ends[stays, 1]],
            links=pick(links, stays),
            mesh=mesh,
            meshes=meshes,
            level=level[used],
            shared=pick(shared, used),
            port=np.where(port >= 0, number[port] if len(number) else -1, -1),
            domain=np.stack(
                [
                    compressed(row) if i != Level.NIC else row
                    for i, row in enumerate(self.domain[:, alive])
                ]
            ),
            memory_domain=self._memory_domain(alive),
            side_a=kept[0],
            side_b=kept[1],
            chunk=self.site.chunk,
            cores=np.repeat([k.cores for k in kinds], [k.count for k in kinds]),
            launch=np.repeat([k.launch for k in kinds], [k.count for k in kinds], axis=0),
            networks=networks,
            network=network,
            vendor_cluster=self._vendor_cluster()[alive if self.site.clusters else []],
            border=self._named_border()[alive if self.site.borders else []],
        )

    def _vendor_cluster(self) -> I8:
        found = np.full(self.n, -1)
        for number, gpus in enumerate(self.site.clusters):
            found[[self.first[node] + gpu for node, gpu in gpus]] = number
        return found

    def _named_border(self) -> I8:
        found = np.zeros(self.n, np.int64)
        for node, gpu in self.site.borders:
            found[self.first[node] + gpu] = 1
        return found

    def _memory_domain(self, alive: B1) -> I8:
        """Returns for every rank the node of the first rank of its memory domain."""
        of_node = np.arange(self.site.n_nodes)
        ranks = np.bincount(self.node[alive], minlength=self.site.n_nodes)
        for nodes in self.site.memory:
            of_node[nodes] = min((node for node in nodes if ranks[node]), default=nodes[0])
        return of_node[self.node[alive]]

    def _alive(self) -> tuple[B1, I8]:
        alive = np.ones(self.n, np.bool_)
        for node, gpu, at in self.site.failed:
            if not alive[self.first[node] + gpu]:
                raise Mistake("E134", f"GPU {gpu} of node{node + 1} failed twice", at)
            alive[self.first[node] + gpu] = False
        if not alive.any():
            raise Mistake("E135", "every GPU failed", self.site.failed[-1][2])
        dead = np.flatnonzero(~alive)
        return alive, np.stack([self.node[dead], self.local[dead]], axis=1)

    def _devices(self, alive: B1) -> tuple[tuple[Device, ...], I8]:
        kinds = self.site.kinds
        devices = tuple(dict.fromkeys(kind.device for kind in kinds))
        row = [devices.index(kind.device) for kind in kinds]
        of_node = np.repeat(row, [kind.count for kind in kinds])
        used, device = np.unique(of_node[self.node[alive]], return_inverse=True)
        return tuple(devices[i] for i in used), device

    def _networks(self) -> tuple[tuple[Network, ...], I8]:
        kinds = self.site.kinds
        networks = tuple(dict.fromkeys(kind.network for kind in kinds))
        rows = [networks.index(kind.network) for kind in kinds]
        return networks, np.repeat(rows, [kind.count for kind in kinds])


def _resolved(between: Between, link: str, site: Site) -> list[ResolvedEntry]:
    default = site.outside[link]
    return [
        ResolvedEntry(
            a, b, Rate(s.bandwidth, s.parallel, default if s.alpha is None else s.alpha), s.at
        )
        for a, b, s in between.written.get(link, [])
    ]


def _slowed(entry: Degraded, alpha: float) -> list[float]:
    """Returns the row of a degraded rate; it keeps its latency unless the file gives another."""
    s = entry.rate
    return [s.bandwidth, s.parallel, float(alpha) if s.alpha is None else s.alpha]
