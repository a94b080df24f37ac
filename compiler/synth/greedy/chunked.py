"""chunked: a Topology as chunks a step: how many each link and shared group carries at once.

HeteCCL §4.1: a *step* is the time that one chunk takes over the slowest kind of link; a faster link
carries as many chunks in a step as it is faster (Eq. 1): ⌈τ_ref / τ⌉ over each of n parallel links,
n times that over all, so two links of 25 GB/s carry 8 where the slowest has 8 GB/s. τ is of chunks
so long that latency does not count. The link, the ports, the NICs and the uplinks of a transfer
(`network/routes`) are all resources here, so that C(u, v) and the shared groups C_g are one thing.

Eq. 1 rounds up: a link of 180 GB/s beside one of 50 GB/s carries 200. `fine`, which all engines but
HeteCCL's take, rounds down what parallel links carry together, with a step so much longer that no
resource loses more than FINE of its rate: schedules may count on what it says. Many ranks have many
chunks to fill a step with: of the lengths they can fill, the one that loses least is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I4, I8, frozen
from hccc.ir.topology import F8, US_PER_MB, Topology
from hccc.synth.common.route_table import RouteTable, route_table

FINE = 0.03  # part of a rate that rounding may lose
RANKS_A_SCALE = 64  # ranks that fill one step of Eq. 1 with chunks
LONGEST = 64  # steps of Eq. 1 in one, at most
EXACT = 1e-9  # difference of quotients below which it is rounding


@dataclass(frozen=True, slots=True, eq=False)
class Chunked:
    """A Topology of n ranks, whose resources carry whole chunks.

    node: i4[n] memory domains from 0; use: i4[n · n, L] the resources of
    u → v in row u · n + v, -1 beyond them, and -2 first where there is no route; capacity: i8[R]
    chunks a step; network: b1[R] whether transfers between nodes use it; rate: GB/s of one chunk
    a step.
    """

    node: I4
    use: I4
    capacity: I8
    network: np.ndarray
    rate: float

    @property
    def n(self) -> int:
        """The number of ranks."""
        return len(self.node)

    def reversed(self) -> Chunked:
        """Returns the same with every link turned round."""
        turned = self.use.reshape(self.n, self.n, -1).transpose(1, 0, 2).reshape(self.use.shape)
        use = frozen(turned, np.int32)
        return Chunked(self.node, use, self.capacity, self.network, self.rate)

    def step(self, chunk: int) -> float:
        """Returns the µs of a step of chunks of so many bytes."""
        return chunk / (self.rate * US_PER_MB)


def chunked(t: Topology, *, fine: bool = False, ranks: I8 | None = None) -> Chunked:
    """Returns `t`, or some of its ranks, in chunks a step: by Eq. 1, or `fine`.

    O(ranks² · longest route) time and memory.
    """
    table = route_table(t, ranks)
    whole, rate = _finely(table.capacity, table.n) if fine else _by_link(table)
    return Chunked(
        frozen(table.node, np.int32),
        frozen(table.use, np.int32),
        frozen(whole, np.int64),
        frozen(table.between_nodes(), np.bool_),
        rate,
    )


def _by_link(table: RouteTable) -> tuple[F8, float]:
    """Returns the chunks a step of each resource, by Eq. 1, and the rate of one."""
    link = table.capacity / table.parallel
    slowest = float(link.min(initial=np.inf))
    return np.ceil(link / slowest - EXACT) * table.parallel, slowest


def _finely(capacity: F8, ranks: int) -> tuple[F8, float]:
    """Returns the chunks a step of each resource, rounded down, and the rate of one."""
    slowest = float(capacity.min(initial=np.inf))
    scale = _scale(capacity / slowest, max(1, ranks // RANKS_A_SCALE))
    return np.floor(capacity / slowest * scale + EXACT), slowest / scale


def _scale(quotient: F8, filled: int) -> int:
    """Returns how many times as long as Eq. 1's a step is. filled: times that all ranks have chunks
    for."""
    lost = np.array([_lost(quotient * scale) for scale in range(1, LONGEST + 1)])
    few = lost[:filled]
    if few.min() <= FINE:
        return int((few <= few.min() + EXACT).argmax()) + 1
    return int((lost <= FINE).argmax()) + 1 if (lost <= FINE).any() else LONGEST


def _lost(scaled: F8) -> float:
    """Returns the largest part of a rate that rounding down loses."""
    return float((1 - np.floor(scaled + EXACT) / scaled).max(initial=0.0))
