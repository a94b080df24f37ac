"""What a collective must leave in receive buffers, in terms of whose send slots were summed."""

from __future__ import annotations

from collections import Counter

import numpy as np

from hccc.ir.collective import Collective
from tests.interop.fifo_model import Address, Value


def wanted(c: Collective, channels: int, rank: int, slot: int) -> Value:
    """What `rank`'s receive slot must end with: sums of (rank, send slot), channels being slots."""
    chunk, channel = c.output_chunk(np.array(rank), np.array(slot // channels)), slot % channels
    holders = range(c.n_ranks) if c.reduces else [int(c.source_of(chunk))]
    return Counter({(r, int(c.input_slot(chunk)) * channels + channel): 1 for r in holders})


def aliases(c: Collective, channels: int) -> dict[Address, Address]:
    """In place: which send slots are receive slots."""
    found: dict[Address, Address] = {}
    for r in range(c.n_ranks):
        shift = c.alias_offset(r) * channels
        ins, outs = (
            n(r) * c.chunks_per_block * channels for n in (c.input_blocks, c.output_blocks)
        )
        found |= {(r, "i", s): (r, "o", s + shift) for s in range(ins) if 0 <= s + shift < outs}
    return found
