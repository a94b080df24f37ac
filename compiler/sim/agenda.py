"""agenda: when each thread block's current action ends: a binary heap with one entry a block."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from hccc.ir.arrays import I4
from hccc.ir.topology import F8


class Agenda(NamedTuple):
    """heap: i4[T] blocks, the first size[0] of them a heap by `time`; place: i4[T] where (-1)."""

    heap: I4
    place: I4
    time: F8
    size: I4


def agenda(blocks: int) -> Agenda:
    """Nothing to come."""
    heap, place = np.zeros(blocks, np.int32), np.full(blocks, -1, np.int32)
    return Agenda(heap, place, np.zeros(blocks), np.zeros(1, np.int32))


@njit(cache=True)
def put(a: Agenda, b: int, time: float) -> None:
    """Block b's action ends at `time`, whatever was known before. O(log T)."""
    i = a.place[b]
    if i < 0:
        i = a.size[0]
        a.size[0] += 1
        a.heap[i], a.place[b] = b, i
    a.time[b] = time
    _down(a, _up(a, i))


@njit(cache=True)
def take(a: Agenda) -> int:
    """The block whose action ends first; it leaves the agenda."""
    b = a.heap[0]
    a.size[0] -= 1
    last = a.heap[a.size[0]]
    a.place[b] = -1
    if last != b:
        a.heap[0], a.place[last] = last, 0
        _down(a, 0)
    return int(b)


@njit(cache=True)
def _up(a: Agenda, i: int) -> int:
    b = a.heap[i]
    while i > 0:
        parent = (i - 1) // 2
        p = a.heap[parent]
        if a.time[p] <= a.time[b]:
            break
        a.heap[i], a.place[p] = p, i
        i = parent
    a.heap[i], a.place[b] = b, i
    return i


@njit(cache=True)
def _down(a: Agenda, i: int) -> None:
    b = a.heap[i]
    while 2 * i + 1 < a.size[0]:
        child = 2 * i + 1
        if child + 1 < a.size[0] and a.time[a.heap[child + 1]] < a.time[a.heap[child]]:
            child += 1
        c = a.heap[child]
        if a.time[c] >= a.time[b]:
            break
        a.heap[i], a.place[c] = c, i
        i = child
    a.heap[i], a.place[b] = b, i
