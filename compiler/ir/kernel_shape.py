"""kernel_shape: the constants with which a Plan's kernels are generated and launched.

The fields are those of `hccc_shape` in `runtime/include/hccc/layout.h`, in its order; kernels
define them in capitals after `HCCC_`. A test compares the three.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from hccc.ir.choices import PlanProtocol
from hccc.ir.micro_batch import GRAIN
from hccc.ir.plan import Plan

ALIGNMENT = 16  # bytes: parts of chunks are whole numbers of them
LINE = 64  # bytes of a packet on the CPU
LINE_DATA = 56  # of them data
LINE_ROOM = 128  # bytes for as much data in packets of a GPU


def round_up(n: int, to: int) -> int:
    """Returns the smallest multiple of `to` that is at least `n`."""
    return (n + to - 1) // to * to


@dataclass(frozen=True, slots=True)
class KernelShape:
    """The constants of a Plan's kernels.

    ranks; sub: chunks of a block; channels; blocks: thread blocks of a rank and channel; flags,
    scratch, stage, queues: the most of any rank; sends: the most network queues that begin at a
    rank; slots: of a queue; grain: bytes, sets the micro-batch of calls that name none; packets:
    the most packet slots of any rank, greetings last, by their senders, and lines: packets of each
    of them, on the CPU.
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
    packets: int = 0
    lines: int = 0

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


def packet_slots(plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the packet slot of each queue's first message, i8[Q], and the slots of each rank,
    i8[n_ranks]; none where the protocol is simple.

    A rank numbers its slots by how far before it the sender is, so that all ranks do alike.
    """
    q, n = plan.queues, plan.n_ranks
    if plan.protocol is PlanProtocol.SIMPLE:
        return np.zeros(len(q), np.int64), np.zeros(n, np.int64)
    order = np.lexsort((np.arange(len(q)), (q.src - q.dst) % n, q.dst))
    length = q.length[order].astype(np.int64)
    of_rank = np.bincount(q.dst, weights=q.length, minlength=n).astype(np.int64)
    first = np.empty(len(q), np.int64)
    first[order] = np.cumsum(length) - length
    first -= (np.cumsum(of_rank) - of_rank)[q.dst]
    return first, of_rank


def packet_lines(plan: Plan) -> int:
    """Returns the packets of 64 bytes that each slot has room for: the largest call's part of a
    chunk."""
    if plan.protocol is PlanProtocol.SIMPLE:
        return 0
    c = plan.collective
    pieces = c.most_blocks() * c.chunks_per_block * plan.channels
    part = round_up(-(-plan.max_bytes // pieces), ALIGNMENT)
    return -(-part // LINE_DATA)


def slot_bytes(plan: Plan) -> int:
    """Returns the bytes of a rank's packet slots, of both parities, on any device."""
    shape = kernel_shape(plan)
    return 2 * shape.channels * shape.packets * shape.lines * LINE_ROOM


def kernel_shape(plan: Plan) -> KernelShape:
    """Returns the shape of the kernels of `plan`."""
    packets = plan.protocol is PlanProtocol.LL
    queues = 0 if packets else int(queues_per_rank(plan).max(initial=0))
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
        packets=int(packet_slots(plan)[1].max(initial=0)) + plan.n_ranks * plan.greets,
        lines=packet_lines(plan),
    )
