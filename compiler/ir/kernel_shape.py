"""kernel_shape: the constants that a Plan's kernels are generated with, and hosts reckon with.

The fields are those of `hccc_shape` in `runtime/include/hccc/layout.h`, in its order; their names
in capitals after `HCCC_` are what kernels define. A test holds the three together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from hccc.ir.micro_batch import GRAIN
from hccc.ir.plan import Plan


@dataclass(frozen=True, slots=True)
class KernelShape:
    """ranks; sub: chunks of a block; channels; blocks: thread blocks of a rank and channel;
    flags, scratch, stage, queues: of a rank, the most of any; sends: network queues that begin at
    a rank, likewise; slots: of a queue; grain: bytes, how finely calls are cut that name no
    micro-batch."""

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
    """How many queues end at each rank: i8[n_ranks]. They are numbered there from 0, by id."""
    return np.bincount(plan.queues.dst, minlength=plan.n_ranks).astype(np.int64)


def sends_per_rank(plan: Plan) -> NDArray[np.int64]:
    """How many network queues begin at each rank: i8[n_ranks]; numbered there from 0, by id."""
    begin = plan.queues.src[plan.network_queues()]
    return np.bincount(begin, minlength=plan.n_ranks).astype(np.int64)


def kernel_shape(plan: Plan) -> KernelShape:
    """The shape that the kernels of `plan` are generated with."""
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
