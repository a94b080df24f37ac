"""A TACOS-like synthesiser, to compare with: random greedy matching of free links and chunks.

    python -m benchmarks.tacos CLUSTER... [--collective allgather] [--bytes 1G] [--chunks 1 4 16]
                               [--seeds 4] [--json]

As TACOS does (Won et al., MICRO'24): time goes from event to event; at each, links that are free
are matched, the cheapest first and equals at random, with a random chunk that one end has and the
other lacks, until everybody has everything. A link is taken for α + β · bytes. Reductions are
Allgathers of the turned cluster backwards, an Allreduce is both. Of a few seeds the best counts.

TACOS's networks are links of pairs. Within nodes a Topology's routes are unwound to such: of what
several share, each has its part. Between nodes both is tried: unwinding NICs too, and routes that
are free when all that they share is, each resource being taken for what its own rate needs.
"own model" is the time of that loop, store and forward; "simulated" that of the Program that it
makes, compiled, by `hccc`'s simulator.
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.candidates import compile_candidate
from hccc.base.diagnostics import fail
from hccc.base.jit.compiled import njit
from hccc.base.sizes import size_of
from hccc.driver.inputs import load_cluster
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.collective import OpType, collective_named
from hccc.ir.program import Program
from hccc.ir.topology import BYTES_PER_US, F8, Topology
from hccc.network.routes import routes
from hccc.synth.bounds.bound import limits
from hccc.synth.greedy.programs import from_schedules
from hccc.synth.greedy.schedule import Schedule

OPS = (OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.ALLREDUCE)
SEEDS = 4
Events = tuple[NDArray[np.float64], I4, I4, I4]


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """Routes of n ranks. use: i4[n · n, L] the resources of u → v in row u · n + v, -1 beyond them;
    alpha f8[n · n] µs; rate f8[n · n] and capacity f8[R] GB/s, rate 0 where there is no route."""

    n: int
    use: I4
    alpha: F8
    rate: F8
    capacity: F8

    def reversed(self) -> Links:
        """Turns every route round."""
        turned = np.arange(self.n**2).reshape(self.n, self.n).T.ravel()
        return Links(self.n, self.use[turned], self.alpha[turned], self.rate[turned], self.capacity)


@dataclass(frozen=True, slots=True)
class TacosResult:
    """The best schedule of several seeds. time: µs in the loop's own model; seconds: of all
    seeds."""

    program: Program
    time: float
    seconds: float


def links(t: Topology, *, nics: bool = False) -> Links:
    """Returns a Topology's routes between all ranks, unwound within nodes.

    nics: unwinds the routes between nodes, too.
    """
    n = len(t)
    src, dst = (x.ravel().astype(np.int32) for x in np.divmod(np.arange(n * n), n))
    apart = np.flatnonzero(src != dst)
    found = routes(t, src[apart], dst[apart])
    counts = found.uses.counts()
    use = np.full((n * n, max(1, int(counts.max(initial=0)))), -1, np.int32)
    place = np.arange(len(found.uses.index)) - np.repeat(found.uses.ptr[:-1], counts)
    use[np.repeat(apart, counts), place] = found.uses.index
    alpha, rate = np.zeros(n * n), np.zeros(n * n)
    alpha[apart], rate[apart] = found.alpha, found.bandwidth
    inside = np.flatnonzero(((t.node[src] == t.node[dst]) | nics) & (rate > 0))
    row = use[inside]
    sharers = np.bincount(row[row >= 0], minlength=len(found.capacity))
    each = np.where(row >= 0, (found.capacity / np.maximum(sharers, 1))[row], np.inf)
    rate[inside] = each.min(axis=1, initial=np.inf)
    use[inside] = -1
    use[inside, 0] = len(found.capacity) + np.arange(len(inside))
    return Links(n, use, alpha, rate, np.concatenate([found.capacity, rate[inside]]))


def best(
    t: Topology, op: OpType, chunks: int, size: int = 1 << 30, seeds: int = SEEDS
) -> TacosResult:
    """Returns the fastest, in its own model, of `seeds` schedules of `chunks` chunks a rank.

    Raises:
        UserError: E451 it does not serve `op`, or some rank cannot be reached.
    """
    if op not in OPS:
        raise fail("E451", f"TACOS has no {op.value}")
    begin, networks = time.perf_counter(), [links(t, nics=unwound) for unwound in (False, True)]
    owner = np.repeat(np.arange(len(t), dtype=np.int32), chunks)
    nbytes = size / len(owner)
    total, parts = 0.0, list[Schedule | None]()
    for there, turned in (
        (op is not OpType.REDUCESCATTER, False),
        (op is not OpType.ALLGATHER, True),
    ):
        if not there:
            parts.append(None)
            continue
        models = [net.reversed() if turned else net for net in networks]
        found = [gathered(m, owner, nbytes, seed) for m in models for seed in range(seeds)]
        took, schedule = min(found, key=lambda one: one[0])
        total += took
        parts.append(schedule)
    made = from_schedules("TACOS_like", t, op, 0, owner, parts[0], parts[1])
    return TacosResult(made, total, time.perf_counter() - begin)


def gathered(net: Links, owner: I4, nbytes: float, seed: int) -> tuple[float, Schedule]:
    """Schedules an Allgather of chunks of `nbytes` from their owners; returns its µs, too.

    Raises:
        UserError: E451 some rank cannot be reached.
    """
    usable = np.flatnonzero(net.rate > 0)
    cost = net.alpha[usable] + nbytes / (net.rate[usable] * BYTES_PER_US)
    order = usable[np.argsort(cost, kind="stable")]
    sorted_cost = np.sort(cost, kind="stable")
    first = np.flatnonzero(np.diff(sorted_cost, prepend=-1.0) > 1e-9)
    start, chunk, pair = _matched(
        net.n,
        net.use,
        net.alpha,
        net.rate * BYTES_PER_US,
        net.capacity * BYTES_PER_US,
        order.astype(np.int64),
        np.append(first, len(order)).astype(np.int64),
        owner,
        nbytes,
        seed,
    )
    if len(start) < len(owner) * (net.n - 1):
        raise fail("E451", "some rank is reached by nobody who has data")
    src, dst = (pair // net.n).astype(np.int32), (pair % net.n).astype(np.int32)
    end = start + net.alpha[pair] + nbytes / (net.rate[pair] * BYTES_PER_US)
    step = np.unique(start, return_inverse=True)[1].astype(np.int32)
    return float(end.max(initial=0.0)), Schedule(chunk, src, dst, step)


@njit(always=True)
def _matched(
    n: int,
    use: I4,
    alpha: F8,
    rate: F8,
    capacity: F8,
    order: I8,
    first: I8,
    owner: I4,
    nbytes: float,
    seed: int,
) -> tuple[F8, I4, I8]:
    """Matches free links with chunks; returns each transfer's start (µs), chunk, and row of `use`.

    rate, capacity: bytes/µs; order: usable rows, cheapest first, equally dear ones from first[i] to
    first[i + 1].
    """
    np.random.seed(seed)
    chunks = len(owner)
    has = np.zeros((n, chunks), np.bool_)
    promised = np.zeros((n, chunks), np.bool_)
    for k in range(chunks):
        has[owner[k], k] = promised[owner[k], k] = True
    news = np.ones(n, np.int64)  # how often a rank got something
    seen = np.zeros(n * n, np.int64)  # `news` of a source when it had nothing for a destination
    busy = np.zeros(len(capacity))
    start = np.zeros(chunks * (n - 1))
    sent = np.zeros(chunks * (n - 1), np.int32)
    pair = np.zeros(chunks * (n - 1), np.int64)
    made, now = 0, 0.0
    events = [(0.0, -1, -1)]  # a resource is free, or a rank gets a chunk
    while len(events):
        now = events[0][0]
        late = now * (1 + 1e-12) + 1e-12
        while len(events) and events[0][0] <= late:
            _, rank, k = heapq.heappop(events)
            if rank >= 0:
                has[rank, k] = True
                news[rank] += 1
        for group in range(len(first) - 1):
            np.random.shuffle(order[first[group] : first[group + 1]])
        for row in order:
            src, dst = row // n, row % n
            if seen[row] == news[src] or not _free(use, busy, row, late):
                continue
            k = _wanted(has, promised, src, dst)
            if k < 0:
                seen[row] = news[src]
                continue
            promised[dst, k] = True
            start[made], sent[made], pair[made] = now, k, row
            made += 1
            for i in range(use.shape[1]):
                if use[row, i] >= 0:
                    until = now + alpha[row] + nbytes / capacity[use[row, i]]
                    busy[use[row, i]] = until
                    heapq.heappush(events, (until, -1, -1))
            heapq.heappush(events, (now + alpha[row] + nbytes / rate[row], dst, k))
    return start[:made], sent[:made], pair[:made]


@njit(inline="always", allocates=False, always=True)
def _free(use: I4, busy: F8, row: int, late: float) -> bool:
    free = True
    for i in range(use.shape[1]):
        free = free and (use[row, i] < 0 or busy[use[row, i]] <= late)
    return free


@njit(inline="always", allocates=False, always=True)
def _wanted(has: B1, promised: B1, src: int, dst: int) -> int:
    """Returns any chunk that one rank has and the other neither has nor is sent; -1 for none."""
    count = 0
    for k in range(has.shape[1]):
        count += has[src, k] and not promised[dst, k]
    if count == 0:
        return -1
    left = np.random.randint(count)
    for k in range(has.shape[1]):
        if has[src, k] and not promised[dst, k]:
            if left == 0:
                return k
            left -= 1
    return -1


@dataclass(frozen=True, slots=True)
class TacosRow:
    """One cluster and number of chunks. own, simulated: GB/s of algbw in its own model and in the
    simulator; bound: of the narrowest cut."""

    cluster: str
    ranks: int
    chunks: int
    own: float
    simulated: float
    bound: float
    seconds: float


def main() -> None:
    """Measures the clusters and prints them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("clusters", nargs="+", type=Path)
    parser.add_argument("--collective", default="allgather")
    parser.add_argument("--bytes", type=size_of, default=1 << 30)
    parser.add_argument("--chunks", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    op, rows = collective_named(given.collective), list[TacosRow]()
    for path in given.clusters:
        t = load_cluster(path)
        bound = limits(t, op).at(given.bytes)
        for chunks in given.chunks:
            best(t, op, 1, seeds=1)  # loops are compiled
            made = best(t, op, chunks, given.bytes, given.seeds)
            simulated = compile_candidate(made.program, t, given.bytes)[1]
            own, run, most = (
                given.bytes / BYTES_PER_US / x for x in (made.time, simulated, bound.time)
            )
            rows.append(TacosRow(path.stem, len(t), chunks, own, run, most, made.seconds))
    if given.json:
        print(json.dumps([asdict(one) for one in rows]))
        return
    table = Table(
        "cluster",
        "GPUs",
        "chunks",
        "own model",
        "of the bound",
        "simulated",
        "of the bound",
        "bound GB/s",
        "seconds",
        title=f"TACOS-like {op.value}, GB/s",
    )
    for one in rows:
        table.add_row(
            one.cluster,
            f"{one.ranks}",
            f"{one.chunks}",
            f"{one.own:.1f}",
            f"{one.own / one.bound:.3f}",
            f"{one.simulated:.1f}",
            f"{one.simulated / one.bound:.3f}",
            f"{one.bound:.1f}",
            f"{one.seconds:.3f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
