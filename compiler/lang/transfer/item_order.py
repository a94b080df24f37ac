"""item_order: orders the items of a rolled Program so that the order within every step stays."""

from __future__ import annotations

import heapq

import numpy as np

from hccc.ir.arrays import I8, starts

UNROLLED = 16  # times that items in circles are replaced by their inner ones
CIRCLES = 64  # searched each time


def ordered_items(inner: tuple[I8, I8, I8], outer: tuple[I8, I8], owner: I8) -> tuple[I8, I8]:
    """Returns the shapes and values of items in an order of text: each item after all items that
    come before it in some step, else by first step.

    inner: shapes, values and steps of items of one step each, in order; outer: shapes and values of
    items that loop over steps; owner: i8[inner] the outer item of each. If outer items wait for
    each other, some are replaced by their inner ones; after UNROLLED attempts all that are left.
    """
    shape, values, step = inner
    new_shape, new_values = outer
    owner = owner.copy()
    tried = 0
    while True:
        pairs = _before(owner, step)
        order = _sorted(pairs, owner, len(new_shape))
        left = np.ones(len(new_shape), np.bool_)
        left[order] = False
        circles = _waiting(pairs[left[pairs].all(axis=1)], np.bincount(owner))
        if not circles or tried == UNROLLED:
            rest = np.flatnonzero(left[owner])
            return (
                np.concatenate([new_shape[order], shape[rest]]).astype(np.int64),
                np.concatenate([new_values[order], values[rest]]),
            )
        tried += 1
        for item in circles:
            parts = np.flatnonzero(owner == item)
            owner[parts] = len(new_shape) + np.arange(len(parts))
            new_shape = np.concatenate([new_shape, shape[parts]])
            new_values = np.concatenate([new_values, values[parts]])


def _before(owner: I8, step: I8) -> I8:
    """Returns the pairs of outer items that follow each other in some step, each once: i8[pairs,
    2]."""
    pairs = np.stack([owner[:-1], owner[1:]], axis=1)[step[1:] == step[:-1]]
    return np.unique(pairs, axis=0) if len(pairs) else np.zeros((0, 2), np.int64)


def _sorted(pairs: I8, owner: I8, n: int) -> I8:
    """Sorts the outer items that have inner ones topologically, ready ones by first inner item.
    Leaves out items in circles, and items that wait for them."""
    rank = np.full(n, len(owner))
    np.minimum.at(rank, owner, np.arange(len(owner)))
    waits = np.bincount(pairs[:, 1], minlength=n).tolist()
    ptr, to = starts(np.bincount(pairs[:, 0], minlength=n)).tolist(), pairs[:, 1].tolist()
    ranks = rank.tolist()
    ready = [(ranks[i], i) for i in range(n) if not waits[i] and ranks[i] < len(owner)]
    heapq.heapify(ready)
    order = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for j in to[ptr[i] : ptr[i + 1]]:
            waits[j] -= 1
            if not waits[j]:
                heapq.heappush(ready, (ranks[j], j))
    return np.array(order, np.int64)


def _waiting(pairs: I8, parts: I8) -> set[int]:
    """Returns, for each circle of waiting items, the item with the fewest parts, but at least
    two."""
    before = dict(pairs[:, ::-1].tolist())
    found = set[int]()
    for item in list(before)[:CIRCLES]:
        path = dict[int, None]()
        while item in before and item not in path:
            path[item] = None
            item = before[item]
        circle = list(path)[list(path).index(item) :] if item in path else []
        several = [i for i in circle if parts[i] > 1]
        if several:
            found.add(min(several, key=lambda i: int(parts[i])))
    return found
