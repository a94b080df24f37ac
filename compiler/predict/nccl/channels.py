"""channels: the graphs that NCCL's search finds, in closed form: channels, and what each carries.

NCCL searches paths over the PCI and NVLink graph of a node; on machines whose GPUs and NICs are
alike that ends at the fastest speed of its list at which whole channels use a GPU's links and the
NICs best.
"""

from __future__ import annotations

from dataclasses import dataclass

from hccc.predict.nccl.machine import Generation, Link, Machine
from hccc.predict.nccl.tuning import (
    MAX_CHANNELS,
    NVLINK_SHARE,
    NVLS_CHANNELS,
    NVLS_CHANNELS_BLACKWELL,
    NVLS_HEADS,
    SPEEDS,
    XGMI,
)


@dataclass(frozen=True, slots=True)
class Graph:
    """Channels of one algorithm; GB/s of one in a node, and between nodes."""

    channels: int
    intra: float
    inter: float


@dataclass(frozen=True, slots=True)
class Graphs:
    """ring: rings; tree: as the ring, but within a node as fast as links go (search.cc, second
    pass); nvls: None where the switch does not reduce; channels: those that rings and trees run
    on; nvls_channels: those of NVLS."""

    ring: Graph
    tree: Graph
    nvls: Graph | None
    channels: int
    nvls_channels: int


def link_rate(m: Machine) -> float:
    """GB/s that the library takes a GPU's links for."""
    if m.generation.amd:
        return XGMI[m.generation] * max(1, m.gpus - 1)
    if m.link is Link.PCIE:
        # A path over PCIe costs half where it goes by way of the host's memory.
        return m.wire * (0.75 if m.peer else 0.5)
    return m.wire * NVLINK_SHARE[m.generation]


def graphs(m: Machine) -> Graphs:
    """What NCCL or RCCL would find on `m`."""
    return _rccl(m) if m.generation.amd else _nccl(m)


def _rccl(m: Machine) -> Graphs:
    """RCCL's presets: 56 channels in a node of eight, 64 between nodes."""
    if m.nodes == 1:
        channels = 8 * max(1, m.gpus - 1) if m.generation is not Generation.MI200 else 24
        channels = min(channels, 56)
        graph = Graph(channels, link_rate(m) / channels, link_rate(m) / channels)
        return Graphs(graph, graph, None, channels, 0)
    rate = min(link_rate(m) * _around(m), m.node_wire) if m.gpus > 1 else m.node_wire
    channels = 64 if m.generation is not Generation.MI200 else 16
    graph = Graph(channels, rate / channels, rate / channels)
    return Graphs(graph, graph, None, channels, 0)


def _around(m: Machine) -> float:
    """A ring of several nodes leaves a node once for every pass: a GPU's links see less of it."""
    return m.gpus / (m.gpus - 1) if m.nodes > 1 and m.gpus > 1 else 1.0


def _nccl(m: Machine) -> Graphs:
    intra, inter = SPEEDS[m.generation]
    rate = link_rate(m) * _around(m)
    if m.nodes == 1:
        ring = _best(intra, rate, MAX_CHANNELS // 2)
    else:
        nics, nic = _nic_paths(m)
        rate = rate if m.gpus > 1 else nics * nic
        ring = _best(inter, rate, MAX_CHANNELS // 2, nics, nic)
    ring = _doubled(ring, m.generation)
    channels = min(MAX_CHANNELS, 2 * ring.channels)
    new = m.generation in {Generation.HOPPER, Generation.BLACKWELL}
    if new and m.nodes > 1 and ring.intra > 45 and channels < 16:
        channels *= 2
    if m.link is Link.PCIE and m.nodes == 1:
        channels = max(2, min(channels, 4))
    return Graphs(ring, _tree(m, ring), _nvls(m), channels, _nvls_channels(m))


def _tree(m: Machine, ring: Graph) -> Graph:
    if m.nodes == 1 or m.gpus == 1:
        return ring
    rate = link_rate(m) / ring.channels
    intra = next((s for s in SPEEDS[m.generation][1] if s <= rate), ring.intra)
    return Graph(ring.channels, max(intra, ring.intra), ring.inter)


def _nic_paths(m: Machine) -> tuple[int, float]:
    """NICs of a node and GB/s of each, no more than its PCIe takes."""
    limit = 96.0 if m.generation is Generation.BLACKWELL else 48.0
    if m.generation in {Generation.VOLTA, Generation.AMPERE}:
        limit = 24.0
    return max(1, m.nics), min(max(m.nic, 0.12), limit)


def _best(
    speeds: tuple[float, ...], rate: float, most: int, nics: int = 0, nic: float = 0.0
) -> Graph:
    best = Graph(1, speeds[-1], speeds[-1])
    for speed in speeds:
        channels = min(int(rate / speed + 1e-6), most)
        if nics:
            per_nic = int(nic / speed + 0.05)
            channels = min(channels, nics * per_nic)
        if channels * speed > best.channels * best.inter * (1 + 1e-9) and channels:
            best = Graph(channels, speed, speed)
    return best


def _doubled(g: Graph, generation: Generation) -> Graph:
    """search.cc ncclTopoDupChannels: two channels of half the speed, where it is high."""
    new = generation in {Generation.HOPPER, Generation.BLACKWELL}
    if g.intra < 25 or (new and g.intra < 50 and g.channels > 4):
        return g
    channels = min(2 * g.channels, MAX_CHANNELS // 2)
    by = -(-channels // g.channels)
    return Graph(channels, g.intra / by, g.inter / by)


def _nvls(m: Machine) -> Graph | None:
    """One head for each GPU; a GPU's links carry every head's part, and its own once more."""
    if not m.nvls or m.link is not Link.NVSWITCH or m.gpus < 2:
        return None
    heads = min(m.gpus, NVLS_HEADS)
    rate = link_rate(m) / (heads + 1)
    intra = next((s for s in SPEEDS[m.generation][0] if s <= rate), rate)
    if m.nodes == 1:
        return Graph(heads, intra, intra)
    nics, nic = _nic_paths(m)
    return Graph(heads, intra, min(nics * nic / heads, SPEEDS[m.generation][1][0]))


def _nvls_channels(m: Machine) -> int:
    if m.generation is Generation.BLACKWELL:
        return NVLS_CHANNELS_BLACKWELL[m.nodes > 1]
    return NVLS_CHANNELS
