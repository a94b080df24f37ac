"""labels: labels of primitives, made in linear time, from which their order often follows at once.

- A primitive's *level*, the longest chain before it, grows along every edge, and its *height*, the
  longest chain after it, falls: a reaches only primitives above it in both.
- A chain that enters a block does so at the last primitive, at or before the one in question, that
  waits for another; a chain that leaves it starts at the first, at or after it, that another waits
  for. Their levels and heights are labels too.
- The *makers* are a forest in which everyone's parent is the latest primitive it waits for.
  Ancestors happen before; a subtree is an interval of preorder numbers (Agrawal et al., SIGMOD
  1989).
- The *takers* are a forest in which everyone's parent is the first primitive to wait for it.

    block 0: 0 ── 1        1 waits for 2, and 3 for 0. Levels: 0, 1, 0, 1; heights: 1, 0, 1, 0.
              ╲  ╱         Maker of 1: 2; of 3: 0. Taker of 0: 3; of 2: 1. So 0 happens before 3
               ╳           as its ancestor among the makers, and 1 cannot happen before 3: their
    block 1: 2 ── 3        levels are equal.

A chunk's way through a collective is a path in one of the two forests, after or before some steps
in one block: a reduction has one consumer, a value one maker.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8, Csr

Labels = NDArray[np.void]  # one row for each primitive, of LABEL
# in_, out_: of the primitive at which a chain enters the block, or leaves it. Where there is none,
# they are such that no primitive is above.
# maker, taker: the parents in the two forests, -1 for a root; _begin, _end: the first and last
# preorder number of the primitive's subtree, the first being its own.
LABEL = np.dtype(
    [
        ("block", np.int32),
        ("level", np.int32),
        ("height", np.int32),
        ("in_level", np.int32),
        ("in_height", np.int32),
        ("out_level", np.int32),
        ("out_height", np.int32),
        ("maker", np.int32),
        ("maker_begin", np.int32),
        ("maker_end", np.int32),
        ("taker", np.int32),
        ("taker_begin", np.int32),
        ("taker_end", np.int32),
    ]
)


def labels(tb_ptr: I8, preds: Csr, order: I4) -> Labels:
    """Labels every primitive. O(n + edges).

    order: all primitives (`clocks.topological`).
    """
    n, ptr, pred = int(tb_ptr[-1]), preds.ptr, preds.index
    first = np.zeros(n + 1, np.bool_)
    first[tb_ptr] = True
    level, maker = _levels(order, first, ptr, pred)
    height = _heights(order, first, ptr, pred)
    label = np.empty(n, LABEL)
    label["block"] = np.repeat(np.arange(len(tb_ptr) - 1, dtype=np.int32), np.diff(tb_ptr))
    label["level"], label["height"] = level, height
    ways = _ways_in_and_out(level, height, first, preds)
    for field, way in zip(("in_level", "in_height", "out_level", "out_height"), ways, strict=True):
        label[field] = way
    set_forests(label, maker, _takers(level, first, preds), order)
    return label


def set_forests(label: Labels, maker: I4, taker: I4, order: I4) -> None:
    """Sets the two forests of `label` to those with these parents. O(n)."""
    label["maker"], label["taker"] = maker, taker
    label["maker_begin"], label["maker_end"] = _intervals(maker, order)
    back = np.ascontiguousarray(order[::-1])
    label["taker_begin"], label["taker_end"] = _intervals(taker, back)


@njit
def _levels(order: I4, first: B1, ptr: I8, pred: I4) -> tuple[I4, I4]:
    """Returns each level, and each maker: the latest primitive waited for, else the one before,
    else -1."""
    levels, makers = np.empty(len(order), np.int32), np.empty(len(order), np.int32)
    for i in order:
        level, maker = 0, -1
        for k in range(ptr[i], ptr[i + 1]):
            if maker < 0 or levels[pred[k]] > levels[maker]:
                maker = pred[k]
        if maker >= 0:
            level = levels[maker] + 1
        if not first[i]:
            level = max(level, levels[i - 1] + 1)
            maker = i - 1 if maker < 0 else maker
        levels[i], makers[i] = level, maker
    return levels, makers


@njit
def _heights(order: I4, first: B1, ptr: I8, pred: I4) -> I4:
    heights = np.zeros(len(order), np.int32)
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        height = heights[i] + 1
        if not first[i]:
            heights[i - 1] = max(heights[i - 1], height)
        for e in range(ptr[i], ptr[i + 1]):
            heights[pred[e]] = max(heights[pred[e]], height)
    return heights


def _takers(level: I4, first: B1, preds: Csr) -> I4:
    """Returns the earliest primitive that waits for each, else the one after, else -1."""
    n, row = len(level), preds.owner()
    none = np.iinfo(np.int64).max
    least = np.full(n, none)
    np.minimum.at(least, preds.index, level[row].astype(np.int64) << 32 | row)
    after = np.where(first[1:], -1, np.arange(1, n + 1))
    takers: I4 = np.where(least < none, least & ((1 << 32) - 1), after).astype(np.int32)
    return takers


def _ways_in_and_out(level: I4, height: I4, first: B1, preds: Csr) -> tuple[I4, I4, I4, I4]:
    """Returns in_level, in_height, out_level and out_height (LABEL)."""
    n = len(level)
    rows, waits, waited_for = np.arange(n), preds.counts() > 0, np.zeros(n, np.bool_)
    waited_for[preds.index] = True
    enter = np.maximum.accumulate(np.where(waits | first[:-1], rows, 0))
    leave = np.minimum.accumulate(np.where(waited_for | first[1:], rows, n)[::-1])[::-1]
    enters, leaves = waits[enter], waited_for[leave]
    return (
        np.where(enters, level[enter], -1),
        np.where(enters, height[enter], n),
        np.where(leaves, level[leave], n),
        np.where(leaves, height[leave], -1),
    )


@njit
def _intervals(parent: I4, order: I4) -> tuple[I4, I4]:
    """Returns the first and last preorder number of each subtree; `order` has parents first."""
    n = len(parent)
    begin, end = np.empty(n, np.int32), np.empty(n, np.int32)
    size = np.ones(n, np.int32)
    for k in range(n - 1, -1, -1):
        i = order[k]
        if parent[i] >= 0:
            size[parent[i]] += size[i]
    free = np.zeros(n + 1, np.int32)  # the next number below each; below -1: of roots
    for i in order:
        above = parent[i]
        begin[i] = free[above]
        free[above] += size[i]
        free[i] = begin[i] + 1
        end[i] = free[i] + size[i] - 2
    return begin, end
