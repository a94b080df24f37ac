"""schedule: transfers of chunks, step by step, and the check of such a schedule.

A *demand* says which ranks have each chunk, and which must have it in the end (HeteCCL §5.1: pre
and post). Reductions are demands in reverse: a ReduceScatter is an AllGather backwards over links
that are turned round, so all schedules are of copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hccc.ir.arrays import B1, I4, I8, frozen
from hccc.synth.greedy.chunked import Chunked


@dataclass(frozen=True, slots=True, eq=False)
class CopyDemand:
    """pre, post: b1[chunks, ranks] the ranks that have each chunk, and that must have it;
    exclusive: no rank sends a chunk to two ranks in one step. Backwards that is HeteCCL's Eq. 8: no
    two sums are written to one place at once."""

    pre: B1
    post: B1
    exclusive: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "pre", frozen(self.pre, np.bool_))
        object.__setattr__(self, "post", frozen(self.post, np.bool_))


def gather_all(owner: I4, n: int, *, exclusive: bool = False) -> CopyDemand:
    """Returns the demand that all ranks must have every chunk. owner: i4[chunks] the rank that has
    it."""
    pre = np.zeros((len(owner), n), np.bool_)
    pre[np.arange(len(owner)), owner] = True
    return CopyDemand(pre, np.ones_like(pre), exclusive)


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Transfers by ascending step: chunk, src, dst, step i4[m]. Steps begin at 0, and what a rank
    gets in one it may send from the next on."""

    chunk: I4
    src: I4
    dst: I4
    step: I4

    def __post_init__(self) -> None:
        order = np.argsort(np.asarray(self.step), kind="stable")
        for name in ("chunk", "src", "dst", "step"):
            object.__setattr__(self, name, frozen(np.asarray(getattr(self, name))[order], np.int32))

    def __len__(self) -> int:
        return len(self.chunk)

    def reversed(self) -> Schedule:
        """Returns the last step first, from receivers to senders: of copies, sums."""
        return Schedule(self.chunk, self.dst, self.src, self.steps - 1 - self.step)

    @property
    def steps(self) -> int:
        """N_step."""
        return int(self.step[-1]) + 1 if len(self) else 0


def busiest(s: Schedule, c: Chunked) -> float:
    """Returns the steps that the busiest resource needs: its chunks over its capacity."""
    return float((load(s, c) / c.capacity).max(initial=0.0))


def load(s: Schedule, c: Chunked) -> I8:
    """Returns the chunks that each resource carries in all steps: i8[R]."""
    row = c.use[s.src.astype(np.int64) * c.n + s.dst]
    return np.bincount(row[row >= 0], minlength=len(c.capacity))


class Violation(NamedTuple):
    """A fault of a schedule. step: -1 at the end; equation: of HeteCCL (2 a rank sends a chunk that
    it does not have, 4 and 5 too much at once, 6 a rank gets a chunk again, 8 it sends a chunk
    twice at once against `exclusive`), or 0 for a chunk that is missing in the end; resource,
    chunk, rank: -1 where none is at fault; excess: chunks too many."""

    step: int
    equation: int
    resource: int = -1
    chunk: int = -1
    rank: int = -1
    excess: int = 0


def violations(s: Schedule, c: Chunked, demand: CopyDemand) -> list[Violation]:
    """Returns all faults of `s`, by ascending step; chunks missing in the end come last.

    O(transfers · longest route + chunks · ranks) and sorting.
    """
    found = [*_capacity(s, c), *_causality(s, demand), *_repeated(s, demand)]
    if demand.exclusive:
        found += _twice(s, demand)
    has = demand.pre.copy()
    has[s.chunk, s.dst] = True
    missing = np.argwhere(demand.post & ~has)
    ends = [Violation(-1, 0, chunk=int(k), rank=int(v)) for k, v in missing]
    return sorted(found) + ends


def _capacity(s: Schedule, c: Chunked) -> list[Violation]:
    row = c.use[s.src.astype(np.int64) * c.n + s.dst]
    used = row >= 0
    resources = len(c.capacity)
    key = (s.step[:, None].astype(np.int64) * resources + row)[used]
    keys, count = np.unique(key, return_counts=True)
    excess = count - c.capacity[keys % resources]
    found = [
        Violation(
            int(k // resources),
            5 if c.network[k % resources] else 4,
            resource=int(k % resources),
            excess=int(e),
        )
        for k, e in zip(keys[excess > 0], excess[excess > 0], strict=True)
    ]
    nowhere = np.flatnonzero(row[:, 0] == -2)
    return found + [Violation(int(s.step[i]), 4, rank=int(s.dst[i]), excess=1) for i in nowhere]


def _causality(s: Schedule, demand: CopyDemand) -> list[Violation]:
    """Returns transfers of chunks that the sender does not have yet."""
    never = np.iinfo(np.int32).max
    since = np.where(demand.pre, 0, never)
    np.minimum.at(since, (s.chunk, s.dst), s.step + 1)
    early = np.flatnonzero(since[s.chunk, s.src] > s.step)
    return [Violation(int(s.step[i]), 2, chunk=int(s.chunk[i]), rank=int(s.src[i])) for i in early]


def _repeated(s: Schedule, demand: CopyDemand) -> list[Violation]:
    """Returns transfers of chunks that the receiver has."""
    n = demand.pre.shape[1]
    key = s.chunk.astype(np.int64) * n + s.dst
    first = np.zeros(len(s), np.bool_)
    first[np.unique(key, return_index=True)[1]] = True
    again = np.flatnonzero(~first | demand.pre[s.chunk, s.dst])
    return [Violation(int(s.step[i]), 6, chunk=int(s.chunk[i]), rank=int(s.dst[i])) for i in again]


def _twice(s: Schedule, demand: CopyDemand) -> list[Violation]:
    """Returns ranks that send a chunk to several ranks in one step."""
    chunks, n = demand.pre.shape
    key = (s.step.astype(np.int64) * chunks + s.chunk) * n + s.src
    keys, count = np.unique(key, return_counts=True)
    return [
        Violation(
            int(k // n // chunks), 8, chunk=int(k // n % chunks), rank=int(k % n), excess=int(e) - 1
        )
        for k, e in zip(keys[count > 1], count[count > 1], strict=True)
    ]
