"""Devices and networks: the figures of a kind of GPU, and of the links between nodes.

Bandwidths are GB/s (10⁹ bytes a second) in one direction, times µs. `estimates` names the figures
that were not measured on this hardware. An unknown figure is 0 or empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class ByProtocol(NamedTuple):
    """µs under NCCL's protocols."""

    ll: float
    ll128: float
    simple: float


class Cached(NamedTuple):
    """The rates of memory for a call that touches `size` bytes of it. block: GB/s that one thread
    block copies; all: GB/s that all thread blocks together copy, 0 for no limit."""

    size: int
    block: float
    all: float = 0.0


# Defaults in µs: of an NVLink (NDv2 in TE-CCL's released topologies) and of InfiniBand (the same).
IN_NODE = ByProtocol(0.7, 0.7, 0.7)
BETWEEN_NODES = ByProtocol(2.6, 2.6, 2.6)
NONE = ByProtocol(0.0, 0.0, 0.0)
BLOCK_RATES = ("block", "store", "load", "proxy")
PROTOCOLS = ByProtocol._fields
ALPHAS = tuple(f"alpha_{protocol}" for protocol in PROTOCOLS)
BASES = tuple(f"base_{protocol}" for protocol in PROTOCOLS)
# Figures that are only guessed if a cluster file describes its device or network without them.
GUESSED = ("reduce", *BLOCK_RATES, *ALPHAS)
GUESSED_OF_NETWORKS = ("delivered", *ALPHAS)


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of GPU.

    reduce: GB/s of a reduction, the cost of one more source (HeteCCL's 1/γ). GB/s that one thread
    block copies: block, within its own memory; store, to a peer's memory; load, from a peer's
    memory; proxy, into a slot that a proxy sends (0: the same as `block`). arch: sm_90, gfx942;
    generation: Volta, Hopper, CDNA3; sms: multiprocessors or compute units; hbm: GB/s of its
    memory; link: the kind of links within a node (`hccc.shipped.hardware`); wire: GB/s of all links
    of a GPU each way, delivered: the part of it that thread blocks get; peer: whether GPUs address
    each other's memory over PCIe; nvls: whether the switch reduces; alpha: µs of a step over a
    link; base: µs of a collective of NCCL or RCCL besides its steps; launch: µs of a launch in a
    stream, graph: in a graph; own: µs of a load of its own memory that waits for another's result;
    fence: µs of a fence of all devices; blocks: the thread blocks that fill its links; read: the
    share of a copy's time that its read takes; cache: rates of its memory by the size touched,
    ascending (`Cached`); step: µs of a step over no link, its waits and posts; estimates: names of
    figures.
    """

    vendor: str = "any"
    name: str = "GPU"
    reduce: float = 300.0
    block: float = 6.25
    store: float = 0.0
    load: float = 0.0
    proxy: float = 0.0
    arch: str = ""
    generation: str = ""
    sms: int = 0
    hbm: float = 0.0
    link: str = ""
    wire: float = 0.0
    delivered: float = 0.0
    peer: bool = True
    nvls: bool = False
    alpha: ByProtocol = IN_NODE
    base: ByProtocol = NONE
    launch: float = 0.0
    graph: float = 0.0
    own: float = 0.0
    fence: float = 0.0
    blocks: int = 0
    read: float = 0.5
    cache: tuple[Cached, ...] = ()
    step: float = 0.0
    estimates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in BLOCK_RATES[1:]:
            object.__setattr__(self, name, getattr(self, name) or self.block)

    @property
    def block_rates(self) -> tuple[float, float, float, float]:
        """GB/s of one thread block, in the order of `BLOCK_RATES`."""
        return self.block, self.store, self.load, self.proxy

    def copies(self, touched: float) -> Cached:
        """Returns the memory's rates for a call that touches `touched` bytes: interpolated between
        the sizes of `cache`, in logarithms; `block` without a limit if there is no `cache`."""
        if not self.cache:
            return Cached(int(touched), self.block)
        sizes, block, all = np.log(np.maximum(np.array(self.cache, np.float64), 1e-9)).T
        at = np.log(max(touched, 1.0))
        rates = [float(np.exp(np.interp(at, sizes, rate))) for rate in (block, all)]
        return Cached(int(touched), rates[0], rates[1] if self.cache[0].all else 0.0)


@dataclass(frozen=True, slots=True)
class Network:
    """The network between nodes. bandwidth: GB/s of a NIC's wire each way, 0 if the cluster states
    the rates of its NICs; delivered: the part of it that a collective gets; alpha: µs of a transfer
    between nodes; proxy: µs that the host's proxy takes per message; estimates: names of
    figures."""

    name: str = ""
    bandwidth: float = 0.0
    delivered: float = 1.0
    alpha: ByProtocol = BETWEEN_NODES
    proxy: float = 0.0
    estimates: tuple[str, ...] = ()
