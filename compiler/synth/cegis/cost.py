"""cost: the time of a schedule by HeteCCL's cost model (§4.2, App. K).

A step takes what its slowest transfer does, α + S · β, and S · γ more where chunks are added up:
N_step · max(τ_c). Of many batches each begins when the links are free: what a batch takes longer
than its bytes over the slowest resource is paid once (Eq. 10).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.topology import US_PER_MB, Topology
from hccc.network.routes import routes
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.schedule import Schedule, busiest


@dataclass(frozen=True, slots=True)
class Cost:
    """alpha: µs of a transfer's latency; beta: µs of a byte on a link of one chunk a step; gamma:
    µs to add one byte."""

    alpha: float
    beta: float
    gamma: float

    def step(self, chunk: int, *, sums: bool = False) -> float:
        """Returns the µs of a step with chunks of so many bytes: max(τ_c)."""
        return self.alpha + chunk * (self.beta + sums * self.gamma)

    def time(self, s: Schedule, chunk: int, *, sums: bool = False) -> float:
        """Returns the µs of a schedule that runs once: N_step · max(τ_c)."""
        return s.steps * self.step(chunk, sums=sums)

    def batches(
        self, s: Schedule, c: Chunked, chunk: int, count: int, *, sums: bool = False
    ) -> float:
        """Returns the µs of `count` runs, each of which begins as soon as the busiest resource is
        free."""
        return self.time(s, chunk, sums=sums) + (count - 1) * busiest(s, c) * chunk * self.beta


def cost(t: Topology, c: Chunked) -> Cost:
    """Returns the cost of the slowest link and device on `t`, of which `c` was made."""
    src, dst = (a.ravel().astype(np.int32) for a in np.divmod(np.arange(c.n * c.n), c.n))
    linked = np.flatnonzero((c.use[:, 0] != -2) & (src != dst))
    alpha = routes(t, src[linked], dst[linked]).alpha.max(initial=0.0)
    slowest = min(device.reduce for device in t.devices)
    return Cost(float(alpha), 1 / (c.rate * US_PER_MB), 1 / (slowest * US_PER_MB))
