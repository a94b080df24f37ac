"""circuits: orders of all ranks in which every hop has a route, for rings and trees.

NCCL searches each node for channels that enter by one NIC, pass all GPUs and leave by a NIC
(`src/graph/search.cc`), and joins them node by node (`connect.cc`); on rails odd nodes swap a
channel's NICs, so that it stays on its rail. Here one shortest-path pass over the nodes chooses,
for each circuit, the GPUs by which it enters and leaves every node. The cost of a hop is its time
if all circuits so far and this one used it at once: that spreads circuits over NICs and links, and
keeps them on rails where leaving these costs time. Circuits are added as long as they carry more
together.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import I4, I8, places, starts
from hccc.ir.topology import F8, US_PER_MB, Topology
from hccc.network.routes import Routes, routes
from hccc.synth.builtin.hamiltonian_paths import costs, path

MOST = 16  # circuits of one cluster: NCCL's channels are these and copies of them
ROUNDS = 256  # searches for all circuits anew, times ranks, where one more slows the others down
SHARPNESS = 4  # exponent of a resource's crowding: how much more the slowest count
GAIN = 1.02  # times the GB/s: more circuits must carry as much
CHANNELS_OF_ONE = 2  # NCCL has every channel twice (`connect.cc`)
CHANNELS = 32  # and, by default, about this many in all


@dataclass(slots=True, eq=False)
class _Hops:
    """All pairs of one node's GPUs, and of GPUs of a node and of the next.

    Rows of `routes`: node k's pairs begin at inside[k], those to the next node at across[k], both
    row-major. load: f8[R] how many circuits use each resource.
    """

    topology: Topology
    routes: Routes
    inside: I8
    across: I8
    load: F8

    @property
    def nodes(self) -> tuple[I8, I8]:
        """The first rank and the size of every node that has ranks."""
        first = self.topology.first_rank
        size = np.diff(first)
        return first[:-1][size > 0], size[size > 0]

    def weights(self) -> F8:
        """Returns the µs of one chunk over each pair, with the present load and one circuit
        more."""
        share = (self.load + 1) / self.routes.capacity
        slowest = np.zeros(len(self.routes.bandwidth))
        np.maximum.at(slowest, self.routes.uses.owner(), share[self.routes.uses.index])
        time = self.routes.alpha + self.topology.chunk / US_PER_MB * slowest
        return np.where(self.routes.bandwidth > 0, time, np.inf)

    def use(self, order: I4, times: int = 1) -> None:
        """Adds a circuit to the loads, or takes it out: times = -1."""
        used = self.routes.uses.take(self.rows(order)).index
        self.load += times * np.bincount(used, minlength=len(self.load))

    def rows(self, order: I4) -> I8:
        """Returns the rows of `routes` that a circuit takes."""
        first, size = self.nodes
        src, dst = order, np.roll(order, -1)
        k = np.searchsorted(first, src, side="right") - 1
        j = np.searchsorted(first, dst, side="right") - 1
        within = (j == k) & (len(size) == 1 or np.arange(len(order)) < len(order) - 1)
        base: I8 = np.where(within, self.inside[k], self.across[k])
        return base + (src - first[k]) * size[j] + dst - first[j]

    @property
    def rate(self) -> float:
        """GB/s that each circuit carries when all are in use at once."""
        used = self.load > 0
        return float((self.routes.capacity[used] / self.load[used]).min(initial=np.inf))

    @property
    def crowding(self) -> float:
        """How full resources are, the fullest counting most."""
        return float(((self.load / self.routes.capacity) ** SHARPNESS).sum())


def circuits(t: Topology) -> I4:
    """Finds orders of all ranks, the last followed by the first: i4[count, n].

    Each enters every node once. O(count · N · (2^g g³ + g² log)) for N nodes of g GPUs.

    Raises:
        UserError: E451 the cluster's routes join its GPUs in no such order.
    """
    if len(t) == 1:
        return np.zeros((1, 1), np.int32)
    hops = _hops(t)
    greedy, carried = _search(hops, 0)
    hops.load[:] = 0
    rerouted, more = _search(hops, max(2, ROUNDS // len(t)))
    found = rerouted if more > GAIN * carried else greedy
    return _ascending(hops) if len(found) == 1 and _as_good(hops, found[0]) else found


def _ascending(hops: _Hops) -> I4:
    return np.arange(len(hops.topology), dtype=np.int32)[None]


def _as_good(hops: _Hops, order: I4) -> bool:
    """Tells whether ranks in ascending order, which people read more easily, are as good as
    `order`."""
    costs = []
    for one in (_ascending(hops)[0], order):
        hops.load[:] = 0
        weight = round(float(hops.weights()[hops.rows(one)].sum()), 6)
        hops.use(one)
        costs.append((-hops.rate, weight))
    return costs[0] <= costs[1]


def _search(hops: _Hops, rounds: int) -> tuple[I4, float]:
    """Adds circuits one by one while that raises the GB/s of all together, and returns both. Where
    one more does not, all are found anew up to `rounds` times."""
    rng, orders = np.random.default_rng(0), list[I4]()
    best, most = np.zeros((0, len(hops.topology)), np.int32), 0.0
    for count in range(1, _most(hops) + 1):
        orders.append(_circuit(hops))
        hops.use(orders[-1])
        for _ in range(rounds):
            if count * hops.rate > GAIN * most:
                break
            orders = _rerouted(hops, orders, rng)
        if count * hops.rate > GAIN * most:
            best, most = np.stack(orders), count * hops.rate
    return best, most


def channels_of(t: Topology, orders: I4) -> int:
    """Returns how many channels NCCL would give each circuit: enough that their thread blocks fill
    its share of the links, at least CHANNELS_OF_ONE, at most CHANNELS in all."""
    if len(t) == 1:
        return 1
    block = min(t.devices[d].store for d in np.unique(t.device))
    rate = block / 2  # a block reads two values and writes two
    wanted = np.ceil(shares(t, orders).max() / rate)
    return int(np.clip(wanted, CHANNELS_OF_ONE, max(CHANNELS_OF_ONE, CHANNELS // len(orders))))


def shares(t: Topology, orders: I4) -> F8:
    """Returns the GB/s of each circuit when all are in use at once: f8[count]."""
    src, dst = orders.ravel(), np.roll(orders, -1, axis=1).ravel()
    paths = routes(t, src, dst)
    load = np.bincount(paths.uses.index, minlength=len(paths.resource))
    share = paths.capacity / np.maximum(load, 1)
    slowest = np.full(len(src), np.inf)
    np.minimum.at(slowest, paths.uses.owner(), share[paths.uses.index])
    least: F8 = slowest.reshape(orders.shape).min(axis=1)
    return least


def _hops(t: Topology) -> _Hops:
    first = t.first_rank
    size = np.diff(first)
    first, size = first[:-1][size > 0], size[size > 0]
    after = np.roll(np.arange(len(first)), -1)
    pairs = [_pairs(first, size, first, size)]
    if len(first) > 1:
        pairs.append(_pairs(first, size, first[after], size[after]))
    src, dst = (np.concatenate(x).astype(np.int32) for x in zip(*pairs, strict=True))
    paths = routes(t, src, dst)
    inside = starts(size * size)
    across = inside[-1] + starts(size * size[after])
    return _Hops(t, paths, inside, across, np.zeros(len(paths.resource)))


def _pairs(a: I8, a_size: I8, b: I8, b_size: I8) -> tuple[I8, I8]:
    """Returns all pairs of a rank of range k of `a` and one of range k of `b`, row-major."""
    count = a_size * b_size
    k = np.repeat(np.arange(len(a)), count)
    at = places(count)
    return a[k] + at // b_size[k], b[k] + at % b_size[k]


def _most(hops: _Hops) -> int:
    """Returns how many circuits can differ in their slowest resource: NICs of a node, or links of a
    GPU."""
    paths, size = hops.routes, hops.nodes[1]
    row = paths.uses.owner()
    cap = paths.capacity[paths.uses.index]
    order = np.lexsort((np.arange(len(row)), cap, row))
    leads = np.ones(len(row), np.bool_)
    leads[1:] = np.diff(row[order]) != 0
    slowest = np.full(len(paths.bandwidth), -1, np.int64)
    slowest[row[order][leads]] = paths.uses.index[order][leads]
    runs = hops.across if len(size) > 1 else np.arange(size[0] + 1) * size[0]
    kinds = [
        len(np.unique(slowest[a:b][paths.bandwidth[a:b] > 0])) for a, b in pairwise(runs.tolist())
    ]
    return max(1, min(MOST, max(kinds)))


def _rerouted(hops: _Hops, orders: list[I4], rng: np.random.Generator) -> list[I4]:
    """Takes out every circuit in turn and finds it anew at prices with noise; returns `orders`
    where the new ones crowd resources more."""
    before, load = hops.crowding, hops.load.copy()
    new = list(orders)
    for i, old in enumerate(orders):
        hops.use(old, -1)
        new[i] = _circuit(hops, 1 + rng.random(len(hops.routes.bandwidth)))
        hops.use(new[i])
    if hops.crowding <= before:
        return new
    hops.load = load
    return orders


def _circuit(hops: _Hops, noise: F8 | float = 1.0) -> I4:
    """Returns the cheapest circuit under the present load."""
    first, size = hops.nodes
    weight = hops.weights() * noise
    inside = [
        weight[a:b].reshape(g, g)
        for a, b, g in zip(hops.inside[:-1], hops.inside[1:], size.tolist(), strict=True)
    ]
    ends = _ends(hops, inside, weight, size)
    through = dict[tuple[bytes, int, int], I8]()  # of nodes that are alike, once
    parts = list[I8]()
    for k, (enter, leave) in enumerate(ends):
        key = inside[k].tobytes(), enter, leave
        if key not in through:
            through[key] = path(inside[k], enter, leave) if size[k] > 1 else np.zeros(1, np.int64)
        parts.append(first[k] + through[key])
    return np.concatenate(parts).astype(np.int32)


def _ends(hops: _Hops, inside: list[F8], weight: F8, size: I8) -> list[tuple[int, int]]:
    """Returns the GPUs by which the circuit enters and leaves each node: the shortest path over the
    nodes, for every GPU of the first node to begin at; of equals the first."""
    kinds = {w.tobytes(): w for w in inside}  # nodes that are alike, once
    found = {key: costs(w) if len(w) > 1 else np.zeros((1, 1)) for key, w in kinds.items()}
    within = [found[w.tobytes()] for w in inside]
    if len(size) == 1:
        closed = within[0] + inside[0].T  # back from v to u
        return [_least(closed, "GPUs of a node")]
    after = np.roll(size, -1)
    between = [
        weight[a:b].reshape(g, h)
        for a, b, g, h in zip(hops.across[:-1], hops.across[1:], size, after, strict=True)
    ]
    cost = within[0]  # [GPU it began at, GPU it leaves by]
    via: list[tuple[I8, I8]] = []
    for k in range(1, len(size)):
        entered = cost[:, :, None] + between[k - 1][None]
        by = entered.argmin(axis=1)
        reached = entered.min(axis=1)
        left = reached[:, :, None] + within[k][None]
        via.append((by, left.argmin(axis=1)))
        cost = left.min(axis=1)
    begin, leave = _least(cost + between[-1].T, "nodes")
    ends: list[tuple[int, int]] = []
    for by, enter in reversed(via):
        ends.append((int(enter[begin, leave]), leave))
        leave = int(by[begin, ends[-1][0]])
    return [(begin, leave), *reversed(ends)]


def _least(cost: F8, what: str) -> tuple[int, int]:
    at = int(np.argmin(cost))
    if not np.isfinite(cost.flat[at]):
        raise fail(
            "E451",
            f"no ring over the cluster's links joins its {what}",
            help="a ring goes on from each GPU to one that it has a route to",
        )
    return at // cost.shape[1], at % cost.shape[1]
