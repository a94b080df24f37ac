"""Devices and networks: the figures of a kind of GPU, and of what carries bytes between nodes.

Bandwidths are GB/s (10⁹ bytes a second) in one direction, times µs. A figure that nobody measured
for this hardware is named in `estimates`. A figure that is unknown is 0 or empty.
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
    """What memory delivers while all that a call touches there is `size` bytes: block, GB/s that
    one thread block copies; all, GB/s that all together copy, 0 for no limit."""

    size: int
    block: float
    all: float = 0.0


# µs where a cluster is silent: of an NVLink (NDv2 in the topologies that TE-CCL released) and of
# InfiniBand (the same).
IN_NODE = ByProtocol(0.7, 0.7, 0.7)
BETWEEN_NODES = ByProtocol(2.6, 2.6, 2.6)
NONE = ByProtocol(0.0, 0.0, 0.0)
BLOCK_RATES = ("block", "store", "load", "proxy")
PROTOCOLS = ByProtocol._fields
ALPHAS = tuple(f"alpha_{protocol}" for protocol in PROTOCOLS)
BASES = tuple(f"base_{protocol}" for protocol in PROTOCOLS)
# What a device that is described by hand only guesses, where the description is silent.
GUESSED = ("reduce", *BLOCK_RATES, *ALPHAS)
GUESSED_OF_NETWORKS = ("delivered", *ALPHAS)


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of GPU.

    reduce: GB/s of a reduction, what one more source costs (HeteCCL's 1/γ). GB/s that one thread
    block copies: block, within its own memory; store, to a peer's memory; load, from a peer's
    memory; proxy, into a slot that a proxy sends (0 is given as `block`). arch: sm_90, gfx942;
    generation: Volta, Hopper, CDNA3; sms: multiprocessors or compute units; hbm: GB/s of its
    memory; link: a kind of links within a node (`hccc.shipped.hardware`); wire: GB/s of all links
    of a GPU each way, delivered: what thread blocks get of them; peer: whether GPUs address each
    other's memory over PCIe; nvls: whether the switch reduces; alpha: µs of a step over a link;
    base: µs that a collective of NCCL or RCCL has besides steps; launch: µs of a launch in a
    stream, graph: in a graph; blocks: the thread blocks that fill its links; read: the part of the
    time of a copy that its read takes; cache: what its memory delivers by what a call touches of
    it, by ascending size (`Cached`); step: µs of a step over no link, its waits and posts;
    estimates: names of figures.
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
        """GB/s of a thread block, in the order of `BLOCK_RATES`."""
        return self.block, self.store, self.load, self.proxy

    def copies(self, touched: float) -> Cached:
        """What its memory delivers to a call that touches so many bytes: between two sizes of
        `cache` in proportion, of logarithms; `block`, without a limit, where there is no `cache`.
        """
        if not self.cache:
            return Cached(int(touched), self.block)
        sizes, block, all = np.log(np.maximum(np.array(self.cache, np.float64), 1e-9)).T
        at = np.log(max(touched, 1.0))
        rates = [float(np.exp(np.interp(at, sizes, rate))) for rate in (block, all)]
        return Cached(int(touched), rates[0], rates[1] if self.cache[0].all else 0.0)


@dataclass(frozen=True, slots=True)
class Network:
    """What joins nodes. bandwidth: GB/s of the wire of a NIC each way, 0 where the cluster gives
    the rates of its NICs; delivered: the part of it that a collective gets; alpha: µs of a transfer
    between nodes; proxy: µs that the host's proxy takes for a message; estimates: names of figures.
    """

    name: str = ""
    bandwidth: float = 0.0
    delivered: float = 1.0
    alpha: ByProtocol = BETWEEN_NODES
    proxy: float = 0.0
    estimates: tuple[str, ...] = ()
