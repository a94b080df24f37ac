"""heap: heaps of ids, least key first, for compiled loops: binary heaps in slices of an array, and
skew heaps of linked ids."""

from __future__ import annotations

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.topology import F8


@njit(allocates=False)
def before(a: int, b: int, key: F8 | I8) -> bool:
    """Tells whether id a comes before id b: by key, then by id."""
    return bool(key[a] < key[b] or (key[a] == key[b] and a < b))


@njit(allocates=False)
def push(heap: I4, first: int, size: int, item: int, key: F8 | I8) -> None:
    """Adds `item` to the `size` ids from `heap[first]` on. O(log size)."""
    at, mine = size, key[item]
    while at > 0:
        up = (at - 1) // 2
        other = heap[first + up]
        if mine > key[other] or (mine == key[other] and item >= other):
            break
        heap[first + at] = other
        at = up
    heap[first + at] = item


@njit(allocates=False)
def pop(heap: I4, first: int, size: int, key: F8 | I8) -> int:
    """Removes and returns the first of the `size` ids from `heap[first]` on. O(log size)."""
    least, item = heap[first], heap[first + size - 1]
    at, size, mine = 0, size - 1, key[item]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        found = heap[first + child]
        of_found = key[found]
        if child + 1 < size:
            other = heap[first + child + 1]
            of_other = key[other]
            if of_other < of_found or (of_other == of_found and other < found):
                child, found, of_found = child + 1, other, of_other
        if mine < of_found or (mine == of_found and item < found):
            break
        heap[first + at] = found
        at = child
    if size > 0:
        heap[first + at] = item
    return int(least)


@njit(allocates=False)
def meld(a: int, b: int, key: I8, left: I4, right: I4) -> int:
    """Joins two skew heaps of ids and returns the root, least key first; -1 is the empty heap.

    A heap without its root is `meld(left[root], right[root], ...)`. O(log size), amortized.
    """
    if a < 0 or b < 0:
        return max(a, b)
    if key[b] < key[a]:
        a, b = b, a
    root = a
    while right[a] >= 0:
        c = right[a]
        if key[b] < key[c]:
            b, c = c, b
        right[a], left[a] = left[a], c
        a = c
    right[a], left[a] = left[a], b
    return root
