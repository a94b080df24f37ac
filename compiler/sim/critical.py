"""critical: the chain of instances that the end of a Run waited for.

From the instance that ended last, back to what let it go: the one that it waited for, or else
the one before it in its thread block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I4, I8
from hccc.ir.topology import BYTES_PER_US, F8
from hccc.jit.compiled import njit
from hccc.network.resource_names import KINDS, kinds
from hccc.sim.simulate import Run

LEAST = 5e-4  # of the path


def critical_path(run: Run) -> I8:
    """The instances (p · batches + m) of the critical path, first to last. O(its length)."""
    if not len(run.end):
        return np.zeros(0, np.int64)
    plan = run.machine.plan
    last = int(np.argmax(run.end))
    block = plan.block_of()
    first, stop = plan.tb_ptr[:-1][block], plan.tb_ptr[1:][block]
    return _back(last, run.cause, first, stop, run.batches, run.window)[::-1]


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

    `latency`: α and what the runtime adds; `reduction`: γ; then, for the bytes of every instance,
    what alone would have set their pace: a kind of link, or `thread block`; `sharing`: how much
    longer they took because others used the same link; `waiting`: nothing was done for it.
    """
    m = run.machine
    p, last = path // run.batches, path % run.batches == run.batches - 1
    size = np.where(last, run.last, run.payload)
    size = np.where(run.moves[p], size, 0.0)
    reduction = m.combine[p] * size
    fixed = np.where(run.moves[p], m.alpha[p] * run.request.costs.latency, 0.0)
    fixed += np.where(run.moves[p], run.request.costs.step + run.request.costs.interpret, 0.0)
    pace, kind = _pace(run, p)
    alone = pace * size
    took = run.end[path] - run.ready[path]
    parts_us = {"latency": float(fixed.sum()), "reduction": float(reduction.sum())}
    for k in np.unique(kind):
        name = KINDS[k] if k < len(KINDS) else "thread block"
        parts_us[name] = float(alone[kind == k].sum())
    parts_us["sharing"] = float((took - fixed - reduction - alone).sum())
    parts_us["waiting"] = float(run.end[path].max(initial=0.0) - took.sum())
    return {name: max(us, 0.0) for name, us in parts_us.items() if us > 1e-9 or name == "latency"}


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
    pace, kind = m.move.copy(), np.full(len(m.move), len(KINDS))
    owner = m.uses.owner()
    np.maximum.at(pace, owner, slow)
    sets = np.flatnonzero(slow >= pace[owner])
    kind[owner[sets]] = kinds(m.topology, m.resource)[m.uses.index[sets]]
    return pace[p], kind[p]
