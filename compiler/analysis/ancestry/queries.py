"""queries: answers on the order of two primitives from their labels, and by climbing the forests.

`settle` takes two primitives' own labels, then the nearest ancestor of one in the block of the
other. Where a chunk's way needs both forests, `by_climbing` goes up from a among the takers and
from b among the makers, until one shows that they meet. Every answer but UNKNOWN is exact.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.ancestry.labels import Labels
from hccc.analysis.grouping import group
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8, U1

NO, YES, UNKNOWN = 0, 1, 2
STEPS = 1024  # how far to climb, in each forest
TESTS = 1 << 16  # how many labels to compare for one answer
FEW = 64  # and at least, when all is spent


@njit
def shown(label: Labels, a: int, b: int) -> bool:
    """Tells whether the labels alone show that a is b or happens before it."""
    x, y = label[a], label[b]
    if x["block"] == y["block"]:
        return a <= b
    if x["maker_begin"] <= y["maker_begin"] <= x["maker_end"]:
        return True
    return bool(y["taker_begin"] <= x["taker_begin"] <= y["taker_end"])


@njit
def possible(label: Labels, a: int, b: int) -> bool:
    """Tells whether a may reach b, as far as level and height show."""
    x, y = label[a], label[b]
    if x["block"] == y["block"]:
        return bool(a < b)
    return bool(x["out_level"] < y["in_level"] and x["out_height"] > y["in_height"])


@njit
def previous(label: Labels, ptr: I8, pred: I4, b: int, k: int) -> int:
    """Returns the primitive that b waits for by edge k, or for k = ptr[b] - 1 the one before it in
    its block; -1 if there is none."""
    if k >= ptr[b]:
        return int(pred[k])
    return b - 1 if b > 0 and label[b - 1]["block"] == label[b]["block"] else -1


def settle(label: Labels, a: I4, b: I4) -> U1:
    """Tells for every pair whether a[q] is b[q] or happens before it: NO, YES or UNKNOWN.

    O(n + pairs).
    """
    answer = _at_once(label, a, b)
    left = np.flatnonzero(answer == UNKNOWN)
    for through in (_through_makers, _through_takers):
        if len(left):
            yes = through(label, a[left], b[left])
            answer[left[yes]] = YES
            left = left[~yes]
    return answer


@njit
def _at_once(label: Labels, a: I4, b: I4) -> U1:
    """Answers by the labels of a[q] and b[q] alone."""
    answer = np.empty(len(a), np.uint8)
    for q in range(len(a)):
        same = label[a[q]]["block"] == label[b[q]]["block"]
        may = a[q] <= b[q] if same else possible(label, a[q], b[q])
        answer[q] = NO if not may else YES if shown(label, a[q], b[q]) else UNKNOWN
    return answer


def _through_makers(label: Labels, a: I4, b: I4) -> B1:
    """Tells whether a's block runs, at or after a, an ancestor of b among the makers."""
    ancestor = _ancestors(label, "maker", b, label["block"][a])
    yes: B1 = ancestor >= a
    return yes


def _through_takers(label: Labels, a: I4, b: I4) -> B1:
    """Tells whether b's block runs, at or before b, an ancestor of a among the takers."""
    ancestor = _ancestors(label, "taker", a, label["block"][b])
    yes: B1 = (ancestor >= 0) & (ancestor <= b)
    return yes


def _ancestors(label: Labels, forest: str, of: I4, block: I4) -> I4:
    """Returns the nearest ancestor of of[q] that is in block[q], or -1. forest: maker or taker."""
    n = len(label)
    preorder = np.empty(n, np.int32)
    preorder[label[f"{forest}_begin"]] = np.arange(n, dtype=np.int32)
    ptr, query = group(of, n)
    ancestor = np.empty(len(of), np.int32)
    block_of, parent = (np.ascontiguousarray(label[field]) for field in ("block", forest))
    _nearest_in_blocks(block_of, parent, preorder, ptr, query, block, ancestor)
    return ancestor


@njit
def _nearest_in_blocks(
    block_of: I4, parent: I4, preorder: I4, ptr: I8, query: I4, block: I4, ancestor: I4
) -> None:
    """Sets ancestor[q] to the nearest ancestor in block[q] of every q of query[ptr[i]:ptr[i + 1]],
    or -1.

    Walks in preorder and keeps the last ancestor in every block. O(n + questions).
    """
    n = len(block_of)
    nearest = np.full(block_of[-1] + 1, -1, np.int32)
    path, hidden = np.empty(n, np.int32), np.empty(n, np.int32)
    depth = 0
    for i in preorder:
        while depth > 0 and path[depth - 1] != parent[i]:
            depth -= 1
            nearest[block_of[path[depth]]] = hidden[depth]
        path[depth], hidden[depth] = i, nearest[block_of[i]]
        nearest[block_of[i]] = i
        depth += 1
        for q in query[ptr[i] : ptr[i + 1]]:
            ancestor[q] = nearest[block[q]]


@njit
def by_climbing(label: Labels, ptr: I8, pred: I4, a: I4, b: I4, limit: int) -> U1:
    """Answers pairs that `settle` leaves open.

    Compares about `limit` labels in all, and at least a few for each pair.
    """
    climbed = np.empty(STEPS, np.int32)
    answer = np.empty(len(a), np.uint8)
    for q in range(len(a)):
        most = max(FEW, min(TESTS, limit))
        answer[q], tests = reaches(label, ptr, pred, a[q], b[q], climbed, most)
        limit -= tests
    return answer


@njit
def reaches(
    label: Labels, ptr: I8, pred: I4, a: int, b: int, climbed: I4, most: int
) -> tuple[int, int]:
    """Tells whether a is b or happens before it: (answer, tests made, about `most` at the most)."""
    if label[a]["block"] == label[b]["block"]:
        return YES if a <= b else NO, 1
    if not possible(label, a, b):
        return NO, 1
    answer, count, tests = _climb(label, a, b, climbed)
    y = b
    while answer == UNKNOWN and y >= 0 and tests < most:
        for k in range(ptr[y] - 1, ptr[y + 1]):
            x = previous(label, ptr, pred, y, k)
            if x < 0 or not possible(label, a, x):
                continue
            for c in range(count):
                tests += 1
                if shown(label, climbed[c], x):
                    return YES, tests
        y = label[y]["maker"]
        y = y if y >= 0 and possible(label, a, y) else -1
    return answer, tests


@njit
def _climb(label: Labels, a: int, b: int, climbed: I4) -> tuple[int, int, int]:
    """Climbs from both ends: (answer, how many of a's takers are in `climbed`, tests)."""
    m, y, count, tests = a, b, 0, 0
    while (m >= 0 or y >= 0) and tests < 2 * len(climbed):
        tests += 2
        if m >= 0:
            if shown(label, m, b):
                return YES, count, tests
            climbed[count] = m
            count += 1
            m = label[m]["taker"]
            m = m if m >= 0 and possible(label, m, b) else -1
        if y >= 0:
            if shown(label, a, y):
                return YES, count, tests
            y = label[y]["maker"]
            y = y if y >= 0 and possible(label, a, y) else -1
    return UNKNOWN, count, tests
