"""searches: answers by a bounded search, back from b among primitives that the labels allow.

Every answer but UNKNOWN is exact; `clocks` answers the rest.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.ancestry.labels import Labels
from hccc.analysis.ancestry.queries import (
    FEW,
    NO,
    STEPS,
    TESTS,
    UNKNOWN,
    YES,
    possible,
    previous,
    reaches,
    shown,
)
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, U1

SEARCH = 1 << 15  # primitives that a search may find
SEARCHES = 256  # that may fail before the rest is left to clocks
LOOKED_AT, CLIMBED = 1000, 64  # primitives, in about one search and for one edge
NONE = -2  # no edge; -1 is the edge to the primitive before the first one in its block


@njit(work=lambda label, ptr, pred, a, b, but: LOOKED_AT * len(a))
def by_searching(label: Labels, ptr: I8, pred: I4, a: I4, b: I4, but: I8) -> U1:
    """Searches for every pair, until SEARCHES fail; but[q]: an edge to leave out, or NONE."""
    mark, stack = np.zeros(len(label), np.int64), np.empty(SEARCH, np.int32)
    answer = np.full(len(a), UNKNOWN, np.uint8)
    failed = 0
    for q in range(len(a)):
        if failed < SEARCHES:
            answer[q] = _search(label, ptr, pred, a[q], b[q], but[q], mark, q + 1, stack)
            failed += answer[q] == UNKNOWN
    return answer


@njit
def _search(
    label: Labels, ptr: I8, pred: I4, a: int, b: int, but: int, mark: I8, stamp: int, stack: I4
) -> int:
    """Tells whether a is b or happens before it by other edges than `but`.

    Goes back from b through all primitives that may follow a; UNKNOWN if they are more than `stack`
    holds. `mark`: is `stamp` for primitives seen.
    """
    if a == b:
        return YES
    stack[0], waiting, found = b, 1, 1
    while waiting > 0:
        waiting -= 1
        y = stack[waiting]
        for k in range(ptr[y] - 1, ptr[y + 1]):
            x = previous(label, ptr, pred, y, k)
            if x < 0 or mark[x] == stamp or (k == but and y == b):
                continue
            if shown(label, a, x):
                return YES
            mark[x] = stamp
            if possible(label, a, x):
                if found == len(stack):
                    return UNKNOWN
                stack[waiting] = x
                waiting += 1
                found += 1
    return NO


def settle_edges(label: Labels, ptr: I8, pred: I4, limit: int) -> U1:
    """Tells for every edge whether the others and program order imply it: NO, YES or UNKNOWN."""
    answer = _edges_by_climbing(label, ptr, pred, limit)
    left = np.flatnonzero(answer == UNKNOWN)
    b = np.searchsorted(ptr, left, side="right") - 1
    answer[left] = by_searching(label, ptr, pred, pred[left], b.astype(np.int32), left)
    return answer


@njit(work=lambda label, ptr, pred, limit: CLIMBED * len(pred))
def _edges_by_climbing(label: Labels, ptr: I8, pred: I4, limit: int) -> U1:
    climbed = np.empty(STEPS, np.int32)
    answer = np.empty(len(pred), np.uint8)
    for b in range(len(label)):
        for k in range(ptr[b], ptr[b + 1]):
            implied = NO
            for j in range(ptr[b] - 1, ptr[b + 1]):
                x = previous(label, ptr, pred, b, j)
                if x >= 0 and j != k and shown(label, pred[k], x):
                    implied = YES
                    break
            for j in range(ptr[b] - 1, ptr[b + 1]):
                x = previous(label, ptr, pred, b, j)
                if x >= 0 and j != k and implied != YES:
                    most = max(FEW, min(TESTS, limit))
                    through, tests = reaches(label, ptr, pred, pred[k], x, climbed, most)
                    limit -= tests
                    implied = YES if through == YES else max(implied, through)
            answer[k] = implied
    return answer
