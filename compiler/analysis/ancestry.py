"""ancestry: does primitive a happen before primitive b? Most often without a clock.

Every primitive gets labels, in linear time, from which some answers follow at once:

- its *level*, the longest chain before it, grows along every edge, and its *height*, the longest
  chain after it, falls: a reaches only what is above it in both.
- the same two of the last primitive at or before it in its block that waits for anything, and of
  the first at or after it that anything waits for: what leads from block to block uses those two.
- its place in a forest where everyone's parent is the latest primitive it waits for. Ancestors
  happen before; a subtree is an interval of preorder numbers (Agrawal et al., SIGMOD 1989).
- its place in a second forest where everyone's parent is the first primitive to wait for it.

A chunk's way through a collective is a path in one of the two, after or before some steps in one
block: a reduction has one consumer, a value one maker. Where it needs both, climbing from a in the
second forest and from b in the first finds where they meet. What is left is searched for, back from
b among what level and height allow. Every answer but UNKNOWN is exact; `clocks` answers the rest.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.grouping import group
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8, U1, Csr

NO, YES, UNKNOWN = 0, 1, 2
BLOCK, LEVEL, HEIGHT, MAKER, MADE, MADE_END, TAKER, TAKEN, TAKEN_END = range(9)
IN_LEVEL, IN_HEIGHT, OUT_LEVEL, OUT_HEIGHT = range(9, 13)
N_LABELS = 13
STEPS = 1024  # how far to climb, in each forest
TESTS = 1 << 16  # how many labels to compare for one answer
FEW = 64  # and at least, when all is spent
SEARCH = 1 << 15  # primitives that a search may find
NONE = -2  # no edge; -1 is what precedes the first primitive's in its block
SEARCHES = 256  # that may fail before the rest is left to clocks


@njit
def _levels(label: I4, order: I4, first: B1, ptr: I8, pred: I4) -> None:
    """Fills LEVEL, and MAKER: the latest primitive waited for, else the one before, else -1."""
    for i in order:
        level, maker = 0, -1
        for k in range(ptr[i], ptr[i + 1]):
            if maker < 0 or label[pred[k], LEVEL] > label[maker, LEVEL]:
                maker = pred[k]
        if maker >= 0:
            level = label[maker, LEVEL] + 1
        if not first[i]:
            level = max(level, label[i - 1, LEVEL] + 1)
            maker = i - 1 if maker < 0 else maker
        label[i, LEVEL], label[i, MAKER] = level, maker


@njit
def _heights(label: I4, order: I4, first: B1, ptr: I8, pred: I4) -> None:
    label[:, HEIGHT] = 0
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        height = label[i, HEIGHT] + 1
        if not first[i]:
            label[i - 1, HEIGHT] = max(label[i - 1, HEIGHT], height)
        for e in range(ptr[i], ptr[i + 1]):
            label[pred[e], HEIGHT] = max(label[pred[e], HEIGHT], height)


@njit
def _takers(label: I4, first: B1, ptr: I8, pred: I4) -> None:
    """Fills TAKER: the earliest primitive that waits for each, else the one after, else -1."""
    n = len(label)
    label[:, TAKER] = -1
    for i in range(n):
        for k in range(ptr[i], ptr[i + 1]):
            taker = label[pred[k], TAKER]
            if taker < 0 or label[i, LEVEL] < label[taker, LEVEL]:
                label[pred[k], TAKER] = i
    for i in range(n - 1):
        if label[i, TAKER] < 0 and not first[i + 1]:
            label[i, TAKER] = i + 1


@njit
def _ways_in_and_out(label: I4, first: B1, ptr: I8, pred: I4) -> None:
    """Fills IN_ and OUT_: level and height of where others lead into a block, and out of it.

    Where nothing does, they are such that nothing is above.
    """
    n = len(label)
    waited_for = np.zeros(n, np.bool_)
    for p in pred:
        waited_for[p] = True
    for i in range(n):
        if ptr[i] < ptr[i + 1]:
            label[i, IN_LEVEL], label[i, IN_HEIGHT] = label[i, LEVEL], label[i, HEIGHT]
        elif first[i]:
            label[i, IN_LEVEL], label[i, IN_HEIGHT] = -1, n
        else:
            label[i, IN_LEVEL], label[i, IN_HEIGHT] = (
                label[i - 1, IN_LEVEL],
                label[i - 1, IN_HEIGHT],
            )
    for i in range(n - 1, -1, -1):
        if waited_for[i]:
            label[i, OUT_LEVEL], label[i, OUT_HEIGHT] = label[i, LEVEL], label[i, HEIGHT]
        elif first[i + 1]:
            label[i, OUT_LEVEL], label[i, OUT_HEIGHT] = n, -1
        else:
            label[i, OUT_LEVEL] = label[i + 1, OUT_LEVEL]
            label[i, OUT_HEIGHT] = label[i + 1, OUT_HEIGHT]


@njit
def intervals(label: I4, order: I4, parent: int, begin: int, end: int) -> None:
    """Fills columns `begin` and `end` with each subtree's preorder numbers; parents come first."""
    size = np.ones(len(label), np.int32)
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        if label[i, parent] >= 0:
            size[label[i, parent]] += size[i]
    free = np.zeros(len(label) + 1, np.int32)  # the next number below each; below -1: of roots
    for i in order:
        above = label[i, parent]
        label[i, begin] = free[above]
        free[above] += size[i]
        free[i] = label[i, begin] + 1
        label[i, end] = free[i] + size[i] - 2


def labels(tb_ptr: I8, preds: Csr, order: I4) -> I4:
    """The labels of every primitive, i4[n, N_LABELS], for `settle`. O(n + edges).

    order: all primitives (`clocks.topological`).
    """
    n = int(tb_ptr[-1])
    label = np.empty((n, N_LABELS), np.int32)
    label[:, BLOCK] = np.repeat(np.arange(len(tb_ptr) - 1, dtype=np.int32), np.diff(tb_ptr))
    first = np.zeros(n + 1, np.bool_)
    first[tb_ptr] = True
    _levels(label, order, first, preds.ptr, preds.index)
    _heights(label, order, first, preds.ptr, preds.index)
    _takers(label, first, preds.ptr, preds.index)
    _ways_in_and_out(label, first, preds.ptr, preds.index)
    intervals(label, order, MAKER, MADE, MADE_END)
    intervals(label, order[::-1], TAKER, TAKEN, TAKEN_END)
    return label


@njit
def _seen(label: I4, a: int, b: int) -> bool:
    """Whether the labels alone show that a is b or happens before it."""
    if label[a, BLOCK] == label[b, BLOCK]:
        return a <= b
    if label[a, MADE] <= label[b, MADE] <= label[a, MADE_END]:
        return True
    return bool(label[b, TAKEN] <= label[a, TAKEN] <= label[b, TAKEN_END])


@njit
def _previous(label: I4, ptr: I8, pred: I4, b: int, k: int) -> int:
    """What b waits for by edge k, or for k = ptr[b] - 1 what its block runs before it; or -1."""
    if k >= ptr[b]:
        return int(pred[k])
    return b - 1 if b > 0 and label[b - 1, BLOCK] == label[b, BLOCK] else -1


@njit
def _above(label: I4, a: int, b: int) -> bool:
    """Whether a may reach b, as far as level and height tell."""
    if label[a, BLOCK] == label[b, BLOCK]:
        return bool(a < b)
    later: bool = label[a, OUT_LEVEL] < label[b, IN_LEVEL]
    return later and bool(label[a, OUT_HEIGHT] > label[b, IN_HEIGHT])


@njit
def _climb(label: I4, a: int, b: int, climbed: I4) -> tuple[int, int, int]:
    """Climbs from both ends: (answer, how many of a's takers are in `climbed`, tests)."""
    m, y, count, tests = a, b, 0, 0
    while (m >= 0 or y >= 0) and tests < 2 * len(climbed):
        tests += 2
        if m >= 0:
            if _seen(label, m, b):
                return YES, count, tests
            climbed[count] = m
            count += 1
            m = label[m, TAKER]
            m = m if m >= 0 and _above(label, m, b) else -1
        if y >= 0:
            if _seen(label, a, y):
                return YES, count, tests
            y = label[y, MAKER]
            y = y if y >= 0 and _above(label, a, y) else -1
    return UNKNOWN, count, tests


@njit
def _reaches(
    label: I4, ptr: I8, pred: I4, a: int, b: int, climbed: I4, most: int
) -> tuple[int, int]:
    """Whether a is b or happens before it: (answer, tests made, about `most` at the most)."""
    if label[a, BLOCK] == label[b, BLOCK]:
        return YES if a <= b else NO, 1
    if not _above(label, a, b):
        return NO, 1
    answer, count, tests = _climb(label, a, b, climbed)
    y = b
    while answer == UNKNOWN and y >= 0 and tests < most:
        for k in range(ptr[y] - 1, ptr[y + 1]):
            x = _previous(label, ptr, pred, y, k)
            if x < 0 or not _above(label, a, x):
                continue
            for c in range(count):
                tests += 1
                if _seen(label, climbed[c], x):
                    return YES, tests
        y = label[y, MAKER]
        y = y if y >= 0 and _above(label, a, y) else -1
    return answer, tests


@njit
def _search(
    label: I4, ptr: I8, pred: I4, a: int, b: int, but: int, mark: I8, stamp: int, stack: I4
) -> int:
    """Whether a is b or happens before it by other edges than `but`: back from b, through all that
    may follow a; UNKNOWN where that is more than `stack` holds. `mark`: what has `stamp` was seen.
    """
    if a == b:
        return YES
    stack[0], waiting, found = b, 1, 1
    while waiting > 0:
        waiting -= 1
        y = stack[waiting]
        for k in range(ptr[y] - 1, ptr[y + 1]):
            x = _previous(label, ptr, pred, y, k)
            if x < 0 or mark[x] == stamp or (k == but and y == b):
                continue
            if _seen(label, a, x):
                return YES
            mark[x] = stamp
            if _above(label, a, x):
                if found == len(stack):
                    return UNKNOWN
                stack[waiting] = x
                waiting += 1
                found += 1
    return NO


@njit
def by_searching(label: I4, ptr: I8, pred: I4, a: I4, b: I4, but: I8) -> U1:
    """`_search` for every pair, until SEARCHES fail; but[q]: an edge to leave out, or NONE."""
    mark, stack = np.zeros(len(label), np.int64), np.empty(SEARCH, np.int32)
    answer = np.full(len(a), UNKNOWN, np.uint8)
    failed = 0
    for q in range(len(a)):
        if failed < SEARCHES:
            answer[q] = _search(label, ptr, pred, a[q], b[q], but[q], mark, q + 1, stack)
            failed += answer[q] == UNKNOWN
    return answer


@njit
def _nearest_in_blocks(
    label: I4, parent: int, preorder: I4, ptr: I8, query: I4, block: I4, found: I4
) -> None:
    """found[q]: the nearest ancestor in block[q] of every q of query[ptr[i]:ptr[i + 1]], or -1.

    In preorder; of every block the last ancestor in it is kept. O(n + questions).
    """
    nearest = np.full(label[-1, BLOCK] + 1, -1, np.int32)
    path, hidden = np.empty(len(label), np.int32), np.empty(len(label), np.int32)
    depth = 0
    for i in preorder:
        while depth > 0 and path[depth - 1] != label[i, parent]:
            depth -= 1
            nearest[label[path[depth], BLOCK]] = hidden[depth]
        path[depth], hidden[depth] = i, nearest[label[i, BLOCK]]
        nearest[label[i, BLOCK]] = i
        depth += 1
        for q in query[ptr[i] : ptr[i + 1]]:
            found[q] = nearest[block[q]]


def _ancestors(label: I4, parent: int, number: int, of: I4, block: I4) -> I4:
    """The nearest ancestor of of[q] that is in block[q], in one of the forests; or -1."""
    preorder = np.empty(len(label), np.int32)
    preorder[label[:, number]] = np.arange(len(label), dtype=np.int32)
    ptr, query = group(of, len(label))
    found = np.empty(len(of), np.int32)
    _nearest_in_blocks(label, parent, preorder, ptr, query, block, found)
    return found


@njit
def _at_once(label: I4, a: I4, b: I4) -> U1:
    """What the labels of a[q] and b[q] alone tell."""
    answer = np.empty(len(a), np.uint8)
    for q in range(len(a)):
        same = label[a[q], BLOCK] == label[b[q], BLOCK]
        possible = a[q] <= b[q] if same else _above(label, a[q], b[q])
        answer[q] = NO if not possible else YES if _seen(label, a[q], b[q]) else UNKNOWN
    return answer


@njit
def by_climbing(label: I4, ptr: I8, pred: I4, a: I4, b: I4, limit: int) -> U1:
    """As `settle`, for pairs that it leaves open.

    Compares about `limit` labels in all, and at least a few for each pair.
    """
    climbed = np.empty(STEPS, np.int32)
    answer = np.empty(len(a), np.uint8)
    for q in range(len(a)):
        most = max(FEW, min(TESTS, limit))
        answer[q], tests = _reaches(label, ptr, pred, a[q], b[q], climbed, most)
        limit -= tests
    return answer


def settle(label: I4, a: I4, b: I4) -> U1:
    """NO, YES or UNKNOWN for every pair: is a[q] b[q], or does it happen before it?

    O(n + pairs).
    """
    answer = _at_once(label, a, b)
    left = np.flatnonzero(answer == UNKNOWN)
    for through in (_through_makers, _through_takers):
        if len(left):
            shown = through(label, a[left], b[left])
            answer[left[shown]] = YES
            left = left[~shown]
    return answer


def _through_makers(label: I4, a: I4, b: I4) -> B1:
    """Whether a's block runs, at or after a, an ancestor of b in the first forest."""
    found = _ancestors(label, MAKER, MADE, b, label[a, BLOCK])
    shown: B1 = found >= a
    return shown


def _through_takers(label: I4, a: I4, b: I4) -> B1:
    """Whether b's block runs, at or before b, an ancestor of a in the second forest."""
    found = _ancestors(label, TAKER, TAKEN, a, label[b, BLOCK])
    shown: B1 = (found >= 0) & (found <= b)
    return shown


def settle_edges(label: I4, ptr: I8, pred: I4, limit: int) -> U1:
    """NO, YES or UNKNOWN for every edge: do the other edges and program order imply it?"""
    answer = _edges_by_climbing(label, ptr, pred, limit)
    left = np.flatnonzero(answer == UNKNOWN)
    b = np.searchsorted(ptr, left, side="right") - 1
    answer[left] = by_searching(label, ptr, pred, pred[left], b.astype(np.int32), left)
    return answer


@njit
def _edges_by_climbing(label: I4, ptr: I8, pred: I4, limit: int) -> U1:
    climbed = np.empty(STEPS, np.int32)
    answer = np.empty(len(pred), np.uint8)
    for b in range(len(label)):
        for k in range(ptr[b], ptr[b + 1]):
            found = NO
            for j in range(ptr[b] - 1, ptr[b + 1]):
                x = _previous(label, ptr, pred, b, j)
                if x >= 0 and j != k and _seen(label, pred[k], x):
                    found = YES
                    break
            for j in range(ptr[b] - 1, ptr[b + 1]):
                x = _previous(label, ptr, pred, b, j)
                if x >= 0 and j != k and found != YES:
                    most = max(FEW, min(TESTS, limit))
                    through, tests = _reaches(label, ptr, pred, pred[k], x, climbed, most)
                    limit -= tests
                    found = YES if through == YES else max(found, through)
            answer[k] = found
    return answer
