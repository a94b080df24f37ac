"""chunk_forests: labels of `ancestry` whose forests keep to one chunk.

`sync` leaves out every wait that others imply, so the path of a chunk is hard to see in what is
left: it may lead through another chunk's primitive and back. Here the parent of a primitive is,
where there is one, the nearest primitive *of its own chunk* that is known to come before (or after)
it: of all blocks that its block has waited for so far, or whom it waited for, the last of its chunk
that they had run.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.ancestry import (
    BLOCK,
    LEVEL,
    MADE,
    MADE_END,
    MAKER,
    TAKEN,
    TAKEN_END,
    TAKER,
    intervals,
)
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, Csr

NEIGHBOURS = 64  # blocks to remember for each


@njit
def _parents(label: I4, ptr: I8, pred: I4, chunk: I4, runs: I8, n_chunks: int) -> None:
    """Sets each primitive's maker and taker to one of its own chunk, where there is one.

    runs: i8[n], (block, chunk, primitive) in one number each, sorted.
    """
    n = len(label)
    maker, taker = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    last = np.full(n_chunks, -1, np.int32)
    block, front = np.empty(NEIGHBOURS, np.int32), np.empty(NEIGHBOURS, np.int32)
    count = 0
    for i in range(n):
        if i == 0 or label[i - 1, BLOCK] != label[i, BLOCK]:
            count = 0
        for k in range(ptr[i], ptr[i + 1]):
            p = pred[k]
            count = _waited(block, front, count, label[p, BLOCK], p)
            for j in range(ptr[p], ptr[p + 1]):
                count = _waited(block, front, count, label[pred[j], BLOCK], pred[j])
        z = last[chunk[i]]
        if z >= 0 and label[z, BLOCK] == label[i, BLOCK]:
            _offer(label, maker, taker, i, z)
        last[chunk[i]] = i
        for c in range(count):
            base = (np.int64(block[c]) * n_chunks + chunk[i]) * n
            at = np.searchsorted(runs, base + front[c], side="right") - 1
            if at >= 0 and runs[at] >= base:
                _offer(label, maker, taker, i, runs[at] - base)
    for i in range(n):
        label[i, MAKER] = maker[i] if maker[i] >= 0 else label[i, MAKER]
        label[i, TAKER] = taker[i] if taker[i] >= 0 else label[i, TAKER]


@njit
def _waited(block: I4, front: I4, count: int, other: int, upto: int) -> int:
    """A block has waited for primitive `upto` of block `other`; how many it remembers."""
    for c in range(count):
        if block[c] == other:
            front[c] = max(front[c], upto)
            return count
    if count < len(block):
        block[count], front[count] = other, upto
        count += 1
    return count


@njit
def _offer(label: I4, maker: I4, taker: I4, y: int, z: int) -> None:
    if maker[y] < 0 or label[z, LEVEL] > label[maker[y], LEVEL]:
        maker[y] = z
    if taker[z] < 0 or label[y, LEVEL] < label[taker[z], LEVEL]:
        taker[z] = y


def within_chunks(label: I4, preds: Csr, order: I4, chunk: I4) -> I4 | None:
    """Labels like `label`, with other forests. chunk: i4[n], the chunk of each primitive, or
    another number that it shares with some.

    None where (block, chunk, primitive) do not fit one 64-bit number.

    O(n log n + neighbours of its block for each primitive · log n + edges · most edges of one).
    """
    n_chunks, n = int(chunk.max(initial=0)) + 1, len(label)
    if (int(label[-1, BLOCK]) + 1) * n_chunks * n >= 1 << 63:
        return None
    other = label.copy()
    runs = (label[:, BLOCK].astype(np.int64) * n_chunks + chunk) * n + np.arange(n)
    _parents(other, preds.ptr, preds.index, chunk, np.sort(runs), n_chunks)
    intervals(other, order, MAKER, MADE, MADE_END)
    intervals(other, order[::-1], TAKER, TAKEN, TAKEN_END)
    return other
