"""Cluster statements to a `Site`: what each `define` means, before there are any arrays."""

from __future__ import annotations

from collections.abc import Callable

from hccc.ir.limits import MAX_RANKS
from hccc.lang.cluster.devices import Chosen, Joined, read_device, read_network
from hccc.lang.cluster.entries import (
    alike,
    is_ids,
    joint,
    one_id,
    parts,
    refuse_repetition,
    uplinks_of,
)
from hccc.lang.cluster.fabric import fill
from hccc.lang.cluster.kinds import OUTSIDE, Between, Degraded, Kind, Site, Tier
from hccc.lang.cluster.shapes import (
    Speed,
    arrow,
    entries,
    ids,
    integer,
    latency,
    launch_times,
    mapping,
    numbered,
    one,
    size,
    speed,
)
from hccc.lang.cluster.text import Arrow, Define, Group, Times, Value, Word
from hccc.lang.mistakes import At, Mistake, clip, did_you_mean

MAX_TIERS = 4096
MAX_CORES = 1 << 20
MAX_ENTRIES = 1 << 20  # links, and members of shared groups, that one file may make
INSIDE = ("direct", "mesh", "switch", "port", "nic")
TARGETS = ("nic", "port", "switch", "direct")


def read_site(defines: list[Define]) -> Site:
    """What the statements say together. Raises `Mistake`."""
    reader = _Reader()
    for define in defines:
        reader.read(define)
    return reader.finish()


class _Reader:
    """Reads statements one after the other; those about a node are about the last one."""

    def __init__(self) -> None:
        self.site = Site()
        self.chosen, self.cores = Chosen(), 0
        self.joined: Joined | None = None
        self.latency: dict[str, float] = {}
        self.launches: dict[str, float] = {}
        self.nodenum: tuple[int, At] | None = None
        self.ranks = self.made = self.most_nics = 0
        self.once: set[str] = set()
        self.readers: dict[str, Callable[[Define], None]] = {
            "nodenum": self._nodenum,
            "chunk": self._chunk,
            "device": self._device,
            "network": self._network,
            "cores": self._cores,
            "launch": self._launch,
            "latency": self._latency,
            "bandwidth": self._bandwidth,
            "nic": self._nic,
            "internode": self._internode,
            "interbandwidth": self._interbandwidth,
            "interlatency": self._interlatency,
            "rail": self._rail,
            "leaf": self._leaf,
            "spine": self._spine,
            "memory": self._memory,
            "failed": self._failed,
            "degraded": self._degraded,
        }

    def read(self, define: Define) -> None:
        """One statement."""
        if reader := self.readers.get(define.name):
            reader(define)
        elif define.name.startswith("node"):
            self._node(define)
        else:
            near = did_you_mean(define.name, self.readers)
            help = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(self.readers)}"
            message = f"`{clip(define.name)}` cannot be defined"
            raise Mistake("E033", message, define.at, help)

    def finish(self) -> Site:
        """The site, once all statements are read."""
        if not self.site.kinds:
            raise Mistake("E034", "no node is defined", None, "`define node1 = 8` has 8 GPUs")
        if self.nodenum and self.nodenum[0] != self.site.n_nodes:
            wanted, at = self.nodenum
            message = f"nodenum is {wanted}, but {self.site.n_nodes} nodes are defined"
            raise Mistake("E136", message, at)
        self._fill()
        return self.site

    def _fill(self, *, nics: bool = False) -> None:
        """What the library knows of all nodes so far. nics: whether NICs are asked for."""
        reached = not nics and (self.site.n_nodes == 1 or bool(self.site.between))
        for kind in self.site.kinds:
            made = len(kind.made)
            fill(kind, reached=reached)
            self.most_nics = max(self.most_nics, len(kind.made.get("nic", [])))
            self._count(kind.count * kind.size * (len(kind.made) - made), kind.at)

    def _first(self, define: Define) -> None:
        if define.name in self.once:
            raise Mistake("E134", f"`{define.name}` is defined twice", define.at)
        self.once.add(define.name)

    def _last_node(self, define: Define) -> Kind:
        if not self.site.kinds:
            message = f"`{define.name}` belongs to a node, and none is defined before it"
            raise Mistake("E034", message, define.at, "put it after `define node1 = ...`")
        return self.site.kinds[-1]

    def _count(self, more: int, at: At) -> None:
        self.made += more
        if self.made > MAX_ENTRIES:
            message = f"up to here there are more than {MAX_ENTRIES:,} links and group members"
            raise Mistake(
                "E137", message, at, "`mesh`, `port` and `nic` describe many links at once"
            )

    def _nodenum(self, define: Define) -> None:
        self._first(define)
        self.nodenum = integer(define.value, "nodenum", 1, MAX_RANKS), define.value.at

    def _chunk(self, define: Define) -> None:
        self._first(define)
        self.site.chunk = size(define.value)

    def _node(self, define: Define) -> None:
        expected = f"node{self.site.n_nodes + 1}"
        if define.name != expected:
            message = f"the next node is {expected}, not `{clip(define.name)}`"
            raise Mistake("E134", message, define.at, "nodes are numbered in order, from node1")
        value, count = define.value, 1
        if isinstance(value, Times):
            count = integer(value.count, "the number of nodes", 1, MAX_RANKS)
            value = value.what
        gpus = integer(value, "the number of GPUs", 1, MAX_RANKS)
        self.ranks += count * gpus
        if self.ranks > MAX_RANKS:
            raise Mistake("E137", f"more than {MAX_RANKS:,} GPUs", define.value.at)
        everywhere = (self.chosen, self.joined, dict(self.latency), self.cores, dict(self.launches))
        self.site.kinds.append(Kind(self.site.n_nodes, count, gpus, define.at, *everywhere))
        self.site.n_nodes += count

    def _device(self, define: Define) -> None:
        if self.site.kinds:
            kind = self.site.kinds[-1]
            kind.chosen = read_device(define.value, kind.chosen)
        else:
            self.chosen = read_device(define.value, self.chosen)

    def _network(self, define: Define) -> None:
        if self.site.kinds:
            kind = self.site.kinds[-1]
            kind.joined = read_network(define.value, kind.joined)
        else:
            self.joined = read_network(define.value, self.joined)

    def _latency(self, define: Define) -> None:
        into = self.site.kinds[-1].latency if self.site.kinds else self.latency
        for key, value in mapping(define.value, INSIDE, "latency").items():
            into[key] = latency(value)

    def _cores(self, define: Define) -> None:
        count = integer(define.value, "the number of cores", 1, MAX_CORES)
        if self.site.kinds:
            self.site.kinds[-1].cores = count
        else:
            self.cores = count

    def _launch(self, define: Define) -> None:
        into = self.site.kinds[-1].launches if self.site.kinds else self.launches
        into |= launch_times(define.value)

    def _interlatency(self, define: Define) -> None:
        self._first(define)
        for key, value in mapping(define.value, tuple(OUTSIDE), "interlatency").items():
            self.site.outside[key] = latency(value)

    def _bandwidth(self, define: Define) -> None:
        node = self._last_node(define)
        keys = ("direct", "switch", "mesh", "port")
        for key, value in mapping(define.value, keys, "bandwidth").items():
            if key in node.made:
                raise Mistake("E134", f"`{key}` of this node is there twice", value.at)
            node.made[key] = made = []
            for entry in entries(value):
                if key in ("direct", "switch"):
                    made.append(joint(entry, key, node.size, node.size))
                else:
                    made.append(alike(entry, node.size))
                cost = 1 if key == "direct" else len(made[-1][0]) + len(made[-1][1])
                self._count(node.count * cost, entry.at)
            refuse_repetition(key, made)

    def _nic(self, define: Define) -> None:
        node = self._last_node(define)
        if "nic" in node.made:
            raise Mistake("E134", "the NICs of this node are there twice", define.at)
        node.made["nic"] = made = []
        for entry in entries(define.value):
            made.append(alike(entry, node.size))
            self._count(len(made[-1][0]), entry.at)
        refuse_repetition("nic", node.made["nic"])
        self.most_nics = max(self.most_nics, len(node.made["nic"]))

    def _internode(self, define: Define) -> None:
        nodes = numbered(define.value, "node", self.site.n_nodes)
        if len(nodes) < 2:
            raise Mistake("E035", "internode joins two nodes or more", define.value.at)
        self._count(len(nodes), define.at)
        self.site.between.append(Between(nodes, define.at))

    def _interbandwidth(self, define: Define) -> None:
        if not self.site.between or self.site.between[-1].made:
            message = "`interbandwidth` belongs to an `internode`, and none stands before it"
            raise Mistake("E034", message, define.at, "`define internode = (node1, node2)`")
        between = self.site.between[-1]
        if len(between.nodes) > 2048:
            raise Mistake("E137", "this is for at most 2,048 nodes; use `define nic`", define.at)
        sizes = [self.site.kind(node).size for node in between.nodes]
        left, right = min(sizes[:-1]), min(sizes[1:])
        pairs = len(sizes) * (len(sizes) - 1) // 2
        for key, value in mapping(define.value, ("direct", "switch"), "interbandwidth").items():
            between.made[key] = [joint(e, key, left, right) for e in entries(value)]
            for a, b, s in between.made[key]:
                self._count(pairs * (1 if key == "direct" else len(a) + len(b)), s.at)

    def _rail(self, define: Define) -> None:
        self._tiers(define)
        everywhere = list(range(self.site.n_nodes))
        for entry in entries(define.value):
            below, uplinks = uplinks_of(entry)
            tier = Tier([(everywhere, self._nics(below))], uplinks, entry.at)
            self._add_tier(self.site.leaves, tier)

    def _leaf(self, define: Define) -> None:
        self._tiers(define)
        for entry in entries(define.value):
            below, uplinks = uplinks_of(entry)
            named: list[tuple[list[int], list[int] | None]] = []
            for item in parts(below):
                if named and named[-1][1] is None and is_ids(item):
                    named[-1] = named[-1][0], self._nics(item)
                else:
                    named.append((numbered(item, "node", self.site.n_nodes), None))
                    self._count(len(named[-1][0]), entry.at)
            self._add_tier(self.site.leaves, Tier(named, uplinks, entry.at))

    def _nics(self, value: Value) -> list[int]:
        return ids(value, "NIC", self.most_nics, of="a node")

    def _add_tier(self, tiers: list[Tier], tier: Tier) -> None:
        tiers.append(tier)
        if len(tiers) > MAX_TIERS:
            raise Mistake("E137", f"there are more than {MAX_TIERS:,} of these", tier.at)

    def _tiers(self, define: Define) -> None:
        self._last_node(define)
        self._fill(nics=True)
        if self.once & {"rail", "leaf"}:
            raise Mistake("E134", "the leaves of this cluster are there twice", define.at)
        self.once.add(define.name)

    def _spine(self, define: Define) -> None:
        self._first(define)
        for entry in entries(define.value):
            below, uplinks = uplinks_of(entry)
            leaves = numbered(below, "leaf", len(self.site.leaves))
            self._add_tier(self.site.spines, Tier([(leaves, None)], uplinks, entry.at))

    def _memory(self, define: Define) -> None:
        self._first(define)
        for entry in entries(define.value):
            nodes = numbered(entry, "node", self.site.n_nodes)
            if set(nodes) & {node for other in self.site.memory for node in other}:
                raise Mistake("E134", "a node here is in another memory domain already", entry.at)
            self.site.memory.append(nodes)

    def _failed(self, define: Define) -> None:
        for entry in entries(define.value):
            found = parts(entry)
            if len(found) < 2:
                raise Mistake("E035", "write `(node1, 3)` for GPU 3 of node1", entry.at)
            node = one(found[0], "node", self.site.n_nodes)
            if isinstance(found[1], Word) and found[1].text == "nic":
                self._failed_nics(node, found[2:], entry.at)
                continue
            group = Group(tuple(found[1:]), entry.at)
            gpus = ids(group, "GPU", self.site.kind(node).size, of=f"node{node + 1}")
            self._count(len(gpus), entry.at)
            self.site.failed += [(node, gpu, entry.at) for gpu in gpus]

    def _failed_nics(self, node: int, which: list[Value], at: At) -> None:
        self._fill()
        count = len(self.site.kind(node).made.get("nic", []))
        if not count:
            raise Mistake("E132", f"node{node + 1} has no nic", at)
        nics = [one_id(part, "nic", count, node) for part in which] or range(count)
        self.site.failed_nics += [(node, nic, at) for nic in nics]

    def _degraded(self, define: Define) -> None:
        self._fill()
        for entry in entries(define.value):
            found = arrow(entry, "->", "(node2, nic, 0) -> (2.25, 1)")
            self.site.degraded.append(self._target(found, parts(found.left)))

    def _target(self, entry: Arrow, named: list[Value]) -> Degraded:
        first, slow = named[0], speed(entry.right)
        tier = first.text.rstrip("0123456789") if isinstance(first, Word) else ""
        if tier in ("leaf", "spine") and len(named) == 1:
            have = self.site.leaves if tier == "leaf" else self.site.spines
            return Degraded(tier, one(first, tier, len(have)), None, slow, entry.at)
        node = one(first, "node", self.site.n_nodes)
        what = named[1].text if len(named) > 1 and isinstance(named[1], Word) else ""
        if what.rstrip("0123456789") == "node":
            return self._pair(node, named, slow, entry.at)
        if what not in TARGETS:
            help = f"write `(node1, node2)`, or `(node1, what, ...)` with {', '.join(TARGETS)}"
            raise Mistake("E035", "this does not say what is degraded", entry.at, help)
        kind = self.site.kind(node)
        bound = kind.size if what in ("port", "direct") else len(kind.made.get(what, []))
        which = [one_id(part, what, bound, node) for part in named[2:]] or None
        if what == "direct" and (which is None or len(which) != 2 or which[0] == which[1]):
            raise Mistake("E035", "a link is named `(node1, direct, 0, 1)`", entry.at)
        if bound == 0:
            raise Mistake("E132", f"node{node + 1} has no {what}", entry.at)
        return Degraded(what, node, which, slow, entry.at)

    def _pair(self, node: int, named: list[Value], slow: Speed, at: At) -> Degraded:
        others = [one(value, "node", self.site.n_nodes) for value in named[1:]]
        if len(others) != 1 or others[0] == node:
            raise Mistake("E035", "what is between two nodes is named `(node1, node2)`", at)
        return Degraded("node", node, others, slow, at)
