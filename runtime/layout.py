"""layout: how many bytes a launch needs: the same sizes as `include/hccc/layout.h`.

A block of `count` elements is cut into `sub` chunks, a chunk into `channels` parts, a part into
micro-batches; parts and micro-batches are whole numbers of 16 bytes. A test compares every number
with the C header. Numbers here have no bounds; `too_large` finds the launches that the header
refuses because of its bounds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import ml_dtypes
import numpy as np

from hccc.base import dtypes
from hccc.ir.collective import Collective
from hccc.ir.kernel_shape import (
    ALIGNMENT,
    LINE_DATA,
    LINE_ROOM,
    KernelShape,
    kernel_shape,
    round_up,
)
from hccc.ir.micro_batch import MOST_QUEUED_BATCHES, default_micro_batch
from hccc.ir.plan import Plan

FLAG_STRIDE = 128
PEER = 24  # bytes of hccc_peer
LARGEST_MICRO_BATCH = 1 << 30
MOST_BATCHES = (1 << 31) - 1  # micro-batches of a part: counters compare around 2^32
MOST_BYTES = 1 << 62  # of anything
MOST_USER_BLOCKS = 1 << 20  # blocks of `count` elements in a user buffer

DTYPES: dict[str, np.dtype[np.generic]] = {
    dtype.name: np.dtype(getattr(np if hasattr(np, dtype.numpy) else ml_dtypes, dtype.numpy))
    for dtype in dtypes.ALL
}


@dataclass(frozen=True, slots=True)
class CallSizes:
    """One launch's sizes in elements; `batches` micro-batches make a part."""

    part: int
    micro: int
    batches: int


@dataclass(frozen=True, slots=True)
class LayoutShape(KernelShape):
    """The HCCC_* constants of a generated collective, and the sizes that follow from them."""

    def sizes(self, count: int, size: int, micro_batch: int = 0) -> CallSizes:
        """Cuts `count` elements of `size` bytes; `micro_batch` in bytes, 0 by the part."""
        pieces = self.sub * self.channels
        part = round_up(-(-count // pieces), ALIGNMENT // size)
        wanted = micro_batch if micro_batch > 0 else default_micro_batch(part * size, self.grain)
        wanted = min(wanted, LARGEST_MICRO_BATCH)
        micro = min(round_up(wanted, ALIGNMENT) // size, part)
        if self.packets:  # one, also without data: ranks hear of each other
            return CallSizes(part, part, 1)
        return CallSizes(part, micro, -(-part // micro) if micro else 0)

    def scratch_bytes(self, count: int, size: int, micro_batch: int = 0) -> int:
        """Returns the bytes of one rank's scratch memory."""
        s = self.sizes(count, size, micro_batch)
        chunks = (self.scratch + self.stage) * self.channels * s.part
        messages = (self.queues + self.sends) * self.channels * self.slots * s.micro
        return (chunks + messages) * size

    def too_large(self, count: int, size: int, micro_batch: int = 0) -> str | None:
        """Names the number of a launch that does not fit its type; None where hccc_fits accepts
        it."""
        s = self.sizes(count, size, micro_batch)
        lines = -(-s.part * size // LINE_DATA)
        most = MOST_QUEUED_BATCHES if self.queues else MOST_BATCHES
        furthest = (MOST_USER_BLOCKS * count + self.sub * self.channels * s.part) * size
        for what, value, limit in (
            ("micro-batches in a part of a chunk", s.batches, most),
            (f"bytes in a buffer of {MOST_USER_BLOCKS:,} blocks", furthest, MOST_BYTES),
            ("bytes of scratch", self.scratch_bytes(count, size, micro_batch), MOST_BYTES),
            *([("packets in a part of a chunk", lines, self.lines)] if self.packets else []),
        ):
            if value > limit:
                return f"{value:,} {what}, more than the {limit:,} that a launch may have"
        return None

    @property
    def launch_blocks(self) -> int:
        """Counts the thread blocks of a launch of all ranks."""
        return self.ranks * self.blocks * self.channels

    @property
    def ready_at(self) -> int:
        """The first ready counter, in counters."""
        return self.channels * self.flags

    @property
    def done_at(self) -> int:
        """The first done counter."""
        return self.ready_at + self.ranks

    @property
    def extension_at(self) -> int:
        """The first counter of extended deadlines."""
        return self.done_at + self.ranks

    @property
    def go_at(self) -> int:
        """The counter that lets a rank's other blocks start."""
        return self.extension_at + self.ranks

    @property
    def finished_at(self) -> int:
        """The first of the blocks' finished counters."""
        return self.go_at + 1

    @property
    def state_at(self) -> int:
        """The first of the blocks' states."""
        return self.finished_at + self.blocks * self.channels

    @property
    def peers_at(self) -> int:
        """Where the table of peers begins."""
        return self.state_at + self.blocks * self.channels

    @property
    def packets_at(self) -> int:
        """Where packet slots begin, in bytes."""
        return self.peers_at * FLAG_STRIDE + round_up(self.ranks * PEER, FLAG_STRIDE)

    @property
    def flag_bytes(self) -> int:
        """Bytes of one rank's flags, and of its packet slots of both parities, on any device."""
        return self.packets_at + 2 * self.channels * self.packets * self.lines * LINE_ROOM


def shape_of(plan: Plan) -> LayoutShape:
    """Returns the shape of the kernels of `plan`."""
    return LayoutShape(**asdict(kernel_shape(plan)))


def buffer_elements(collective: Collective, rank: int, count: int) -> tuple[int, int]:
    """Returns the elements of the send and the receive buffer of `rank`."""
    return collective.input_blocks(rank) * count, collective.output_blocks(rank) * count
