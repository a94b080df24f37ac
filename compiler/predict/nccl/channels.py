"""channels: the graphs that NCCL's search finds, in closed form: channels, and the rate of each.

NCCL searches paths over the PCI and NVLink graph of a node. On machines whose GPUs and NICs are
alike the search ends at the fastest speed of its list at which whole channels use a GPU's links and
the NICs best.
"""

from __future__ import annotations

from dataclasses import dataclass

from hccc.predict.nccl.machine import Generation, NcclLink, NcclMachine
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
class ChannelGraph:
    """Channels of one algorithm; GB/s of one channel in a node, and between nodes."""

    channels: int
    intra: float
    inter: float


@dataclass(frozen=True, slots=True)
class ChannelGraphs:
    """The graphs of a machine.

    ring: rings; tree: as the ring, but within a node as fast as links go (search.cc, second pass);
    nvls: None if the switch does not reduce; channels: of rings and trees; nvls_channels: of NVLS.
    """

    ring: ChannelGraph
    tree: ChannelGraph
    nvls: ChannelGraph | None
    channels: int
    nvls_channels: int


def link_rate(m: NcclMachine) -> float:
    """Returns the GB/s that the library assumes for a GPU's links."""
    if m.generation.amd:
        return XGMI[m.generation] * max(1, m.gpus - 1)
    if m.link is NcclLink.PCIE:
        # A path over PCIe costs half where it goes by way of the host's memory.
        return m.wire * (0.75 if m.peer else 0.5)
    return m.wire * NVLINK_SHARE[m.generation]


def graphs(m: NcclMachine) -> ChannelGraphs:
    """Returns the graphs that NCCL or RCCL would find on `m`."""
    return _rccl(m) if m.generation.amd else _nccl(m)


def _rccl(m: NcclMachine) -> ChannelGraphs:
    """Returns RCCL's presets: 56 channels in a node of eight, 64 between nodes."""
    if m.nodes == 1:
        channels = 8 * max(1, m.gpus - 1) if m.generation is not Generation.MI200 else 24
        channels = min(channels, 56)
        graph = ChannelGraph(channels, link_rate(m) / channels, link_rate(m) / channels)
        return ChannelGraphs(graph, graph, None, channels, 0)
    rate = min(link_rate(m) * _around(m), m.node_wire) if m.gpus > 1 else m.node_wire
    channels = 64 if m.generation is not Generation.MI200 else 16
    graph = ChannelGraph(channels, rate / channels, rate / channels)
    return ChannelGraphs(graph, graph, None, channels, 0)


def _around(m: NcclMachine) -> float:
    """Returns a factor of a ring of several nodes: it leaves a node once in every pass, so a GPU's
    links see less of it."""
    return m.gpus / (m.gpus - 1) if m.nodes > 1 and m.gpus > 1 else 1.0


def _nccl(m: NcclMachine) -> ChannelGraphs:
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
    if m.link is NcclLink.PCIE and m.nodes == 1:
        channels = max(2, min(channels, 4))
    return ChannelGraphs(ring, _tree(m, ring), _nvls(m), channels, _nvls_channels(m))


def _tree(m: NcclMachine, ring: ChannelGraph) -> ChannelGraph:
    if m.nodes == 1 or m.gpus == 1:
        return ring
    rate = link_rate(m) / ring.channels
    intra = next((s for s in SPEEDS[m.generation][1] if s <= rate), ring.intra)
    return ChannelGraph(ring.channels, max(intra, ring.intra), ring.inter)


def _nic_paths(m: NcclMachine) -> tuple[int, float]:
    """Returns the NICs of a node and GB/s of each, no more than its PCIe takes."""
    limit = 96.0 if m.generation is Generation.BLACKWELL else 48.0
    if m.generation in {Generation.VOLTA, Generation.AMPERE}:
        limit = 24.0
    return max(1, m.nics), min(max(m.nic, 0.12), limit)


def _best(
    speeds: tuple[float, ...], rate: float, most: int, nics: int = 0, nic: float = 0.0
) -> ChannelGraph:
    best = ChannelGraph(1, speeds[-1], speeds[-1])
    for speed in speeds:
        channels = min(int(rate / speed + 1e-6), most)
        if nics:
            per_nic = int(nic / speed + 0.05)
            channels = min(channels, nics * per_nic)
        if channels * speed > best.channels * best.inter * (1 + 1e-9) and channels:
            best = ChannelGraph(channels, speed, speed)
    return best


def _doubled(g: ChannelGraph, generation: Generation) -> ChannelGraph:
    """Doubles the channels at half the speed, if the speed is high (search.cc
    ncclTopoDupChannels)."""
    new = generation in {Generation.HOPPER, Generation.BLACKWELL}
    if g.intra < 25 or (new and g.intra < 50 and g.channels > 4):
        return g
    channels = min(2 * g.channels, MAX_CHANNELS // 2)
    by = -(-channels // g.channels)
    return ChannelGraph(channels, g.intra / by, g.inter / by)


def _nvls(m: NcclMachine) -> ChannelGraph | None:
    """Returns one head for each GPU; a GPU's links carry every head's part, and its own once
    more."""
    if not m.nvls or m.link is not NcclLink.NVSWITCH or m.gpus < 2:
        return None
    heads = min(m.gpus, NVLS_HEADS)
    rate = link_rate(m) / (heads + 1)
    intra = next((s for s in SPEEDS[m.generation][0] if s <= rate), rate)
    if m.nodes == 1:
        return ChannelGraph(heads, intra, intra)
    nics, nic = _nic_paths(m)
    return ChannelGraph(heads, intra, min(nics * nic / heads, SPEEDS[m.generation][1][0]))


def _nvls_channels(m: NcclMachine) -> int:
    if m.generation is Generation.BLACKWELL:
        return NVLS_CHANNELS_BLACKWELL[m.nodes > 1]
    return NVLS_CHANNELS
