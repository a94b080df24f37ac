"""agenda: when each thread block's current action ends: a binary heap with one entry a block."""

from __future__ import annotations

from hccc.base.jit.compiled import njit
from hccc.sim.state import HEAP, State


@njit(allocates=False, always=True)
def put(s: State, b: int, time: float) -> None:
    """Block b's action ends at `time`, whatever was known before. O(log T)."""
    i = s.block[b].place
    if i < 0:
        i = s.length[HEAP]
        s.length[HEAP] += 1
        s.lists[HEAP, i] = b
    s.block[b].time = time
    heap, block = s.lists[HEAP], s.block
    while i > 0:
        p = heap[(i - 1) // 2]
        if block[p].time <= time:
            break
        heap[i] = p
        block[p].place = i
        i = (i - 1) // 2
    heap[i] = b
    block[b].place = i
    _sink(s, i)


@njit(allocates=False, always=True)
def take(s: State) -> int:
    """The block whose action ends first; it leaves the agenda."""
    heap = s.lists[HEAP]
    b = heap[0]
    s.length[HEAP] -= 1
    last = heap[s.length[HEAP]]
    s.block[b].place = -1
    if last != b:
        heap[0] = last
        _sink(s, 0)
    return int(b)


@njit(allocates=False, always=True)
def _sink(s: State, i: int) -> None:
    heap, block, size = s.lists[HEAP], s.block, s.length[HEAP]
    b = heap[i]
    time = block[b].time
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and block[heap[child + 1]].time < block[heap[child]].time:
            child += 1
        if block[heap[child]].time >= time:
            break
        heap[i] = heap[child]
        block[heap[i]].place = i
        i = child
    heap[i] = b
    block[b].place = i
