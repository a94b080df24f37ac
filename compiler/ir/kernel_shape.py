"""kernel_shape: the constants with which a Plan's kernels are generated and launched.

The fields are those of `hccc_shape` in `runtime/include/hccc/layout.h`, in its order; kernels
define them in capitals after `HCCC_`. A test compares the three.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from hccc.ir.micro_batch import GRAIN
from hccc.ir.plan import Plan


@dataclass(frozen=True, slots=True)
class KernelShape:
    """The constants of a Plan's kernels.

    ranks; sub: chunks of a block; channels; blocks: thread blocks of a rank and channel; flags,
    scratch, stage, queues: the most of any rank; sends: the most network queues that begin at a
    rank; slots: of a queue; grain: bytes, sets the micro-batch of calls that name none.
    """

    ranks: int
    sub: int
    channels: int
    blocks: int
    flags: int
    scratch: int
    stage: int
    queues: int
    sends: int
    slots: int
    grain: int = GRAIN

    def constants(self) -> dict[str, int]:
        """Returns the fields by name, in the order of the C struct."""
        return asdict(self)


def queues_per_rank(plan: Plan) -> NDArray[np.int64]:
    """Returns the number of queues that end at each rank, i8[n_ranks]; a rank numbers them from 0,
    by id."""
    return np.bincount(plan.queues.dst, minlength=plan.n_ranks).astype(np.int64)


def sends_per_rank(plan: Plan) -> NDArray[np.int64]:
    """Returns the number of network queues that begin at each rank, i8[n_ranks]; a rank numbers
    them from 0, by id."""
    begin = plan.queues.src[plan.network_queues()]
    return np.bincount(begin, minlength=plan.n_ranks).astype(np.int64)


def kernel_shape(plan: Plan) -> KernelShape:
    """Returns the shape of the kernels of `plan`."""
    queues = int(queues_per_rank(plan).max(initial=0))
    return KernelShape(
        ranks=plan.n_ranks,
        sub=plan.collective.chunks_per_block,
        channels=plan.channels,
        blocks=int(plan.n_tb.max(initial=1)),
        flags=int(plan.n_flags.max(initial=0)),
        scratch=int(plan.scratch_slots.max(initial=0)),
        stage=int(plan.stage_slots.max(initial=0)),
        queues=queues,
        sends=int(sends_per_rank(plan).max(initial=0)),
        slots=plan.queue_slots if queues else 1,
        grain=plan.grain,
    )
