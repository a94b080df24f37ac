"""costs: the costs that a runtime adds to a cluster's α, β, γ and thread-block throughput.

Parameters, never tuned to a result. `SIMPLE` is a generated kernel under NCCL's Simple protocol; LL
and LL128 send flags with the data (NCCL `src/device/prims_ll*.h`: 8 bytes in 16, 120 in 128).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from hccc.base.diagnostics import fail


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a runtime.

    launch: µs before the first primitive, None for the cluster's own; step: µs of a block per
    primitive and micro-batch besides moving data (waits, posts); interpret: further µs if an
    interpreter decodes each step; efficiency: payload bytes per byte on a link; latency: factor on
    α; contention: ResCCL Eq. 1, the share of a link's capacity lost per unit by which the thread
    blocks on it could exceed its capacity (0: HeteCCL Fig. 4 measured none); meets: whether ranks
    meet at the begin and the end of a launch as those of generated kernels do.
    """

    launch: float | None = None
    step: float = 0.0
    interpret: float = 0.0
    efficiency: float = 1.0
    latency: float = 1.0
    contention: float = 0.0
    meets: bool = True

    def __post_init__(self) -> None:
        given = (self.launch or 0.0, self.step, self.interpret, self.latency, self.contention)
        if not all(0 <= x < inf for x in given) or not 0 < self.efficiency <= 1:
            raise fail("E410", f"impossible costs: {self}", help="none may be negative or infinite")


# The share of what links deliver that multicast addresses get: AllReduce by NVLS has a busbw of 443
# to 483 GB/s on 8 H100 (NVIDIA/nccl issues 212 and 1455), which is 0.78 to 0.85 of what 367 GB/s in
# each direction allow.
SWITCHED = 0.8
SIMPLE = Costs()
LL = Costs(efficiency=0.5)
LL128 = Costs(efficiency=120 / 128)
PACKETS = Costs(efficiency=0.75)  # of generated kernels: 6 bytes in 8 (kernel-protocol §14)
PROTOCOLS = {"Simple": SIMPLE, "LL": LL, "LL128": LL128}
