"""critical: the chain of instances that the end of a Run waited for.

From the instance that ended last, back to what let it go: the one that it waited for, or else
the one before it in its thread block. Where a proxy carried what it waited for, the way of that
lies between the two; where bytes that nobody waits for arrive last, after the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.topology import BYTES_PER_US, F8
from hccc.network.resource_names import KINDS, kinds
from hccc.sim.simulate import Run, memory_in

LEAST = 5e-4  # of the path


def critical_path(run: Run) -> I8:
    """The instances (p · batches + m) of the critical path, first to last. O(its length)."""
    if not len(run.end):
        return np.zeros(0, np.int64)
    plan = run.machine.plan
    last, _ = _last(run)
    block = plan.block_of()
    first, stop = plan.tb_ptr[:-1][block], plan.tb_ptr[1:][block]
    return _back(last, run.cause, first, stop, run.batches, run.window)[::-1]


def _last(run: Run) -> tuple[int, int]:
    """The last instance, and the transfer of its bytes that arrives after all ends (-1: none)."""
    items = run.carriage[run.machine.transfers.carries[run.carriage["transfer"]]]
    if not len(items) or items["arrival"].max() <= run.end.max():
        return int(np.argmax(run.end)), -1
    item = items[np.argmax(items["arrival"])]
    x = int(item["transfer"])
    return int(run.machine.transfers.owner[x]) * run.batches + int(item["batch"]), x


@njit
def _back(last: int, cause: I4, first: I8, stop: I8, batches: int, window: int) -> I8:
    path = np.zeros(len(cause), np.int64)
    n, i = 0, last
    while i >= 0:
        path[n] = i
        n += 1
        i = cause[i] if cause[i] >= 0 else _before(i, first, stop, batches, window)
    return path[:n].copy()


@njit
def _before(i: int, first: I8, stop: I8, batches: int, window: int) -> int:
    """The instance that its block did before instance i, or -1 for its first."""
    p, m = i // batches, i % batches
    begin = m // window * window  # of its window
    if m > begin:
        return i - 1
    if p > first[p]:
        return int((p - 1) * batches + min(begin + window, batches) - 1)
    return int((stop[p] - 1) * batches + begin - 1) if begin > 0 else -1


def breakdown(run: Run, path: I8) -> dict[str, float]:
    """µs of the critical path by what they went into; together they are its whole length.

    `latency`: α and what the runtime adds; `reduction`: γ; then, for the bytes of every instance
    and of every way over the network between two, what alone would have set their pace: a kind of
    link, or `thread block`; `sharing`: how much longer instances took because others used the same
    link; `waiting for the network`: the same of proxies, and what they had to carry before;
    `waiting`: nothing was done for it.
    """
    m = run.machine
    p = path // run.batches
    size = _sizes(run, path)
    reduction = m.combine[p] * size
    fixed = np.where(run.moves[p], m.alpha[p] * run.request.costs.latency, 0.0)
    fixed += np.where(run.moves[p], run.request.costs.step + run.request.costs.interpret, 0.0)
    pace, kind = _pace(run, p)
    alone = pace * size
    took = run.end[path] - run.ready[path]
    ways = _ways(run, path)
    parts_us = {"latency": float(fixed.sum() + ways.alpha.sum())}
    parts_us["reduction"] = float(reduction.sum())
    kinds_us = np.bincount(kind, alone, len(KINDS) + 1)
    kinds_us += np.bincount(ways.kind, ways.alone, len(KINDS) + 1)
    for k in np.flatnonzero(kinds_us):
        name = KINDS[k] if k < len(KINDS) else "thread block"
        parts_us[name] = float(kinds_us[k])
    parts_us["sharing"] = float((took - fixed - reduction - alone).sum())
    parts_us["waiting for the network"] = float((ways.took - ways.alpha - ways.alone).sum())
    parts_us["waiting"] = float(run.finish - took.sum() - ways.took.sum())
    return {name: max(us, 0.0) for name, us in parts_us.items() if us > 1e-9 or name == "latency"}


@dataclass(frozen=True, slots=True, eq=False)
class _Ways:
    """Ways over the network on a path, f8[m] µs: what each took, its α, its bytes alone; and i4[m]
    what sets the pace of those (`KINDS`)."""

    took: F8
    alpha: F8
    alone: F8
    kind: I4


def _ways(run: Run, path: I8) -> _Ways:
    carried, costs = run.machine.transfers, run.request.costs
    far = 1 + np.flatnonzero(run.via[path[1:]] >= 0)
    via, before = run.via[path[far]], path[far - 1]
    took = run.ready[path[far]] - run.end[before]
    _, last = _last(run) if len(path) else (0, -1)
    if last >= 0:
        via, before = np.append(via, last), np.append(before, path[-1])
        took = np.append(took, run.finish - run.end[path[-1]])
    pair = carried.pair[via]
    pace, kind = _pairs_pace(run)
    alone = pace[pair] * carried.bytes_ahead()[via] * _sizes(run, before)
    return _Ways(took, carried.alpha[pair] * costs.latency, alone, kind[pair])


def _sizes(run: Run, path: I8) -> F8:
    """Bytes that each instance moves: f8[len(path)]."""
    last = path % run.batches == run.batches - 1
    size = np.where(last, run.last, run.payload)
    return np.where(run.moves[path // run.batches], size, 0.0)


def _pairs_pace(run: Run) -> tuple[F8, I4]:
    """µs a byte of each pair takes alone, and the kind of the resource that sets it."""
    m = run.machine
    carried = m.transfers
    often = m.plan.channels / run.request.costs.efficiency
    slow = often / (m.capacity[carried.uses.index] * BYTES_PER_US)
    pace, kind = np.zeros(len(carried.src)), np.zeros(len(carried.src), np.int32)
    owner = carried.uses.owner()
    np.maximum.at(pace, owner, slow)
    sets = np.flatnonzero(slow >= pace[owner])
    kind[owner[sets]] = kinds(m.topology, m.resource)[carried.uses.index[sets]]
    return pace, kind


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the critical path: what it went into, its µs, and its share, 0 to 1."""

    name: str
    us: float
    share: float

    @property
    def counts(self) -> bool:
        """Whether it is worth a word."""
        return self.share > LEAST


def shares(parts: Mapping[str, float]) -> list[Part]:
    """The parts of a `breakdown`, the longest first."""
    total = sum(parts.values()) or 1.0
    longest = sorted(parts.items(), key=lambda item: -item[1])
    return [Part(name, us, us / total) for name, us in longest]


def _pace(run: Run, p: I8) -> tuple[F8, I4]:
    """µs a byte of each primitive takes alone, and the kind of what sets that (none: a block)."""
    m = run.machine
    slow = m.weight / run.request.costs.efficiency / (m.capacity[m.uses.index] * BYTES_PER_US)
    faster = memory_in(m, run.request).faster[m.plan.rank_of()]
    pace, kind = m.move / faster, np.full(len(m.move), len(KINDS))
    owner = m.uses.owner()
    np.maximum.at(pace, owner, slow)
    sets = np.flatnonzero(slow >= pace[owner])
    kind[owner[sets]] = kinds(m.topology, m.resource)[m.uses.index[sets]]
    return pace[p], kind[p]
