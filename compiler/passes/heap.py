"""heap: binary heaps of ids in slices of an array, least key first, for compiled loops."""

from __future__ import annotations

from hccc.compiled import njit
from hccc.ir.arrays import I4
from hccc.ir.topology import F8


@njit
def before(a: int, b: int, key: F8) -> bool:
    """Whether id a comes before id b: ties by id."""
    return bool(key[a] < key[b] or (key[a] == key[b] and a < b))


@njit
def push(heap: I4, first: int, size: int, item: int, key: F8) -> None:
    """`item` joins the `size` ids from `heap[first]` on. O(log size)."""
    at = size
    while at > 0 and before(item, heap[first + (at - 1) // 2], key):
        heap[first + at] = heap[first + (at - 1) // 2]
        at = (at - 1) // 2
    heap[first + at] = item


@njit
def pop(heap: I4, first: int, size: int, key: F8) -> int:
    """The first of the `size` ids from `heap[first]` on, of which one less is left. O(log size)."""
    least, item = heap[first], heap[first + size - 1]
    at, size = 0, size - 1
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and before(heap[first + child + 1], heap[first + child], key):
            child += 1
        if before(item, heap[first + child], key):
            break
        heap[first + at] = heap[first + child]
        at = child
    if size > 0:
        heap[first + at] = item
    return int(least)
