"""chunk_forests: labels whose forests keep to one chunk.

`sync` leaves out every wait that others imply, so the path of a chunk is hard to see in the waits
that remain: it may lead through another chunk's primitive and back. Here the parent of a primitive
is, where there is one, the nearest primitive *of its own chunk* that is known to come before (or
after) it: among the blocks that its block has waited for so far, and those that they waited for,
the last of its chunk that they had run.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.ancestry.labels import Labels, set_forests
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, Csr

NEIGHBOURS = 64  # blocks to remember for each


@njit
def _parents(
    block_of: I4, level: I4, ptr: I8, pred: I4, chunk: I4, runs: I8, n_chunks: int
) -> tuple[I4, I4]:
    """Returns each primitive's maker and taker of its own chunk, or -1.

    runs: i8[n], (block, chunk, primitive) in one number each, sorted.
    """
    n = len(block_of)
    maker, taker = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    last = np.full(n_chunks, -1, np.int32)
    block, front = np.empty(NEIGHBOURS, np.int32), np.empty(NEIGHBOURS, np.int32)
    count = 0
    for i in range(n):
        if i == 0 or block_of[i - 1] != block_of[i]:
            count = 0
        for k in range(ptr[i], ptr[i + 1]):
            p = pred[k]
            count = _waited(block, front, count, block_of[p], p)
            for j in range(ptr[p], ptr[p + 1]):
                count = _waited(block, front, count, block_of[pred[j]], pred[j])
        z = last[chunk[i]]
        if z >= 0 and block_of[z] == block_of[i]:
            _offer(level, maker, taker, i, z)
        last[chunk[i]] = i
        for c in range(count):
            base = (np.int64(block[c]) * n_chunks + chunk[i]) * n
            at = np.searchsorted(runs, base + front[c], side="right") - 1
            if at >= 0 and runs[at] >= base:
                _offer(level, maker, taker, i, runs[at] - base)
    return maker, taker


@njit
def _waited(block: I4, front: I4, count: int, other: int, upto: int) -> int:
    """Records that a block has waited for primitive `upto` of block `other`; returns how many
    blocks it remembers."""
    for c in range(count):
        if block[c] == other:
            front[c] = max(front[c], upto)
            return count
    if count < len(block):
        block[count], front[count] = other, upto
        count += 1
    return count


@njit
def _offer(level: I4, maker: I4, taker: I4, y: int, z: int) -> None:
    if maker[y] < 0 or level[z] > level[maker[y]]:
        maker[y] = z
    if taker[z] < 0 or level[y] < level[taker[z]]:
        taker[z] = y


def within_chunks(label: Labels, preds: Csr, order: I4, chunk: I4) -> Labels | None:
    """Returns `label` with other forests; None if (block, chunk, primitive) exceed a 64-bit number.

    chunk: i4[n], the chunk of each primitive, or another number that it shares with some.
    O(n log n + neighbours of its block for each primitive · log n + edges · most edges of one).
    """
    n_chunks, n = int(chunk.max(initial=0)) + 1, len(label)
    block, level = (np.ascontiguousarray(label[field]) for field in ("block", "level"))
    if (int(block[-1]) + 1) * n_chunks * n >= 1 << 63:
        return None
    runs = np.sort((block.astype(np.int64) * n_chunks + chunk) * n + np.arange(n))
    maker, taker = _parents(block, level, preds.ptr, preds.index, chunk, runs, n_chunks)
    other = label.copy()
    maker = np.where(maker >= 0, maker, label["maker"])
    set_forests(other, maker, np.where(taker >= 0, taker, label["taker"]), order)
    return other
