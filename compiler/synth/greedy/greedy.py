"""greedy: schedules of copies, step after step, each step filled as far as links allow.

Node-aware: while the network is scarce, a chunk enters a node once and is spread within it. A step
is filled in three rounds:

1. *Into nodes*: nodes take turns, the one with most left to fetch first; each takes the chunk it
   lacks that fewest nodes have, over the route with most capacity left.
2. *Within nodes*: of each node the chunks that fewest of its ranks have come first.
3. *Again into nodes* (`again`): capacity that the network has left brings chunks to ranks whose
   node has them already. This is needed where links within nodes are scarce.

Ties are broken by a seed, and several seeds are tried. No step is taken back; `cegis` finds some
schedules that greedy misses. A demand may be any in which ranks forward chunks; each rank gets a
chunk at most once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8
from hccc.synth.common.random_numbers import next_random
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.schedule import CopyDemand, Schedule

IN_ORDER = 15  # elements up to which numba's sort keeps equals in order


class _GreedyState(NamedTuple):
    """A schedule while it is made, of K chunks, n ranks, N nodes.

    node: i8[n]; members: i4[n] ranks by node, of node x at first[x]:first[x + 1]; use: as in
    `Chunked`; left: i8[R] chunks that the step may still carry; post: b1[K, n] as of CopyDemand;
    have: b1[K, n] whether a rank has a chunk or is sent it; since: i4[K, n] the step from which on;
    inside: i8[K, N] how many ranks of a node have it; spread: i8[K] in how many nodes it is;
    wanted: i8[K, N] how many ranks of a node lack it; peers: i4[p] ranks that can send to a rank,
    to v at peer_ptr[f, v]:peer_ptr[f, v + 1], f: 0 within its node, 1 from others; gate: i4[2, 2,
    n] a resource that all transfers of such a kind out of (0) or into (1) a rank use, -1 for none;
    rows: i4[m, 4] transfers (chunk, src, dst, step); done: i8[2] how many, and the step; random:
    i8[1].
    """

    node: I8
    members: I4
    first: I8
    use: I4
    left: I8
    post: B1
    have: B1
    since: I4
    inside: I8
    spread: I8
    wanted: I8
    peers: I4
    peer_ptr: I8
    gate: I4
    rows: I4
    done: I8
    random: I8


def greedy(
    c: Chunked, demand: CopyDemand, seed: int, *, again: bool = False, most_steps: int = 1 << 30
) -> Schedule | None:
    """Returns a Schedule of `demand` of at most `most_steps` steps; None where it finds none.

    O(chunks · steps · ranks + transfers · holders · ranks of a node); memory O(chunks · ranks).
    """
    chunks, n = demand.pre.shape
    room = int(np.count_nonzero(demand.post & ~demand.pre))
    node = c.node.astype(np.int64)
    members = np.argsort(node, kind="stable").astype(np.int32)
    nodes = int(node.max(initial=-1)) + 1
    peers, peer_ptr = _peers(c)
    s = _GreedyState(
        node,
        members,
        np.searchsorted(node[members], np.arange(nodes + 1)),
        c.use,
        c.capacity.copy(),
        demand.post,
        demand.pre.copy(),
        np.zeros((chunks, n), np.int32),
        np.zeros((chunks, nodes), np.int64),
        np.zeros(chunks, np.int64),
        np.zeros((chunks, nodes), np.int64),
        peers,
        peer_ptr,
        _gates(c),
        np.zeros((room, 4), np.int32),
        np.zeros(2, np.int64),
        np.array([2 * seed + 1], np.int64),
    )
    _start(s)
    _run(s, c.capacity, again, most_steps)
    if s.done[0] < room:
        return None
    return Schedule(s.rows[:, 0], s.rows[:, 1], s.rows[:, 2], s.rows[:, 3])


def _kinds(c: Chunked) -> tuple[I8, I8, B1, B1]:
    """Returns both ends of every pair of ranks, whether it has a route, and whether between
    nodes."""
    src, dst = np.divmod(np.arange(c.n * c.n), c.n)
    return src, dst, c.use[:, 0] >= 0, c.node[src] != c.node[dst]


def _peers(c: Chunked) -> tuple[I4, I8]:
    """Returns `_GreedyState.peers` and `_GreedyState.peer_ptr`."""
    src, dst, reached, far = _kinds(c)
    key = (far.astype(np.int64) * c.n + dst)[reached]
    order = np.argsort(key, kind="stable")
    ptr = np.searchsorted(key[order], np.arange(2)[:, None] * c.n + np.arange(c.n + 1))
    return src[reached][order].astype(np.int32), ptr


def _gates(c: Chunked) -> I4:
    """Returns `_GreedyState.gate`."""
    src, dst, reached, far = _kinds(c)
    gate = np.full((2, 2, c.n), -1, np.int32)
    resources = len(c.capacity)
    for kind, end in ((f, e) for f in (0, 1) for e in (0, 1)):
        rows = np.flatnonzero(reached & (far == kind))
        rank = (src, dst)[end][rows]
        used = c.use[rows]
        key = (rank[:, None] * resources + used)[used >= 0]
        keys, count = np.unique(key, return_counts=True)
        all_of_it = keys[count == np.bincount(rank, minlength=c.n)[keys // resources]]
        gate[kind, end, all_of_it // resources] = all_of_it % resources
    return gate


@njit
def _start(s: _GreedyState) -> None:
    for k in range(len(s.spread)):
        for v in range(len(s.node)):
            if s.have[k, v]:
                s.inside[k, s.node[v]] += 1
            elif s.post[k, v]:
                s.wanted[k, s.node[v]] += 1
        s.spread[k] = np.count_nonzero(s.inside[k])
    for _ in range(8):
        next_random(s.random)


@njit
def _run(s: _GreedyState, capacity: I8, again: bool, most: int) -> None:
    """Makes steps until all is done, nothing moves, or there are `most`."""
    while s.done[0] < len(s.rows) and s.done[1] < most:
        before = s.done[0]
        s.left[:] = capacity
        _into_nodes(s)
        for x in range(len(s.first) - 1):
            _within(s, x)
        if again or s.done[0] == before:  # a node's ranks may reach each other over others only
            _again(s)
        if s.done[0] == before:
            return
        s.done[1] += 1


@njit
def _into_nodes(s: _GreedyState) -> None:
    nodes = len(s.first) - 1
    lists = np.empty((nodes, len(s.spread)), np.int32)
    length, at = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    for x in range(nodes):
        for k in range(len(s.spread)):
            if s.wanted[k, x] and s.inside[k, x] == 0:
                lists[x, length[x]] = k
                length[x] += 1
        _order(s.spread, lists[x], length[x], s.random)
    turns = _longest_first(length)
    moving = True
    while moving:
        moving = False
        for x in turns:
            while at[x] < length[x] and _entered(s, 1, x):
                k = lists[x, at[x]]
                at[x] += 1
                if _send(s, k, x, True):
                    moving = True
                    break


@njit
def _within(s: _GreedyState, x: int) -> None:
    """Makes passes over the chunks of node x, one copy of each a pass, while anything moves."""
    chunks = np.empty(len(s.spread), np.int32)
    count = 0
    for k in range(len(s.spread)):
        if s.inside[k, x] and s.wanted[k, x]:
            chunks[count] = k
            count += 1
    _order(s.inside[:, x], chunks, count, s.random)
    while count and _entered(s, 0, x):
        kept = 0
        for i in range(count):
            if _send(s, chunks[i], x, False) and s.wanted[chunks[i], x]:
                chunks[kept] = chunks[i]
                kept += 1
        count = kept


@njit
def _again(s: _GreedyState) -> None:
    """Sends chunks that fewest ranks of a node have into that node once more."""
    chunks = np.empty(len(s.spread), np.int32)
    for x in range(len(s.first) - 1):
        count = 0
        for k in range(len(s.spread)):
            if s.wanted[k, x]:
                chunks[count] = k
                count += 1
        _order(s.inside[:, x], chunks, count, s.random)
        for i in range(count):
            if not _entered(s, 1, x):
                break
            _send(s, chunks[i], x, True)


@njit(allocates=False)
def _send(s: _GreedyState, k: int, x: int, far: bool) -> bool:
    """Sends chunk k to the rank of node x, and from the rank, between which most capacity is left.
    far: from another node, else from the same. Whether there is any."""
    n, turn, kind = len(s.node), next_random(s.random), int(far)
    size = s.first[x + 1] - s.first[x]
    best, src, dst = 0, -1, -1
    for j in range(size):
        v = s.members[s.first[x] + (j + turn) % size]
        if s.have[k, v] or not s.post[k, v] or not _open(s, kind, 1, v):
            continue
        begin, count = s.peer_ptr[kind, v], s.peer_ptr[kind, v + 1] - s.peer_ptr[kind, v]
        for i in range(count):
            u = s.peers[begin + (i + turn) % count]
            if s.have[k, u] and s.since[k, u] <= s.done[1] and _open(s, kind, 0, u):
                spare = _spare(s.use, s.left, np.int64(u) * n + v)
                if spare > best:
                    best, src, dst = spare, u, v
    if best == 0:
        return False
    row = np.int64(src) * n + dst
    for j in range(s.use.shape[1]):
        if s.use[row, j] < 0:
            break
        s.left[s.use[row, j]] -= 1
    i = s.done[0]
    s.rows[i, 0], s.rows[i, 1], s.rows[i, 2], s.rows[i, 3] = k, src, dst, s.done[1]
    s.done[0] += 1
    s.have[k, dst] = True
    s.since[k, dst] = s.done[1] + 1
    s.spread[k] += s.inside[k, x] == 0
    s.inside[k, x] += 1
    s.wanted[k, x] -= 1
    return True


@njit(allocates=False)
def _open(s: _GreedyState, kind: int, end: int, v: int) -> bool:
    """Tells whether capacity is left in the resources that all transfers of a kind out of, or into,
    v use."""
    gate = s.gate[kind, end, v]
    return bool(gate < 0 or s.left[gate] > 0)


@njit(allocates=False)
def _entered(s: _GreedyState, kind: int, x: int) -> bool:
    """Tells whether any rank of node x can be sent anything more in this step."""
    for i in range(s.first[x], s.first[x + 1]):  # noqa: SIM110 (numba has no any() of a generator)
        if _open(s, kind, 1, s.members[i]):
            return True
    return False


@njit(allocates=False)
def _spare(use: I4, left: I8, row: int) -> int:
    """Returns the least capacity left along a route; 0 where there is no route."""
    if use[row, 0] < 0:
        return 0
    least = left[use[row, 0]]
    for j in range(1, use.shape[1]):
        if use[row, j] < 0:
            break
        least = min(least, left[use[row, j]])
    return int(least)


@njit
def _order(rank: I8, chunks: I4, count: int, random: I8) -> None:
    """Sorts chunks[:count] by `rank` of each, ties at random."""
    key = np.empty(count, np.int64)
    for i in range(count):
        key[i] = (rank[chunks[i]] << 31) | next_random(random)
    chunks[:count] = chunks[:count][np.argsort(key, kind="mergesort")]


@njit
def _longest_first(length: I8) -> I8:
    """Returns the order of falling `length`; of equals, that of numba's sort, which plain Python
    lacks."""
    if len(length) <= IN_ORDER:
        return np.argsort(-length, kind="mergesort")
    return _sorted(-length)


@njit(always=True)
def _sorted(key: I8) -> I8:
    return np.argsort(key)
