"""critical: the chain of instances that determined the end of a Run.

Walks back from the last instance to end. The predecessor of an instance is the instance it waited
for, else the previous one of its thread block. If a proxy carried the data waited for, its transfer
lies between the two; if bytes without a waiting instance arrive last, their transfer follows the
last instance.
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

LEAST = 5e-4  # share of the path


def critical_path(run: Run) -> I8:
    """Returns the instances (p · batches + m) of the critical path, first to last. O(its
    length)."""
    if not len(run.end):
        return np.zeros(0, np.int64)
    plan = run.machine.plan
    last, _ = _last(run)
    block = plan.block_of()
    first, stop = plan.tb_ptr[:-1][block], plan.tb_ptr[1:][block]
    return _back(last, run.cause, first, stop, run.batches, run.window)[::-1]


def _last(run: Run) -> tuple[int, int]:
    """Returns the last instance, and the transfer of its bytes that arrives after all ends (-1:
    none)."""
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
    """Returns the previous instance of its block, or -1 for the first."""
    p, m = i // batches, i % batches
    begin = m // window * window  # of its window
    if m > begin:
        return i - 1
    if p > first[p]:
        return int((p - 1) * batches + min(begin + window, batches) - 1)
    return int((stop[p] - 1) * batches + begin - 1) if begin > 0 else -1


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """The network transfers on a path, in its order.

    after: i8[m], the position in the path of the instance before each; transfer: i8[m], which of
    `Machine.transfers`; begin, end: f8[m] µs.
    """

    after: I8
    transfer: I8
    begin: F8
    end: F8

    def __len__(self) -> int:
        return len(self.after)


def crossings(run: Run, path: I8) -> Crossings:
    """Returns the network transfers on a critical path. O(its length)."""
    far = 1 + np.flatnonzero(run.via[path[1:]] >= 0)
    after, transfer, end = far - 1, run.via[path[far]].astype(np.int64), run.ready[path[far]]
    _, last = _last(run) if len(path) else (0, -1)
    if last >= 0:
        after, transfer = np.append(after, len(path) - 1), np.append(transfer, last)
        end = np.append(end, run.finish)
    return Crossings(after, transfer, run.end[path[after]], end)


def breakdown(run: Run, path: I8) -> dict[str, float]:
    """Divides the µs of the critical path by cause; the parts add up to its length.

    `latency`: α and the runtime's costs; `reduction`: γ; then, for the bytes of every instance and
    of every network transfer between two, the resource that would limit them alone: a kind of link,
    or `thread block`; `sharing`: the delay of instances by others on the same link; `waiting for
    the network`: the same for proxies, and earlier transfers of the same proxy; `waiting`: time
    without any progress.
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
    """Network transfers on a path. took, alpha, alone: f8[m] µs of each, of its α, of its bytes
    alone; kind: i4[m] the resource that limits those bytes (`KINDS`)."""

    took: F8
    alpha: F8
    alone: F8
    kind: I4


def _ways(run: Run, path: I8) -> _Ways:
    carried, costs, found = run.machine.transfers, run.request.costs, crossings(run, path)
    pair = carried.pair[found.transfer]
    pace, kind = _pairs_pace(run)
    alone = pace[pair] * carried.bytes_ahead()[found.transfer] * _sizes(run, path[found.after])
    return _Ways(found.end - found.begin, carried.alpha[pair] * costs.latency, alone, kind[pair])


def _sizes(run: Run, path: I8) -> F8:
    """Returns the bytes that each instance moves: f8[len(path)]."""
    primitive, batch = np.divmod(path, run.batches)
    return np.where(run.moves[primitive], run.bytes(primitive, batch), 0.0)


def _pairs_pace(run: Run) -> tuple[F8, I4]:
    """Returns the µs per byte of each pair alone, and the kind of the resource that limits it."""
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
    """A part of the critical path: its name, µs, and share, 0 to 1."""

    name: str
    us: float
    share: float

    @property
    def counts(self) -> bool:
        """Whether the part is large enough to mention."""
        return self.share > LEAST


def shares(parts: Mapping[str, float]) -> list[Part]:
    """Returns the parts of a `breakdown`, the longest first."""
    total = sum(parts.values()) or 1.0
    longest = sorted(parts.items(), key=lambda item: -item[1])
    return [Part(name, us, us / total) for name, us in longest]


def _pace(run: Run, p: I8) -> tuple[F8, I4]:
    """Returns the µs per byte of each primitive alone, and the kind of the resource that limits it
    (len(KINDS): its block)."""
    m = run.machine
    slow = m.weight / run.request.costs.efficiency / (m.capacity[m.uses.index] * BYTES_PER_US)
    faster = memory_in(m, run.request).faster[m.plan.rank_of()]
    pace, kind = m.move / faster, np.full(len(m.move), len(KINDS))
    owner = m.uses.owner()
    np.maximum.at(pace, owner, slow)
    sets = np.flatnonzero(slow >= pace[owner])
    kind[owner[sets]] = kinds(m.topology, m.resource)[m.uses.index[sets]]
    return pace[p], kind[p]
