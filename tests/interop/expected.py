"""The result of a collective: the set of send slots that each receive slot must sum up."""

from __future__ import annotations

from collections import Counter

import numpy as np

from hccc.ir.collective import Collective
from tests.interop.fifo_model import Address, Value


def wanted(c: Collective, channels: int, rank: int, slot: int) -> Value:
    """Returns the result due in `rank`'s receive slot: (rank, send slot) sums, channels as
    slots."""
    chunk, channel = c.output_chunk(np.array(rank), np.array(slot // channels)), slot % channels
    holders = range(c.n_ranks) if c.reduces else [int(c.source_of(chunk))]
    return Counter(
        {(r, int(c.input_slot(np.array(r), chunk)) * channels + channel): 1 for r in holders}
    )


def aliases(c: Collective, channels: int) -> dict[Address, Address]:
    """Returns the receive slot that each send slot is, in place."""
    found: dict[Address, Address] = {}
    for r in range(c.n_ranks):
        shift = c.alias_offset(r) * channels
        ins, outs = (
            n(r) * c.chunks_per_block * channels for n in (c.input_blocks, c.output_blocks)
        )
        found |= {(r, "i", s): (r, "o", s + shift) for s in range(ins) if 0 <= s + shift < outs}
    return found
