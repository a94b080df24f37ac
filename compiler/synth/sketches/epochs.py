"""epochs: the order in which a sub-demand is met, by a mixed-integer program over equal epochs.

SyCCL §5.1 and appendix A: time is cut into epochs of τ µs. A way sends the chunk to one target in
one epoch; it keeps resources busy, and the target has the chunk some epochs later, after which it
may pass it on. Of all such schedules HiGHS finds one of the fewest epochs, and of these one that
keeps resources least busy, since calls of many pieces are pipelined through all stages. The number
of epochs is halved between what a schedule made greedily needs and the least possible, a program
for each.

τ comes from a number E: it is E times what a chunk keeps the busiest resource of the slowest target
busy, or of its whole way divided by HOP if that is longer, so that neither bandwidth nor latency
takes too many epochs (SyCCL has an E that balances both; HOP is ours). Where E is below 1 a chunk
is sent over several epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import B1, I8
from hccc.ir.topology import F8
from hccc.synth.common.integer_programs import integers

HOP = 4.0  # epochs of E = 1 that the latency of a way takes at most
MOST_VARIABLES = 1 << 12  # of a program; a larger one is left to the greedy schedule
NODES = 1  # of a program's search: a number of them, not a time, so that answers are the same
EXACT = 1e-9  # part of an epoch that rounding may be wrong by
LIGHT = 1e-3  # weight of arrivals, parts of all epochs, beside the work of resources


@dataclass(frozen=True, slots=True, eq=False)
class EpochDemand:
    """The question: some ways to each target. target: i8[ways], from 0; relay: i8[ways] the target
    that a way begins at, -1 where it begins at a source; busy: f8[ways, resources] µs for which it
    keeps resources busy; alpha: f8[ways] µs of latency."""

    target: I8
    relay: I8
    busy: F8
    alpha: F8

    def only(self, ways: I8) -> EpochDemand:
        """Returns the question with some of its ways."""
        return EpochDemand(self.target[ways], self.relay[ways], self.busy[ways], self.alpha[ways])

    def tau(self, e: float) -> float:
        """Returns the µs of an epoch."""
        length = self.busy.max(1, initial=0.0)
        ways = np.flatnonzero(self.relay < 0)
        best = ways[np.lexsort((self.alpha[ways], length[ways]))]
        best = best[np.unique(self.target[best], return_index=True)[1]]
        return e * max(float(length[best].max()), float((length + self.alpha)[best].max()) / HOP)


@dataclass(frozen=True, slots=True, eq=False)
class EpochSchedule:
    """The answer. way: i8[targets] the way to each; epoch: i8[targets] in which it sends; arrived:
    after how many epochs all have the chunk; tau: µs of one."""

    way: I8
    epoch: I8
    arrived: int
    tau: float


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """A question in epochs. takes: i8[ways] epochs until the target has the chunk; part: f8[ways,
    resources] of what a window of `window` epochs has room for."""

    d: EpochDemand
    tau: float
    takes: I8
    part: F8
    window: int

    @property
    def targets(self) -> int:
        return int(self.d.target.max()) + 1


def scheduled(d: EpochDemand, e: float) -> EpochSchedule:
    """Returns a schedule of few epochs, of the length that E = `e` gives them."""
    tau = d.tau(e)
    length = d.busy.max(1, initial=0.0)
    takes = np.maximum(np.ceil((length + d.alpha) / tau - EXACT), 1).astype(np.int64)
    window = max(1, int(np.ceil(length.max() / tau - EXACT)))
    c = _Counted(d, tau, takes, d.busy / (window * tau), window)
    best = greedy = _greedy(c)
    low, high = _least(c), greedy.arrived
    while low < high:
        middle = (low + high) // 2
        if found := _within(c, middle):
            best, high = found, min(middle, found.arrived)
        else:
            low = middle + 1
    return _within(c, best.arrived) or best if best is greedy else best


def _least(c: _Counted) -> int:
    """Returns the epochs that any schedule needs: of a target's fastest way, and of the work of the
    busiest resource where each target has the way that spares it most."""
    fastest = np.full(c.targets, np.iinfo(np.int64).max)
    np.minimum.at(fastest, c.d.target, c.takes)
    spared = np.full((c.targets, c.part.shape[1]), np.inf)
    np.minimum.at(spared, c.d.target, c.part)
    windows = float(spared.sum(0).max(initial=0.0))
    sending = int(np.ceil(windows * c.window - EXACT))
    return max(int(fastest.max()), sending - c.window + int(c.takes.min()))


def _greedy(c: _Counted) -> EpochSchedule:
    """Returns the schedule in which every epoch sends what there is room for, over the ways that
    keep resources least busy."""
    n = c.targets
    order = np.lexsort((np.arange(len(c.takes)), c.takes, c.part.sum(1)))
    way, epoch, has = np.full(n, -1), np.zeros(n, np.int64), np.full(n, np.iinfo(np.int64).max)
    used = [np.zeros(c.part.shape[1])] * (c.window - 1)  # of the last epochs
    now = 0
    while (way < 0).any():
        sent = np.zeros(c.part.shape[1])
        for w in order.tolist():
            at, begin = int(c.d.target[w]), int(c.d.relay[w])
            if way[at] >= 0 or (begin >= 0 and has[begin] > now):
                continue
            if (sum(used[-(c.window - 1) :] if c.window > 1 else [], sent) + c.part[w]).max(
                initial=0.0
            ) <= 1 + EXACT:
                way[at], epoch[at], has[at] = w, now, now + c.takes[w]
                sent = sent + c.part[w]
        used.append(sent)
        now += 1
    return EpochSchedule(way, epoch, int(has.max()), c.tau)


def _within(c: _Counted, epochs: int) -> EpochSchedule | None:
    """Returns a schedule of at most so many epochs, None where HiGHS finds none."""
    ways, at = _choices(c, epochs)
    if not len(ways) or len(ways) > MOST_VARIABLES:
        return None
    arrives = at + c.takes[ways]
    rows, columns, values, low, high = _rows(c, ways, at, epochs)
    cost = c.part[ways].sum(1) + LIGHT * arrives / epochs
    x = integers(cost, (rows, columns, values), low, high, nodes=NODES)
    if x is None:
        return None
    chosen = np.flatnonzero(x)
    chosen = chosen[np.argsort(c.d.target[ways[chosen]], kind="stable")]
    return EpochSchedule(ways[chosen], at[chosen], int(arrives[chosen].max()), c.tau)


def _choices(c: _Counted, epochs: int) -> tuple[I8, I8]:
    """Returns the variables: ways, and the epochs in which they may send."""
    room = np.maximum(epochs - c.takes + 1, 0)
    ways = np.repeat(np.arange(len(room)), room)
    at = np.arange(len(ways)) - np.repeat(np.cumsum(room) - room, room)
    return ways, at


def _rows(c: _Counted, ways: I8, at: I8, epochs: int) -> tuple[I8, I8, F8, F8, F8]:
    """Returns the constraints: row, column and value of each coefficient, bounds of each row.

    Every target is reached once; what passes the chunk on has it by then; in each window of epochs
    no resource is busier than it can be.
    """
    n, kinds = c.targets, c.part.shape[1]
    column, target, relay = np.arange(len(ways)), c.d.target[ways], c.d.relay[ways]
    rows, columns, values = [target], [column], [np.ones(len(ways))]
    low, high = [np.ones(n)], [np.ones(n)]
    total = n
    relays = np.unique(relay[relay >= 0])
    for v in relays.tolist():  # sent from v by epoch k: at most each way once it has the chunk
        sends, gets = np.flatnonzero(relay == v), np.flatnonzero(target == v)
        pairs = np.unique(target[sends] * epochs + at[sends], return_inverse=True)
        keys, of = pairs
        epoch = keys % epochs
        arrived = (at[gets] + c.takes[ways[gets]])[None, :] <= epoch[:, None]
        row, k = np.nonzero(arrived)
        rows += [total + of, total + row]
        columns += [sends, gets[k]]
        values += [np.ones(len(sends)), np.full(len(k), -1.0)]
        low.append(np.full(len(keys), -np.inf))
        high.append(np.zeros(len(keys)))
        total += len(keys)
    for back in range(c.window):  # the window of epochs that ends with `at` + back
        for kind in range(kinds):
            busy = np.flatnonzero(c.part[ways, kind] > 0)
            rows.append(total + kind * (epochs + c.window) + at[busy] + back)
            columns.append(busy)
            values.append(c.part[ways[busy], kind])
    count = kinds * (epochs + c.window)
    low.append(np.full(count, -np.inf))
    high.append(np.ones(count))
    return (
        np.concatenate(rows),
        np.concatenate(columns),
        np.concatenate(values),
        np.concatenate(low),
        np.concatenate(high),
    )


def worthwhile(d: EpochDemand, preferred: B1) -> I8:
    """Returns the ways without needless ones. preferred: b1[ways], which to keep of equal ones.

    A way from a source beats those that arrive later and keep resources as busy. Of targets that
    sources reach alike none need have the chunk from a later one: names can be changed.
    """
    keep = np.ones(len(d.target), np.bool_)
    alike = list[bytes]()
    for v in range(int(d.target.max()) + 1):
        mine = np.flatnonzero(d.target == v)
        mine = mine[np.lexsort((mine, ~preferred[mine], d.relay[mine] >= 0))]
        busy, alpha = d.busy[mine], d.alpha[mine]
        source = d.relay[mine] < 0
        beaten = (busy[None] <= busy[:, None]).all(2) & (alpha[None] <= alpha[:, None])
        before = np.tri(len(mine), k=-1, dtype=np.bool_)  # of equal ones the first is kept
        beaten &= ~beaten.T | before
        keep[mine] = ~(beaten & source[None]).any(1)
        kept = mine[source & keep[mine]]
        costs = np.column_stack([d.busy[kept], d.alpha[kept]])
        alike.append(np.unique(costs, axis=0).tobytes())
    kind = np.unique(alike, return_inverse=True)[1]
    back = (d.relay > d.target) & (kind[d.relay] == kind[d.target])
    return np.flatnonzero(keep & ~back)
