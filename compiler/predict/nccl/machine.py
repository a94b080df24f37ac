"""machine: the properties of a cluster that NCCL and RCCL see, and that their speed depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import fail
from hccc.ir.arrays import I4
from hccc.ir.device import Device
from hccc.ir.topology import Level, Topology
from hccc.shipped.hardware import load as hardware

FASTEST_PCIE = 64  # GB/s of a link without a name that is taken for PCI Express
WIRES = (0.125, 1.25, 3.125, 5, 6.25, 12.5, 25, 50, 100)  # GB/s of NICs as they are sold
GRACE = ("GH200", "GB200", "GB300")
OF_TCPXO = 8  # NICs of A3 Mega; A3 High, which has TCPX, has four
SOCKET = 4  # GPUs; more are on two sockets, between which PCIe goes by way of the host
TRAY = 4  # GPUs of a node of a rack


class Generation(StrEnum):
    """The generations that NCCL's and RCCL's tables distinguish: compute capability, or RCCL's
    tuning model."""

    VOLTA = "Volta"
    AMPERE = "Ampere"
    HOPPER = "Hopper"
    BLACKWELL = "Blackwell"
    MI200 = "MI200"
    MI300 = "MI300"
    MI350 = "MI350"

    @property
    def amd(self) -> bool:
        """Whether it runs RCCL."""
        return self in {Generation.MI200, Generation.MI300, Generation.MI350}


class NcclLink(StrEnum):
    """The links between the GPUs of a node."""

    NVSWITCH = "nvswitch"
    NVLINK_MESH = "nvlink-mesh"
    XGMI_MESH = "xgmi-mesh"
    PCIE = "pcie"

    @property
    def mesh(self) -> bool:
        """Whether every pair of GPUs has links of its own."""
        return self in {NcclLink.NVLINK_MESH, NcclLink.XGMI_MESH}


class NcclNetwork(StrEnum):
    """The network between nodes. EFA1: Elastic Fabric Adapter of the p4 instances, EFA: later
    ones."""

    INFINIBAND = "InfiniBand"
    ROCE = "RoCE"
    EFA = "EFA"
    EFA1 = "EFA1"
    TCPX = "TCPX"
    TCPXO = "TCPXO"
    SLINGSHOT = "Slingshot"
    ETHERNET = "Ethernet"


@dataclass(frozen=True, slots=True)
class NcclMachine:
    """A cluster of equal nodes, a node being the GPUs that NVLink or xGMI joins (an NVL72 is one).

    wire: GB/s of a GPU's links to the others of its node, all together, in one direction; nic: GB/s
    of the wire of one NIC in one direction; peer: whether GPUs write to each other's memory
    (otherwise PCIe goes by way of the host); nvls: whether the switch reduces; floor: µs that the
    program needs to launch a call, which overlaps the call (one process for many GPUs launches one
    after another: some 4.3 µs a GPU); total: GPUs, if nodes are of several sizes; grace: whether
    the GPUs hang off a Grace CPU; direct: whether links lead from each GPU of the node to all
    others, not by way of a GPU.
    """

    generation: Generation
    nodes: int
    gpus: int
    link: NcclLink
    wire: float
    nics: int = 0
    nic: float = 0.0
    network: NcclNetwork = NcclNetwork.INFINIBAND
    nvls: bool = False
    peer: bool = True
    floor: float = 0.0
    total: int = 0
    grace: bool = False
    direct: bool = True

    @property
    def ranks(self) -> int:
        """The number of GPUs that take part."""
        return self.total or self.nodes * self.gpus

    @property
    def node_wire(self) -> float:
        """GB/s of all NICs of a node in one direction."""
        return self.nics * self.nic


_GENERATIONS: Mapping[str, Generation] = MappingProxyType(
    {
        "V100": Generation.VOLTA,
        "A100": Generation.AMPERE,
        "A800": Generation.AMPERE,
        "A6000": Generation.AMPERE,
        "A40": Generation.AMPERE,
        "L40": Generation.AMPERE,
        "H20": Generation.HOPPER,
        "H100": Generation.HOPPER,
        "H200": Generation.HOPPER,
        "H800": Generation.HOPPER,
        "GH200": Generation.HOPPER,
        "B200": Generation.BLACKWELL,
        "B300": Generation.BLACKWELL,
        "GB200": Generation.BLACKWELL,
        "GB300": Generation.BLACKWELL,
        "MI100": Generation.MI200,
        "MI2": Generation.MI200,
        "MI30": Generation.MI300,
        "MI32": Generation.MI300,
        "MI35": Generation.MI350,
    }
)


def is_known(device: Device) -> bool:
    """Tells whether a device's name determines its generation."""
    return any(key in device.name.upper() for key in _GENERATIONS)


def generation_of(device: str, vendor: str, *, rccl: bool = False) -> Generation:
    """Returns the generation of a device's name, or else its vendor's usual one. rccl: whether a
    device of no vendor runs RCCL."""
    name = device.upper()
    known = [key for key in _GENERATIONS if key in name]
    if known:
        return _GENERATIONS[max(known, key=len)]
    nvidia = "nvidia" in vendor.lower()
    amd = "amd" in vendor.lower() or (rccl and not nvidia)
    return Generation.MI300 if amd else Generation.HOPPER


def of(topology: Topology, *, rccl: bool = False) -> NcclMachine:
    """Returns the NcclMachine of a cluster.

    The slowest node's links and NICs count for all, as they do for the library's rings; if nodes
    are of several sizes, the largest gives their depth. The launch of the cluster is a floor.

    Raises:
        UserError: E463 for a cluster of one GPU, or of two vendors.
    """
    kinds = {generation_of(d.name, d.vendor, rccl=rccl) for d in topology.devices}
    if len(topology) < 2 or len({kind.amd for kind in kinds}) > 1:
        why = "one GPU" if len(topology) < 2 else "GPUs of two vendors"
        raise fail(
            "E463",
            f"NCCL and RCCL have nothing to do on a cluster of {why}",
            help="simulate a plan on it instead",
        )
    generation = min(kinds, key=list(Generation).index)
    domain = _domains(topology)
    sizes = np.bincount(domain)
    (wire, mesh), gpus = _node_links(topology), int(sizes.max())
    wire = wire if gpus > 1 else _wire(topology) or wire
    link = _link(topology, generation, mesh, wire)
    wire = _of_the_wire(wire, topology, gpus, link) if gpus > 1 else wire
    nics, nic = _nics(topology, domain)
    name, nic = _network(topology, generation, nics, nic)
    nic = min([nic, *_buses(topology, int(sizes.min()), nics)])
    return NcclMachine(
        generation,
        len(sizes),
        gpus,
        link,
        wire,
        nics,
        nic,
        name,
        peer=all(device.peer for device in topology.devices)
        and (link is not NcclLink.PCIE or gpus <= SOCKET),
        nvls=link is NcclLink.NVSWITCH and gpus > 2 and all(map(_reduces, topology.devices)),
        floor=float(topology.launch[:, 0].max()),
        total=len(topology),
        grace=any(known in d.name.upper() for d in topology.devices for known in GRACE),
        direct=not link.mesh or (len(sizes) == 1 and _direct(topology)),
    )


def _domains(t: Topology) -> I4:
    """Returns the domain of each GPU, numbered from 0, that NVLink or xGMI joins: i4[n].

    Nodes of 2 to 4 GPUs that are sold by the rack (GB200 NVL72) are its trays, in as few equal
    racks as hold them, unless the cluster says which nodes are a domain.
    """
    domain = t.dense_memory_domain()
    known = [hardware.device(d.name) for d in t.devices]
    rack = min((int(x.number("node_gpus")) for x in known if x), default=0)
    size = np.bincount(domain)
    if None in known or rack <= 2 * TRAY or len(size) < t.n_nodes or not _trays(size):
        return domain
    racks = -(-len(t) // rack)
    trays = -(-len(size) // racks)
    return (domain // trays).astype(np.int32)


def _trays(size: NDArray[np.int64]) -> bool:
    return bool(((size >= 2) & (size <= TRAY)).all())


def _reduces(d: Device) -> bool:
    """Tells whether a switch reduces for the device: by its own field, or, for one described by
    hand without links, as usual in its generation."""
    usual = generation_of(d.name, d.vendor) in {Generation.HOPPER, Generation.BLACKWELL}
    return d.nvls or (usual and not d.link)


def _of_the_wire(delivered: float, t: Topology, gpus: int, link: NcclLink) -> float:
    """Returns the wire's GB/s of links with this delivered rate, for devices with a known share of
    it."""
    found = []
    for d in t.devices:
        known = hardware.device(d.name)
        if d.link == "pcie" and link is NcclLink.NVLINK_MESH:
            return delivered  # a bridge that the file describes
        if known and d.link != "pcie" and link is NcclLink.PCIE:
            d = known.device
        if d.delivered <= 0 and known and known.word("link") != "pcie":
            d = known.device
        if d.delivered <= 0 or d.wire <= 0:
            return delivered
        most = d.wire
        if known and d.link == "xgmi":  # a link of its own to each of the others
            most *= min(1, (gpus - 1) / known.number("links"))
        found.append(min(delivered * d.wire / d.delivered, most))
    return min(found)


def _buses(t: Topology, gpus: int, nics: int) -> list[float]:
    """Returns the most GB/s of a NIC in each device's node."""
    known = [hardware.device(d.name) for d in t.devices]
    return [hardware.nic_limit(x, gpus, max(1, nics)) for x in known if x]


def _wire(t: Topology) -> float:
    """Returns the wire's GB/s of the devices' links, used or not; 0 if unknown."""
    return min(device.wire for device in t.devices)


def _network(
    t: Topology, generation: Generation, nics: int, nic: float
) -> tuple[NcclNetwork, float]:
    """Returns the network between the nodes, by default the device's usual, and the wire's GB/s of
    a NIC, whose rate may be given by hand, as it is sold."""
    used = [t.networks[row] for row in np.unique(t.network).tolist()]
    names = {known.value: known for known in NcclNetwork}
    name = next((names[one.name] for one in used if one.name in names), _usual(t))
    if name is NcclNetwork.EFA and generation in {Generation.VOLTA, Generation.AMPERE}:
        name = NcclNetwork.EFA1
    if name is NcclNetwork.TCPX and nics >= OF_TCPXO:
        name = NcclNetwork.TCPXO
    share = 1.0 if nic in WIRES else min(one.delivered for one in used)
    most = [one.bandwidth for one in used if one.bandwidth > 0]
    return name, min(nic / share, *most) if most else nic / share


def _usual(t: Topology) -> NcclNetwork:
    known = [hardware.device(d.name) for d in t.devices]
    return NcclNetwork(known[0].word("node_network")) if known[0] else NcclNetwork.INFINIBAND


def _link(t: Topology, generation: Generation, mesh: bool, wire: float) -> NcclLink:
    said = {device.link for device in t.devices}
    if generation.amd:
        return NcclLink.XGMI_MESH
    cards = [x for d in t.devices if (x := hardware.device(d.name)) and x.word("link") == "pcie"]
    if cards and len(t) > t.n_nodes:
        bridged = mesh and (said != {"pcie"} or wire > max(x.number("wire") for x in cards))
        return NcclLink.NVLINK_MESH if bridged else NcclLink.PCIE
    if said == {"pcie"} or (wire <= FASTEST_PCIE and said.isdisjoint({"mesh", "nvlink"})):
        return NcclLink.PCIE
    return NcclLink.NVLINK_MESH if mesh else NcclLink.NVSWITCH


def _node_links(t: Topology) -> tuple[float, bool]:
    """Returns the GB/s at which the slowest rank sends within its node, and whether over links of
    pairs."""
    direct, port = _of_pairs(t), np.zeros(len(t))
    if not _joined_by_pairs(t):
        direct[:] = 0  # rings go from pair to pair by what else there is
    ported = t.port[Level.PORT] >= 0
    port[ported] = t.shared.capacity[t.port[Level.PORT][ported]]
    capacity = np.maximum(direct, port)
    pairs = bool((direct > 0).any() and (direct >= port).all())
    reachable = capacity[capacity > 0]
    # What only switches join (two sockets of PCIe) passes through the narrowest of them.
    switches = t.shared.capacity[t.level == Level.SWITCH]
    least = [float(part.min()) for part in (reachable, switches) if len(part)]
    return (min(least) if least else 32.0), pairs


def _joined_by_pairs(t: Topology) -> bool:
    """Tells whether links of pairs alone lead from each GPU to all others of its node."""
    part = np.arange(len(t))
    inside = t.node[t.link_src] == t.node[t.link_dst]
    a, b = t.link_src[inside], t.link_dst[inside]
    for mesh in np.unique(t.mesh[t.mesh >= 0]).tolist():  # of a part's some have no rank
        part[t.mesh == mesh] = part[t.mesh == mesh].min()
    for _ in range(len(t)):
        before = part.copy()
        least = np.minimum(part[a], part[b])
        np.minimum.at(part, a, least)
        np.minimum.at(part, b, least)
        if (part == before).all():
            break
    return len(np.unique(part)) == t.n_nodes


def _direct(t: Topology) -> bool:
    """Tells whether every two GPUs of the only node have links of their own."""
    n = np.int64(len(t))
    pairs = [t.link_src * n + t.link_dst]
    for mesh in range(int(t.mesh.max(initial=-1)) + 1):
        ranks = np.flatnonzero(t.mesh == mesh)
        pairs.append((ranks[:, None] * n + ranks).ravel())
    joined = np.unique(np.concatenate(pairs))
    return bool((joined // n != joined % n).sum() == n * (n - 1))


def _of_pairs(t: Topology) -> NDArray[np.float64]:
    """Returns the GB/s of each rank's links to single others of its node: f8[n]."""
    capacity = np.zeros(len(t))
    inside = t.node[t.link_src] == t.node[t.link_dst]
    np.add.at(capacity, t.link_src[inside], t.links.capacity[inside])
    in_mesh = t.mesh >= 0
    if in_mesh.any():
        size = np.bincount(t.mesh[in_mesh], minlength=len(t.meshes.capacity))
        capacity[in_mesh] += (t.meshes.capacity * (size - 1))[t.mesh[in_mesh]]
    return capacity


def _nics(t: Topology, domain: I4) -> tuple[int, float]:
    """Returns the fewest NICs of a domain, and GB/s of the slowest."""
    port = t.port[Level.NIC]
    has = port >= 0
    if not has.any():
        return 0, 0.0
    on, groups = np.unique(np.stack([domain[has], port[has]]), axis=1)
    count = np.bincount(on, weights=t.shared.parallel[groups])
    return int(count[np.unique(on)].min()), float(t.shared.bandwidth[groups].min())
