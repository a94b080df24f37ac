"""Topology: the cluster a program runs on: ranks, links, and the groups that links share.

Printed, a Topology is the cluster language (docs/cluster-language.md). A transfer u → v takes
the first route that exists of

1. their direct link (`links`);
2. the link that a mesh has between every two of its ranks (`mesh`);
3. switches: every shared group that lies on the route (`shared`).

On the route from u to v lie, within a node, u's and v's ports of the crossbar that both hang on
(PORT) and every SWITCH group with u on one side and v on the other (HeteCCL App. A, `>->`).
Between nodes lie the same SWITCH groups, u's and v's NIC, the uplinks of both leaves if these
differ, and the uplinks of both spines if these differ. A rank without a port at a tier that must
be crossed has no such route. A LIMIT group makes no route: it is shared by all routes between two
nodes, direct links included.

Every shared group is full duplex: group k is resource 2k in one direction (out of a port, or from A
to B) and 2k + 1 in the other, each with the whole capacity. Nothing here is n × n: a switch is a
group, never its pairs.

Invariants
1. Ranks are numbered node by node, `local` ascending within a node.
2. `links` is sorted by (src, dst), without repetition; src != dst.
3. Bandwidths are positive and finite, at least one link each, alphas >= 0.
4. Sides of a SWITCH or LIMIT group are not empty, share no rank, and each lies in one node.
5. Ports refer to groups of their level; SWITCH groups, then LIMIT groups come last in `shared`.
6. The ranks of a node are in one memory domain; a domain is numbered as the node of its first rank.

Source: HeteCCL §4.1–4.2 (G = (V, E), S_shared), App. A.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hccc.base.shown import brief
from hccc.ir.arrays import B1, I4, I8, U1, Csr, frozen
from hccc.ir.device import Device as Device
from hccc.ir.device import Network as Network

F8 = NDArray[np.float64]
INTER_NODE_COST = 2.5  # transfers between nodes take at least this much longer (ResCCL §4.3)
BYTES_PER_US = 1000.0  # at 1 GB/s
US_PER_MB = 1000.0  # µs for one MB (10⁶ bytes) at 1 GB/s (10⁹ bytes/s)


class Level(IntEnum):
    """The kind of a shared group; the first four are rows of `port` and `domain`."""

    PORT = 0
    NIC = 1
    LEAF = 2
    SPINE = 3
    SWITCH = 4
    LIMIT = 5


class Rate(NamedTuple):
    """The speed of one link: GB/s in each direction, the number of parallel links, µs before the
    first byte."""

    bandwidth: float
    parallel: int = 1
    alpha: float = 0.0


class Launch(NamedTuple):
    """The cost of a launch before its primitives, in µs. base: always; entry: per thread block, if
    one core runs them all; wake: if several cores run them. small: bytes of the blocks of a node's
    ranks up to which one core runs all."""

    base: float = 0.0
    entry: float = 0.0
    wake: float = 0.0
    small: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Many `Rate`s: bandwidth f8[m], parallel i4[m], alpha f8[m]."""

    bandwidth: F8
    parallel: I4
    alpha: F8

    def __post_init__(self) -> None:
        for name, dtype in (
            ("bandwidth", np.float64),
            ("parallel", np.int32),
            ("alpha", np.float64),
        ):
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))

    def __len__(self) -> int:
        return len(self.bandwidth)

    def __getitem__(self, i: int) -> Rate:
        return Rate(float(self.bandwidth[i]), int(self.parallel[i]), float(self.alpha[i]))

    @property
    def capacity(self) -> F8:
        """GB/s of all parallel links together: f8[m]."""
        return self.bandwidth * self.parallel


def rates(values: list[Rate]) -> Rates:
    """Collects `values` in arrays."""
    return Rates(*(np.array([v[i] for v in values]) for i in range(3)))


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """One cluster of n ranks in N nodes.

    node, local (the GPU's number in its node), device (a row of `devices`): i4[n];
    node_size: i4[N] GPUs a node was built with, failed ones too; failed: i4[f, 2] (node, local);
    link_src, link_dst: i4[m], `links`: their Rates; mesh: i4[n] the mesh of a rank (-1: none),
    `meshes`: the Rates of a mesh's links; level: u1[K] of each group, `shared`: its Rates;
    port: i4[4, n] the group by which a rank leaves at a Level (-1: none); domain: i4[4, n] the
    crossbar, node, leaf and spine of a rank (-1: none); memory_domain: i4[n], ranks of one number
    address each other's memory; side_a, side_b: the ranks at either side of each SWITCH and LIMIT
    group; chunk: bytes of one micro-batch of a chunk; cores: i4[N] thread blocks of a node that run
    at once, more take turns (0: no limit); launch: f8[N, 4] the launch cost at each node
    (`Launch`);
    network: i4[N] the network of each node, a row of `networks`; name: what people call the
    cluster,
    usually its file, and ignored by `same`; vendor_cluster: i4[n] the vendor cluster that the file
    puts a rank in (-1: none), border: i4[n] 1 for a border rank that it names; both are empty where
    it says nothing.
    """

    devices: tuple[Device, ...]
    node: I4
    local: I4
    device: I4
    node_size: I4
    failed: I4
    link_src: I4
    link_dst: I4
    links: Rates
    mesh: I4
    meshes: Rates
    level: U1
    shared: Rates
    port: I4
    domain: I4
    memory_domain: I4
    side_a: Csr
    side_b: Csr
    chunk: int
    cores: I4
    launch: F8
    networks: tuple[Network, ...]
    network: I4
    name: str = ""
    vendor_cluster: I4 = field(default_factory=lambda: np.zeros(0, np.int32))
    border: I4 = field(default_factory=lambda: np.zeros(0, np.int32))

    def __post_init__(self) -> None:
        for name in (
            "node",
            "local",
            "device",
            "node_size",
            "failed",
            "link_src",
            "link_dst",
            "mesh",
            "port",
            "domain",
            "memory_domain",
            "cores",
            "network",
            "vendor_cluster",
            "border",
        ):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int32))
        object.__setattr__(self, "level", frozen(self.level, np.uint8))
        object.__setattr__(self, "launch", frozen(self.launch, np.float64))

    def __len__(self) -> int:
        return len(self.node)

    def __repr__(self) -> str:
        names = dict.fromkeys(device.name for device in self.devices)
        n = self.n_nodes
        where = f"{len(self):,} GPUs in {n:,} node{'s' * (n != 1)}"
        gpus = f"{where}, {' and '.join(names)}"
        return brief(self, f"{self.name}: {gpus}" if self.name else gpus)

    @property
    def n_ranks(self) -> int:
        """The number of GPUs that take part."""
        return len(self.node)

    @property
    def n_nodes(self) -> int:
        """The number of nodes; a node whose GPUs all failed counts too."""
        return len(self.node_size)

    @property
    def first_switch(self) -> int:
        """The group number of SWITCH group 0."""
        return len(self.shared) - len(self.side_a)

    @property
    def n_switches(self) -> int:
        """The number of SWITCH groups; the rest of `side_a` and `side_b` are LIMIT groups."""
        return int(np.count_nonzero(self.level == Level.SWITCH))

    @property
    def first_rank(self) -> I8:
        """The first rank of each node, and n_ranks: i8[N + 1]."""
        return np.searchsorted(self.node, np.arange(self.n_nodes + 1))

    def describe(self, rank: int) -> str:
        """Describes a rank for messages: `rank 5 (GPU 1 of node2)`."""
        return f"rank {rank} (GPU {self.local[rank]} of node{self.node[rank] + 1})"

    def dense_memory_domain(self) -> I4:
        """Returns the memory domains numbered from 0, by first rank: i4[n]."""
        dense: I4 = np.unique(self.memory_domain, return_inverse=True)[1].astype(np.int32)
        return dense

    def block_cost(self) -> F8:
        """Returns the µs that a thread block of each rank takes to copy one micro-batch to a peer:
        f8[n]."""
        return self._per_chunk([device.store for device in self.devices])

    def reduce_cost(self) -> F8:
        """Returns the µs that one more source of a reduction adds to one micro-batch at each rank:
        f8[n]."""
        return self._per_chunk([device.reduce for device in self.devices])

    def _per_chunk(self, rate: list[float]) -> F8:
        return self.chunk / (np.array(rate) * US_PER_MB)[self.device]


NOMINAL_LINK = Rate(1000.0)
NOMINAL_NIC = Rate(1000.0 / INTER_NODE_COST)
NOMINAL_DEVICE = Device(reduce=1e5, block=5e3)


def uniform(
    n_ranks: int,
    gpus_per_node: int,
    nics_per_node: int,
    *,
    link: Rate = NOMINAL_LINK,
    nic: Rate = NOMINAL_NIC,
    device: Device = NOMINAL_DEVICE,
    chunk: int = 1_000_000,
) -> Topology:
    """Returns the cluster that a program's header describes, used if no `.cluster` is given.

    A link between every two GPUs of a node, NICs shared by a node's GPUs in equal runs, and a
    switch between all NICs. The default rates are no hardware's: they make one micro-batch take 1
    within a node, 2.5 between nodes, a thread block's copy 0.2 and one more source 0.01.
    """
    rank = np.arange(n_ranks)
    node, local = rank // gpus_per_node, rank % gpus_per_node
    n_nodes = -(-n_ranks // gpus_per_node)
    port, domain = np.full((4, n_ranks), -1), np.full((4, n_ranks), -1)
    port[Level.NIC] = node * nics_per_node + local * nics_per_node // gpus_per_node
    domain[Level.NIC], domain[Level.LEAF], domain[Level.SPINE] = node, 0, 0
    n_nics = n_nodes * nics_per_node
    none = np.zeros(0, np.int32)
    return Topology(
        devices=(device,),
        node=node,
        local=local,
        device=np.zeros(n_ranks, np.int32),
        node_size=np.full(n_nodes, gpus_per_node),
        failed=np.zeros((0, 2), np.int32),
        link_src=none,
        link_dst=none,
        links=rates([]),
        mesh=node,
        meshes=_repeated(link, n_nodes),
        level=np.full(n_nics, Level.NIC),
        shared=_repeated(nic, n_nics),
        port=port,
        domain=domain,
        memory_domain=node,
        side_a=Csr(np.zeros(1, np.int64), none),
        side_b=Csr(np.zeros(1, np.int64), none),
        chunk=chunk,
        cores=np.zeros(n_nodes, np.int32),
        launch=np.zeros((n_nodes, len(Launch._fields))),
        networks=(Network(),),
        network=np.zeros(n_nodes, np.int32),
    )


def _repeated(rate: Rate, times: int) -> Rates:
    return Rates(*(np.full(times, value) for value in rate))


def same(a: Topology, b: Topology) -> bool:
    """Tells whether two Topologies are alike in everything but their names."""
    compared = (f.name for f in fields(Topology) if f.name != "name")
    return all(_equal(getattr(a, name), getattr(b, name)) for name in compared)


def _equal(a: Any, b: Any) -> bool:
    match a:
        case np.ndarray():
            return np.array_equal(a, b)
        case Csr() | Rates():
            return all(_equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return bool(a == b)


def check(t: Topology) -> list[str]:
    """Lists the invariants that `t` breaks, in words; empty when it is sound. O(its size)."""
    return list(_problems(t))


def _problems(t: Topology) -> Iterator[str]:
    n = len(t)
    if (np.diff(t.node * (int(t.local.max(initial=0)) + 1) + t.local) <= 0).any():
        yield "ranks are not numbered node by node"
    if (np.diff(t.link_src.astype(np.int64) * n + t.link_dst) <= 0).any():
        yield "links are not sorted, or one is there twice"
    ends = np.concatenate([t.link_src, t.link_dst, t.side_a.index, t.side_b.index])
    if (t.link_src == t.link_dst).any() or (ends < 0).any() or (ends >= n).any():
        yield "a link or group has an impossible rank"
    for name, r in (("link", t.links), ("mesh", t.meshes), ("group", t.shared)):
        if not (np.isfinite(r.bandwidth).all() and (r.bandwidth > 0).all()):
            yield f"a {name} has no bandwidth"
        if (r.parallel < 1).any() or not (r.alpha >= 0).all():
            yield f"a {name} has no links, or a negative latency"
    if len(t.network) != t.n_nodes or (t.network >= len(t.networks)).any():
        yield "networks are not one, that is there, for each node"
    if len(t.cores) != t.n_nodes or (t.cores < 0).any():
        yield "cores are not one count, 0 or more, for each node"
    shape = t.n_nodes, len(Launch._fields)
    if t.launch.shape != shape or not (np.isfinite(t.launch) & (t.launch >= 0)).all():
        yield "launches are not three times in µs and a size, 0 or more, for each node"
    if any(len(said) not in (0, n) for said in (t.vendor_cluster, t.border)):
        yield "vendor clusters or border ranks are not one number for each rank"
    if (t.mesh >= len(t.meshes)).any() or (t.device >= len(t.devices)).any():
        yield "a rank is in a mesh, or of a device, that is not there"
    first = np.searchsorted(t.node, t.memory_domain)
    named = t.node[np.minimum(first, n - 1)] == t.memory_domain
    known = t.memory_domain[np.minimum(first, n - 1)] == t.memory_domain
    apart = (t.memory_domain[1:] != t.memory_domain[:-1]) & (t.node[1:] == t.node[:-1])
    if not (named & known & (t.memory_domain <= t.node)).all() or apart.any():
        yield "a memory domain is not whole nodes, or not numbered as its first"
    yield from _group_problems(t)


def _group_problems(t: Topology) -> Iterator[str]:
    for level in range(4):
        used = t.port[level][t.port[level] >= 0]
        if (used >= len(t.shared)).any() or (t.level[used] != level).any():
            yield f"a {Level(level).name} port is a group of another level"
    last = t.level[t.first_switch :].astype(np.int32)
    if (last < Level.SWITCH).any() or (np.diff(last) < 0).any():
        yield "switch groups, then limits, do not come last"
    for side in (t.side_a, t.side_b):
        if (side.counts() < 1).any():
            yield "a side of a switch group is empty"
        row, where = side.owner(), t.node[side.index]
        if (where[1:] != where[:-1])[row[1:] == row[:-1]].any():
            yield "a side of a switch group lies in several nodes"
    a, b = (s.owner().astype(np.int64) * len(t) + s.index for s in (t.side_a, t.side_b))
    if np.isin(a, b).any():
        yield "a rank is at both sides of a switch group"


def members(side: Csr, t: Topology) -> B1:
    """Tells which GPUs (numbered from the node's first rank) are at a side: b1[groups, widest
    node]."""
    first = t.first_rank
    widest = int(np.diff(first).max(initial=1))
    inside = np.zeros((len(side), widest), np.bool_)
    inside[side.owner(), side.index - first[t.node[side.index]]] = True
    return inside
