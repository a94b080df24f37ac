"""read_site: cluster statements to a `Site`: the meaning of each `define`, before there are
arrays."""

from __future__ import annotations

from collections.abc import Callable

from hccc.ir.limits import MAX_RANKS
from hccc.lang.cluster.devices import (
    OF_DEVICES,
    OF_NETWORKS,
    DeviceChoice,
    NetworkChoice,
    read_device,
    read_network,
)
from hccc.lang.cluster.entries import (
    is_ids,
    one_id,
    one_sided,
    parts,
    refuse_repetition,
    two_sided,
    uplinks_of,
)
from hccc.lang.cluster.fabric import fill_from_library
from hccc.lang.cluster.shapes import (
    OF_LAUNCHES,
    WrittenRate,
    arrow,
    entries,
    ids,
    integer,
    latency,
    launch_times,
    mapping,
    number_in_name,
    numbered,
    size,
    written_rate,
)
from hccc.lang.cluster.site import OUTSIDE, Between, Degraded, NodeKind, Site, Tier
from hccc.lang.cluster.text import Arrow, Define, Group, Times, Value, Word
from hccc.lang.mistakes import At, Mistake, clip, did_you_mean

MAX_TIERS = 4096
MAX_CORES = 1 << 20
MAX_ENTRIES = 1 << 20  # links, and members of shared groups, of one file
INSIDE = ("direct", "mesh", "switch", "port", "nic")
OF_BANDWIDTH = ("direct", "switch", "mesh", "port")
OF_INTERBANDWIDTH = ("direct", "switch")
TARGETS = ("nic", "port", "switch", "direct")
EXAMPLES = {"nic": "[((0..3) -> 50)]", "leaf": "[((node1, node2) -> 100)]"}
_NODES = frozenset({"nodes", "node", "nodecount", "nnodes", "numnodes"})  # for nodenum


def defined() -> tuple[str, ...]:
    """Returns the names that can be defined, besides nodes."""
    return tuple(_Reader().readers)


def keys_of() -> dict[str, tuple[str, ...]]:
    """Returns the keys that the value of each name may have, where that is a map."""
    return {
        "device": OF_DEVICES,
        "network": OF_NETWORKS,
        "bandwidth": OF_BANDWIDTH,
        "interbandwidth": OF_INTERBANDWIDTH,
        "latency": INSIDE,
        "interlatency": tuple(OUTSIDE),
        "launch": OF_LAUNCHES,
    }


def read_site(defines: list[Define]) -> Site:
    """Makes a site of all statements. Raises `Mistake`."""
    reader = _Reader()
    for define in defines:
        reader.read(define)
    return reader.finish()


class _Reader:
    """Reads statements one after the other; those about a node apply to the last one defined."""

    def __init__(self) -> None:
        self.site = Site()
        self.device_choice, self.cores = DeviceChoice(), 0
        self.network_choice: NetworkChoice | None = None
        self.latency: dict[str, float] = {}
        self.launches: dict[str, float] = {}
        self.nodenum: tuple[int, At] | None = None
        self.memory_at: list[At] = []  # of each of site.memory
        self.ranks = self.entries = self.most_nics = 0
        self.once: set[str] = set()
        self.grouped: set[tuple[str, int, int]] = set()
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
            "cluster": self._cluster,
            "border": self._border,
            "failed": self._failed,
            "degraded": self._degraded,
        }

    def read(self, define: Define) -> None:
        """Reads one statement."""
        if reader := self.readers.get(define.name):
            try:
                reader(define)
            except Mistake as mistake:
                example = EXAMPLES.get(define.name)
                if mistake.code == "E035" and mistake.help is None and example:
                    mistake.help = f"for example `define {define.name} = {example}`"
                raise
        elif define.name.startswith("node"):
            self._node(define)
        else:
            near = did_you_mean(define.name, self.readers)
            help = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(self.readers)}"
            message = f"`{clip(define.name)}` cannot be defined"
            raise Mistake("E033", message, define.at, help)

    def finish(self) -> Site:
        """Returns the site, after all statements."""
        if not self.site.kinds:
            raise Mistake("E034", "no node is defined", None, "`define node1 = 8` has 8 GPUs")
        if self.nodenum and self.nodenum[0] != self.site.n_nodes:
            wanted, at = self.nodenum
            has = self.site.n_nodes
            message = f"nodenum is {wanted}, but {has} node{' is' if has == 1 else 's are'} defined"
            raise Mistake("E136", message, at, "two nodes of 4 GPUs: `define node1 = 2 * 4`")
        self._fill()
        self._check_memory()
        return self.site

    def _check_memory(self) -> None:
        """Checks that devices that address each other's memory are of one vendor."""
        device = {n: k.device for k in self.site.kinds for n in range(k.first, k.first + k.count)}
        for nodes, at in zip(self.site.memory, self.memory_at, strict=True):
            first = {device[n].vendor: n for n in reversed(nodes) if device[n].vendor != "any"}
            if len(first) > 1:
                pair = sorted((n, vendor) for vendor, n in first.items())[:2]
                named = " and ".join(f"node{n + 1} ({vendor})" for n, vendor in pair)
                message = f"{named} share no memory: their devices are of two vendors"
                help = "leave one out: what goes between them then is a message of the network"
                raise Mistake("E139", message, at, help)

    def _fill(self, *, nics: bool = False) -> None:
        """Adds the library's links and NICs to all nodes so far. nics: whether NICs are needed."""
        reached = not nics and (self.site.n_nodes == 1 or bool(self.site.between))
        for kind in self.site.kinds:
            before = len(kind.written)
            fill_from_library(kind, reached=reached)
            self.most_nics = max(self.most_nics, len(kind.written.get("nic", [])))
            self._count(kind.count * kind.size * (len(kind.written) - before), kind.at)

    def _first(self, define: Define) -> None:
        if define.name in self.once:
            raise Mistake("E134", f"`{define.name}` is defined twice", define.at)
        self.once.add(define.name)

    def _last_node(self, define: Define) -> NodeKind:
        if not self.site.kinds:
            message = f"`{define.name}` belongs to a node, and none is defined before it"
            raise Mistake("E034", message, define.at, "put it after `define node1 = ...`")
        return self.site.kinds[-1]

    def _count(self, more: int, at: At) -> None:
        self.entries += more
        if self.entries > MAX_ENTRIES:
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
            help = "nodes are numbered in order, from node1"
            if define.name in _NODES:
                help += "; `define nodenum = 2` says how many there are"
            raise Mistake("E134", message, define.at, help)
        value, count = define.value, 1
        if isinstance(value, Times):
            count = integer(value.count, "the number of nodes", 1, MAX_RANKS)
            value = value.value
        gpus = integer(value, "the number of GPUs", 1, MAX_RANKS)
        self.ranks += count * gpus
        if self.ranks > MAX_RANKS:
            raise Mistake("E137", f"more than {MAX_RANKS:,} GPUs", define.value.at)
        everywhere = (
            self.device_choice,
            self.network_choice,
            dict(self.latency),
            self.cores,
            dict(self.launches),
        )
        self.site.kinds.append(NodeKind(self.site.n_nodes, count, gpus, define.at, *everywhere))
        self.site.n_nodes += count

    def _device(self, define: Define) -> None:
        if self.site.kinds:
            kind = self.site.kinds[-1]
            kind.device_choice = read_device(define.value, kind.device_choice)
        else:
            self.device_choice = read_device(define.value, self.device_choice)

    def _network(self, define: Define) -> None:
        if self.site.kinds:
            kind = self.site.kinds[-1]
            kind.network_choice = read_network(define.value, kind.network_choice)
        else:
            self.network_choice = read_network(define.value, self.network_choice)

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
        for key, value in mapping(define.value, OF_BANDWIDTH, "bandwidth").items():
            if key in node.written:
                raise Mistake("E134", f"`{key}` of this node is there twice", value.at)
            node.written[key] = written = []
            for entry in entries(value):
                if key in ("direct", "switch"):
                    written.append(two_sided(entry, key, node.size, node.size))
                else:
                    written.append(one_sided(entry, node.size))
                cost = 1 if key == "direct" else len(written[-1][0]) + len(written[-1][1])
                self._count(node.count * cost, entry.at)
            refuse_repetition(key, written)

    def _nic(self, define: Define) -> None:
        node = self._last_node(define)
        if "nic" in node.written:
            raise Mistake("E134", "the NICs of this node are there twice", define.at)
        node.written["nic"] = written = []
        for entry in entries(define.value):
            written.append(one_sided(entry, node.size))
            self._count(len(written[-1][0]), entry.at)
        refuse_repetition("nic", node.written["nic"])
        self.most_nics = max(self.most_nics, len(node.written["nic"]))

    def _internode(self, define: Define) -> None:
        nodes = numbered(define.value, "node", self.site.n_nodes)
        if len(nodes) < 2:
            raise Mistake("E035", "internode joins two nodes or more", define.value.at)
        self._count(len(nodes), define.at)
        self.site.between.append(Between(nodes, define.at))

    def _interbandwidth(self, define: Define) -> None:
        if not self.site.between or self.site.between[-1].written:
            message = "`interbandwidth` belongs to an `internode`, and none stands before it"
            raise Mistake("E034", message, define.at, "`define internode = (node1, node2)`")
        between = self.site.between[-1]
        if len(between.nodes) > 2048:
            raise Mistake("E137", "this is for at most 2,048 nodes; use `define nic`", define.at)
        sizes = [self.site.kind(node).size for node in between.nodes]
        left, right = min(sizes[:-1]), min(sizes[1:])
        pairs = len(sizes) * (len(sizes) - 1) // 2
        for key, value in mapping(define.value, OF_INTERBANDWIDTH, "interbandwidth").items():
            between.written[key] = [two_sided(e, key, left, right) for e in entries(value)]
            for a, b, s in between.written[key]:
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
            self.memory_at.append(entry.at)

    def _cluster(self, define: Define) -> None:
        self._first(define)
        for entry in entries(define.value):
            self.site.clusters.append(self._gpus(entry, "in a vendor cluster"))

    def _border(self, define: Define) -> None:
        self._first(define)
        for entry in entries(define.value):
            self.site.borders += self._gpus(entry, "a border rank")

    def _gpus(self, entry: Value, noun: str) -> list[tuple[int, int]]:
        """Reads `(node1, (0, 1), node2)`: the GPUs 0 and 1 of node1, and all of node2."""
        named: list[tuple[list[int], list[int] | None]] = []
        for item in parts(entry):
            if named and named[-1][1] is None and is_ids(item):
                size = min(self.site.kind(node).size for node in named[-1][0])
                named[-1] = named[-1][0], ids(item, "GPU", size, of=f"node{named[-1][0][0] + 1}")
            else:
                named.append((numbered(item, "node", self.site.n_nodes), None))
        found = [
            (node, gpu)
            for nodes, only in named
            for node in nodes
            for gpu in (range(self.site.kind(node).size) if only is None else only)
        ]
        for node, gpu in found:
            if (noun, node, gpu) in self.grouped:
                message = f"GPU {gpu} of node{node + 1} is {noun} already"
                raise Mistake("E134", message, entry.at)
            self.grouped.add((noun, node, gpu))
        return found

    def _failed(self, define: Define) -> None:
        for entry in entries(define.value):
            found = parts(entry)
            if len(found) < 2:
                raise Mistake("E035", "write `(node1, 3)` for GPU 3 of node1", entry.at)
            node = number_in_name(found[0], "node", self.site.n_nodes)
            if isinstance(found[1], Word) and found[1].text == "nic":
                self._failed_nics(node, found[2:], entry.at)
                continue
            group = Group(tuple(found[1:]), entry.at)
            gpus = ids(group, "GPU", self.site.kind(node).size, of=f"node{node + 1}")
            self._count(len(gpus), entry.at)
            self.site.failed += [(node, gpu, entry.at) for gpu in gpus]

    def _failed_nics(self, node: int, named: list[Value], at: At) -> None:
        self._fill()
        count = len(self.site.kind(node).written.get("nic", []))
        if not count:
            raise Mistake("E132", f"node{node + 1} has no nic", at)
        nics = [one_id(part, "nic", count, node) for part in named] or range(count)
        self.site.failed_nics += [(node, nic, at) for nic in nics]

    def _degraded(self, define: Define) -> None:
        self._fill()
        for entry in entries(define.value):
            found = arrow(entry, "->", "(node2, nic, 0) -> (2.25, 1)")
            self.site.degraded.append(self._target(found, parts(found.left)))

    def _target(self, entry: Arrow, named: list[Value]) -> Degraded:
        first, slow = named[0], written_rate(entry.right)
        tier = first.text.rstrip("0123456789") if isinstance(first, Word) else ""
        if tier in ("leaf", "spine") and len(named) == 1:
            have = self.site.leaves if tier == "leaf" else self.site.spines
            return Degraded(tier, number_in_name(first, tier, len(have)), None, slow, entry.at)
        node = number_in_name(first, "node", self.site.n_nodes)
        target = named[1].text if len(named) > 1 and isinstance(named[1], Word) else ""
        if target.rstrip("0123456789") == "node":
            return self._pair(node, named, slow, entry.at)
        if target not in TARGETS:
            help = f"write `(node1, node2)`, or `(node1, what, ...)` with {', '.join(TARGETS)}"
            raise Mistake("E035", "this does not say what is degraded", entry.at, help)
        kind = self.site.kind(node)
        bound = kind.size if target in ("port", "direct") else len(kind.written.get(target, []))
        ids = [one_id(part, target, bound, node) for part in named[2:]] or None
        if target == "direct" and (ids is None or len(ids) != 2 or ids[0] == ids[1]):
            raise Mistake("E035", "a link is named `(node1, direct, 0, 1)`", entry.at)
        if bound == 0:
            raise Mistake("E132", f"node{node + 1} has no {target}", entry.at)
        return Degraded(target, node, ids, slow, entry.at)

    def _pair(self, node: int, named: list[Value], slow: WrittenRate, at: At) -> Degraded:
        others = [number_in_name(value, "node", self.site.n_nodes) for value in named[1:]]
        if len(others) != 1 or others[0] == node:
            raise Mistake("E035", "what is between two nodes is named `(node1, node2)`", at)
        return Degraded("node", node, others, slow, at)
