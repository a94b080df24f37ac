"""routed: collectives in which every chunk goes from one rank to one rank, over the emptiest paths.

Alltoall, Gather, Scatter and SendRecv ask for paths. A chunk goes straight to where it must end,
by a relay, or by two: one in its source's node, one in its destination's. Every resource of
`network/routes` has a price that grows exponentially with what it carries, over what it carries
if the bound is met; each chunk is taken off its path and given the cheapest one again, at steeper
and steeper prices. Relays cost something too, so what need not be relayed is not. Where two relays
do not join all ranks, paths are as long as they must be (`long_paths`).

Source: Aspnes et al., "On-line Routing of Virtual Circuits with Applications to Load Balancing and
Machine Scheduling" (1997), for prices; rip-up and re-route as routers of circuits do it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hccc.base.diagnostics import fail
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.program import Program
from hccc.ir.topology import F8, Topology
from hccc.network.routes import routes
from hccc.synth.bounds.bound import limits
from hccc.synth.builtin.table import joined, transfers
from hccc.synth.greedy.chunked import table
from hccc.synth.paths.long_paths import long_paths

OPS = (OpType.ALLTOALL, OpType.GATHER, OpType.SCATTER, OpType.SENDRECV)
CHUNKS = {OpType.ALLTOALL: (1, 2, 4)}  # of a block; the first with which the bound is met
FEW = (1, 4, 16)  # of other collectives, which have fewer blocks
MOST_CHUNKS = 1 << 16  # an Alltoall of 256 ranks; beyond, one more program compiles for too long
MOST_TRANSFERS = 1 << 14  # of a program of several chunks a block
SMALL = 1 << 11  # chunks of a program that is also made with more than it needs
STEEPNESS = (8.0, 16.0, 32.0, 64.0, 128.0)
PASSES = 2  # of each
MET = 1.01  # times the bound: near enough
MOST_WORK = 1 << 28  # paths that are looked at in a pass; beyond it none has two relays
RELAY = 0.1  # of the bound's time that a relay must save the fullest resource, about


@dataclass(frozen=True, slots=True, eq=False)
class Routed:
    """chunks: of a block; relayed: how many are not sent straight; load: of the fullest resource,
    over what the bound allows it."""

    program: Program
    chunks: int
    relayed: int
    load: float

    @property
    def name(self) -> str:
        """For people: `routed, 2 chunks a block`."""
        return f"routed, {self.chunks} chunk{'s' if self.chunks > 1 else ''} a block"


@dataclass(frozen=True, slots=True, eq=False)
class _Paths:
    """Relays of each chunk, in order, -1 for none: i4[hops, P]; load: as of Routed."""

    relays: I4
    load: float

    @property
    def relayed(self) -> int:
        return int(np.count_nonzero(self.relays >= 0))

    @property
    def rank(self) -> tuple[float, int]:
        """What is better is less: load where the bound is not met, then relays."""
        return max(self.load, MET), self.relayed


def routed(t: Topology, op: OpType, root: int = 0, seed: int = 0) -> Iterator[Routed]:
    """Programs of `op` that load the fullest resource least, with different numbers of chunks.

    O(chunks · ranks of a node² · longest route) a pass. Stops where more chunks would load nothing
    less, except that small programs come with twice as many too, which share links more evenly.

    Raises:
        UserError: E451 it is none of OPS; a rank is not reached; or everything sent straight is as
            good; E452 it is too large.
    """
    if op not in OPS:
        raise fail("E451", f"routed does not serve {op.value}", help="built-ins do")
    n = len(t)
    cut = limits(t, op, root).cut
    if cut is None or cut.capacity <= 0:
        raise fail("E451", "nothing can be routed: a rank is not reached", help="see `hccc bound`")
    if block_count(op, n) > MOST_CHUNKS:
        message = f"{op.value} over {n} ranks has {block_count(op, n):,} chunks"
        raise fail("E451", message, help=f"at most {MOST_CHUNKS:,} are routed")
    use, capacity = _uses(t)
    blocks = Collective(op, n, block_count(op, n), root).most_blocks()
    each = cut.capacity / (capacity * blocks * cut.share)  # of the bound's time, one block
    chunk, src, dst = _ends(t, op, root, 1)
    if _straight(use, each, src * n + dst) <= MET:
        raise fail("E451", "relays gain nothing", help="direct sends everything straight")
    met = False
    for chunks in CHUNKS.get(op, FEW):
        chunk, src, dst = _ends(t, op, root, chunks)
        if chunks > 1 and len(chunk) > (SMALL if met else MOST_TRANSFERS):
            return
        paths = _packed(t, use, each / chunks, src, dst, chunks, seed)
        if paths.relayed:
            yield Routed(_program(t, op, root, chunks, paths), chunks, paths.relayed, paths.load)
        if met:
            return
        met = paths.load <= MET


def _uses(t: Topology) -> tuple[I4, F8]:
    """The resources of all pairs of ranks, as of `Chunked`, and their GB/s."""
    n = len(t)
    src, dst = (a.ravel().astype(np.int32) for a in np.divmod(np.arange(n * n), n))
    apart = np.flatnonzero(src != dst)
    found = routes(t, src[apart], dst[apart])
    use = table(found.uses.ptr, found.uses.index, apart, n)
    use[apart[found.bandwidth <= 0], 0] = -2
    return use, found.capacity


def _straight(use: I4, each: F8, row: I4) -> float:
    """The load of the fullest resource without relays; infinite where a pair has no route."""
    used = use[row]
    if (used[:, 0] == -2).any():
        return float("inf")
    count = np.bincount(used[used >= 0], minlength=len(each))
    return float((count * each).max(initial=0.0))


def _ends(t: Topology, op: OpType, root: int, chunks: int) -> tuple[I8, I4, I4]:
    """(chunk, where it starts, where it must end) of those that must move."""
    c = Collective(op, len(t), chunks * block_count(op, len(t)), root)
    chunk = np.arange(c.n_chunks)
    src, dst = (
        c.source_of(chunk),
        c.target_of(chunk) if op is not OpType.SCATTER else chunk // chunks,
    )
    moves = src != dst
    return chunk[moves], src[moves].astype(np.int32), dst[moves].astype(np.int32)


def _packed(t: Topology, use: I4, each: F8, src: I4, dst: I4, chunks: int, seed: int) -> _Paths:
    """Paths for chunks from src to dst. use: as of `Chunked`; each: f8[R] what one chunk adds to
    the load of a resource; chunks: from one rank to another.

    Raises:
        UserError: E451 there is no path.
    """
    node = t.dense_memory_domain().astype(np.int64)
    order = np.argsort(node, kind="stable").astype(np.int32)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(node))])
    size = np.diff(ptr)
    twice = bool(len(src) * size.max() ** 2 <= MOST_WORK)
    first, second = np.full(len(src), -2, np.int32), np.full(len(src), -1, np.int32)
    load, carried = np.zeros(len(each)), np.zeros(len(node) ** 2, np.int32)
    turns = np.random.default_rng(seed)
    best: _Paths | None = None
    for steep in STEEPNESS:
        for _ in range(PASSES):
            lost = _pass(
                use,
                each,
                node,
                ptr,
                order,
                src,
                dst,
                first,
                second,
                load,
                carried,
                turns.permutation(len(src)),
                steep,
                chunks,
                twice,
            )
            if lost >= 0:
                return _long(t, use, each, src, dst, seed, int(lost))
            now = _Paths(np.stack([first, second]), float(load.max(initial=0.0)))
            if best is None or now.rank < best.rank:
                best = now
            elif best.load <= MET:
                return best
    assert best is not None
    return best


def _long(t: Topology, use: I4, each: F8, src: I4, dst: I4, seed: int, lost: int) -> _Paths:
    """Paths of any number of relays. lost: a chunk that two do not bring where it must end."""
    stops, load = long_paths(use, each, src, dst, len(t), seed)
    if not len(stops):
        u, v = t.describe(int(src[lost])), t.describe(int(dst[lost]))
        raise fail("E451", f"two relays are too few from {u} to {v}")
    return _Paths(np.where(stops == dst, -1, stops), load)


@njit
def _price(each: float, load: float, widest: float, steep: float) -> float:
    """Of one more chunk on a resource."""
    return float(each / widest * math.exp(min(steep * (load + each - 1.0), 60.0)))


@njit
def _cost(use: I4, price: F8, carried: I4, even: float, row: int) -> float:
    """Of a hop; infinite where there is no route. carried: i4[n · n] chunks of every pair; even:
    the price of each of them: pairs share a NIC evenly, so the fullest pair ends last."""
    total = even * carried[row]
    for k in range(use.shape[1]):
        r = use[row, k]
        if r == -2:
            return np.inf
        if r < 0:
            break
        total += price[r]
    return float(total)


@njit
def _put(
    use: I4,
    each: F8,
    load: F8,
    price: F8,
    carried: I4,
    widest: float,
    steep: float,
    row: int,
    sign: int,
) -> None:
    """A chunk more, or less, on a hop."""
    carried[row] += sign
    for k in range(use.shape[1]):
        r = use[row, k]
        if r < 0:
            break
        load[r] += sign * each[r]
        price[r] = _price(each[r], load[r], widest, steep)


@njit
def _whole(
    use: I4,
    each: F8,
    load: F8,
    price: F8,
    carried: I4,
    widest: float,
    steep: float,
    n: int,
    u: int,
    v: int,
    a: int,
    b: int,
    sign: int,
) -> None:
    """A chunk more, or less, on the path from u by a and b to v."""
    at = u
    for relay in (a, b):
        if relay >= 0:
            _put(use, each, load, price, carried, widest, steep, at * n + relay, sign)
            at = relay
    _put(use, each, load, price, carried, widest, steep, at * n + v, sign)


@njit
def _cheapest(
    use: I4,
    price: F8,
    carried: I4,
    node: I8,
    ptr: I8,
    order: I4,
    n: int,
    u: int,
    v: int,
    relay: float,
    even: float,
    twice: bool,
) -> tuple[float, int, int]:
    """(price, relays) of the best path: straight, then by one rank of either node, then by one
    of each. relay: the price of being relayed."""
    best, a, b = _cost(use, price, carried, even, u * n + v), -1, -1
    if best <= relay:
        return best, a, b
    x, y = node[u], node[v]
    for side in range(1 if x == y else 2):
        at = x if side == 0 else y
        for i in range(ptr[at], ptr[at + 1]):
            w = order[i]
            if w != u and w != v:
                total = relay + _cost(use, price, carried, even, u * n + w)
                total += _cost(use, price, carried, even, w * n + v)
                if total < best:
                    best, a, b = total, w, -1
    if not twice or best <= 2 * relay:
        return best, a, b
    for i in range(ptr[x], ptr[x + 1]):
        w = order[i]
        if w in (u, v):
            continue
        begin = 2 * relay + _cost(use, price, carried, even, u * n + w)
        if begin >= best:
            continue
        for j in range(ptr[y], ptr[y + 1]):
            z = order[j]
            if z != u and z != v and z != w:
                total = begin + _cost(use, price, carried, even, w * n + z)
                total += _cost(use, price, carried, even, z * n + v)
                if total < best:
                    best, a, b = total, w, z
    return best, a, b


def _looked_at(use: I4, each: F8, node: I8, ptr: I8, order: I4, src: I4, *more: Any) -> float:
    """How many resources of paths a pass looks at, at most."""
    most, twice = int(np.diff(ptr).max()), more[-1]
    return float(len(src) * (2 * most + (2 * most**2 if twice else 0)) * use.shape[1])


@njit(work=_looked_at)
def _pass(
    use: I4,
    each: F8,
    node: I8,
    ptr: I8,
    order: I4,
    src: I4,
    dst: I4,
    first: I4,
    second: I4,
    load: F8,
    carried: I4,
    turn: I8,
    steep: float,
    chunks: int,
    twice: bool,
) -> int:
    """In `turn` every chunk off its path (-2 in `first`: it has none yet) and on the cheapest.
    Changes first, second, load and carried. Returns a chunk that has no path, or -1."""
    n = len(node)
    widest, relay = each.max(), math.exp(-steep * RELAY)
    price = np.empty(len(each))
    for r in range(len(each)):
        price[r] = _price(each[r], load[r], widest, steep)
    for i in turn:
        u, v = src[i], dst[i]
        if first[i] != -2:
            _whole(use, each, load, price, carried, widest, steep, n, u, v, first[i], second[i], -1)
        best, a, b = _cheapest(
            use, price, carried, node, ptr, order, n, u, v, relay, relay / chunks, twice
        )
        if best == np.inf:
            return int(i)
        first[i], second[i] = a, b
        _whole(use, each, load, price, carried, widest, steep, n, u, v, a, b, 1)
    return -1


def _program(t: Topology, op: OpType, root: int, chunks: int, paths: _Paths) -> Program:
    """What is relayed leaves first, so that relays have something to send; in each step every rank
    sends to the one so many places on, as of the direct Alltoall."""
    n = len(t)
    chunk, src, dst = _ends(t, op, root, chunks)
    columns = []
    at, hop = src.copy(), np.where(paths.relays[0] >= 0, 0, 1)
    for stop in (*paths.relays, dst):
        goes = np.flatnonzero(stop >= 0)
        away = (stop[goes] - at[goes]) % n
        columns.append((at[goes], stop[goes], hop[goes] * n + away, chunk[goes]))
        at[goes] = stop[goes]
        hop[goes] += np.where(hop[goes] == 0, 2, 1)
    u, v, step, which = (np.concatenate(column) for column in zip(*columns, strict=True))
    dense = np.unique(step, return_inverse=True)[1]
    c = Collective(op, n, chunks * block_count(op, n), root)
    return joined("Routed", c, t, transfers(u, v, dense, which))
