"""agenda: a binary heap of the ends of all thread blocks' current actions, one entry per block."""

from __future__ import annotations

from hccc.base.jit.compiled import njit
from hccc.sim.state import HEAP, State


@njit(allocates=False, always=True)
def put(s: State, b: int, time: float) -> None:
    """Sets the end of block b's action to `time`. O(log T)."""
    i = s.place[b]
    if i < 0:
        i = s.length[HEAP]
        s.length[HEAP] += 1
    heap = s.heap
    while i > 0:
        above = heap[(i - 1) // 2]
        if above.time <= time:
            break
        heap[i].time, heap[i].block = above.time, above.block
        s.place[above.block] = i
        i = (i - 1) // 2
    _sink(s, i, b, time)


@njit(allocates=False, always=True)
def take(s: State) -> int:
    """Removes the block whose action ends first from the agenda, and returns it."""
    b = s.heap[0].block
    s.length[HEAP] -= 1
    last = s.heap[s.length[HEAP]]
    s.place[b] = -1
    if last.block != b:
        _sink(s, 0, last.block, last.time)
    return int(b)


@njit(allocates=False, always=True)
def _sink(s: State, i: int, b: int, time: float) -> None:
    """Puts block b at entry i, or as far below it as other blocks end before `time`."""
    heap, size = s.heap, s.length[HEAP]
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and heap[child + 1].time < heap[child].time:
            child += 1
        below = heap[child]
        if below.time >= time:
            break
        heap[i].time, heap[i].block = below.time, below.block
        s.place[below.block] = i
        i = child
    heap[i].time, heap[i].block = time, b
    s.place[b] = i
