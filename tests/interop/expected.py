"""What a collective must leave in receive buffers, in terms of whose send slots were summed."""

from __future__ import annotations

from collections import Counter

import numpy as np

from hccc.ir.collective import Collective
from tests.interop.fifo_model import Address, Value


def wanted(c: Collective, lanes: int, rank: int, slot: int) -> Value:
    """What `rank`'s receive slot must end with: sums of (rank, send slot), lanes being slots."""
    chunk, lane = c.output_chunk(np.array(rank), np.array(slot // lanes)), slot % lanes
    holders = range(c.n_ranks) if c.reduces else [int(c.source_of(chunk))]
    return Counter({(r, int(c.input_slot(chunk)) * lanes + lane): 1 for r in holders})


def aliases(c: Collective, lanes: int) -> dict[Address, Address]:
    """In place: which send slots are receive slots."""
    found: dict[Address, Address] = {}
    for r in range(c.n_ranks):
        shift = c.alias_offset(r) * lanes
        ins, outs = (n(r) * c.chunks_per_block * lanes for n in (c.input_blocks, c.output_blocks))
        found |= {(r, "i", s): (r, "o", s + shift) for s in range(ins) if 0 <= s + shift < outs}
    return found
