"""Primitives: the work of thread blocks, in one total order, before blocks are assigned.

A primitive is *reduceCopy(k sources → d destinations)* of one chunk, executed by its `owner`
rank (kernel-protocol §1). A put has one own source and remote destinations, a get-reduce its own
value first and then remote sources; a send writes into a queue, a receive reads from one.
Sources are combined left to right: that order determines the result's bits.

`lower` makes them, `fuse` merges them, `place` turns VALUE and START operands into buffers and
adds local copies, `allocate` assigns thread blocks (`Blocks`), `sync` makes the Plan.

Invariants
1. Row order is a linear extension: every entry of `deps[i]` is less than i.
2. All operands of a primitive hold the same chunk; at least one source and one destination.
3. `tasks` of all rows together hold every task once per primitive it needs (direct 1, staged 2,
   mixed either); local copies hold none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from hccc.ir.arrays import B1, I4, I8, U1, Csr, Ragged, entries, frozen
from hccc.ir.choices import Bits, PlanProtocol
from hccc.ir.dag import Dag
from hccc.ir.transport import Transport as Transport


class Buffer(IntEnum):
    """The memory that holds an operand at its rank. VALUE and START do not occur after `place`."""

    INPUT = 0  # send buffer
    OUTPUT = 1  # receive buffer
    SCRATCH = 2  # hccc's own memory
    STAGE = 3  # the send buffer out of place, a copy of it in scratch in place
    QUEUE = 4  # rank is the queue's id, slot the message's index in it; LL: a packet slot each
    VALUE = 5  # the chunk's current value; slot is the chunk
    START = 6  # the chunk as it was at the start; slot is the chunk


class Guard(IntEnum):
    """The calls in which a primitive moves data; it waits and posts in all."""

    ALWAYS = 0
    IN_PLACE = 1
    OUT_OF_PLACE = 2


@dataclass(frozen=True, slots=True, eq=False)
class Operands(Ragged):
    """Rows of (rank, buffer, slot): rank i4[m], buffer u1[m], slot i4[m]."""

    rank: I4
    buffer: U1
    slot: I4

    def take(self, rows: I4 | I8) -> Operands:
        """Returns the given rows, in the given order."""
        ptr, pick = entries(self.ptr, rows)
        return Operands(ptr, self.rank[pick], self.buffer[pick], self.slot[pick])


@dataclass(frozen=True, slots=True, eq=False)
class Queues:
    """Queue q carries `length[q]` messages a micro-batch from src to dst.

    `data_flag` counts messages sent (in dst's memory), `credit_flag` messages consumed (in
    src's memory). All i4[Q]. In protocol LL there are no counters, and both columns are 0: every
    message has a packet slot of its own in dst's memory.
    """

    src: I4
    dst: I4
    length: I4
    data_flag: I4
    credit_flag: I4

    def __post_init__(self) -> None:
        for name in ("src", "dst", "length", "data_flag", "credit_flag"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int32))

    def __len__(self) -> int:
        return len(self.src)

    def between(self, memory_domain: I4) -> B1:
        """Tells which queues are network queues, with ends in two memory domains (i4[n_ranks]):
        b1[Q]."""
        apart: B1 = memory_domain[self.src] != memory_domain[self.dst]
        return apart


def no_queues() -> Queues:
    """Returns the empty queues of a direct plan."""
    return Queues(*[np.zeros(0, np.int32)] * 5)


def crossing(src: Operands, dst: Operands, queues: Queues, rank: I4) -> tuple[I4, I4, I4]:
    """Finds all operands in another rank's memory: (primitive, from rank, to rank), i4[m] each.

    rank: where each primitive runs, i4[n]. A message counts at its sender, whose store crosses the
    link, not at the receiver's load.
    """
    parts = []
    for operands, reads in ((src, True), (dst, False)):
        row = operands.owner()
        queue = operands.buffer == Buffer.QUEUE
        away = ~queue & (operands.rank != rank[row])
        here, there = rank[row[away]], operands.rank[away]
        parts.append((row[away], there, here) if reads else (row[away], here, there))
        if not reads:
            q = operands.rank[queue]
            parts.append((row[queue], queues.src[q], queues.dst[q]))
    row, first, last = (np.concatenate(column) for column in zip(*parts, strict=True))
    return row, first, last


@dataclass(frozen=True, slots=True, eq=False)
class Primitives:
    """n primitives in execution order.

    owner, chunk, sub (sub-pipeline): i4[n]; final, guard: u1[n] (final: the result is complete,
    `avg` divides here); src, dst: Operands[n]; deps: Csr[n] of earlier primitives;
    tasks: Csr[n] of Dag tasks. `queues` has flags only after `sync`.
    """

    dag: Dag
    transport: Transport
    owner: I4
    chunk: I4
    sub: I4
    final: U1
    guard: U1
    src: Operands
    dst: Operands
    deps: Csr
    tasks: Csr
    queues: Queues
    scratch_slots: I4  # i4[n_ranks], chunks of scratch at each rank: received ones, then `place`'s
    stage_slots: I4  # i4[n_ranks], chunks of staged send buffer at each rank; set by `place`
    protocol: PlanProtocol = PlanProtocol.SIMPLE
    multicast: Bits | None = None  # whether a switch may do what is of all ranks; as of Plan

    def __post_init__(self) -> None:
        for name in ("owner", "chunk", "sub", "scratch_slots", "stage_slots"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int32))
        for name in ("final", "guard"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.uint8))

    def __len__(self) -> int:
        return len(self.owner)


def memory_domain(p: Primitives) -> I4:
    """Returns the memory domain of every rank, as the Plan has it: i4[n_ranks]; direct and LL are
    one host."""
    if p.transport is Transport.DIRECT or p.protocol is PlanProtocol.LL:
        return np.zeros(p.dag.program.collective.n_ranks, np.int32)
    return p.dag.topology.dense_memory_domain()


def at_all_ranks(operands: Operands, n_ranks: int) -> B1:
    """Tells which primitives have, of these operands, one place of a user buffer at every rank,
    which a multicast address stands for: b1[n]."""
    row = operands.owner()
    first = operands.ptr[:-1][row]
    alike = (operands.buffer == operands.buffer[first]) & (operands.slot == operands.slot[first])
    alike &= (operands.buffer == Buffer.INPUT) | (operands.buffer == Buffer.OUTPUT)
    whole = (operands.counts() == n_ranks) & (n_ranks > 1)
    whole[row[~alike]] = False
    mine = whole[row]
    pairs = np.unique(row[mine].astype(np.int64) * n_ranks + operands.rank[mine])
    there: B1 = whole & (np.bincount(pairs // n_ranks, minlength=len(whole)) == n_ranks)
    return there


def network_puts(dst: Operands, owner: I4, memory_domain: I4) -> B1:
    """Tells which destinations are memory of another domain than the primitive's: b1[entries of
    dst].

    owner: i4[n], where each primitive runs; memory_domain: i4[n_ranks].
    """
    memory = dst.buffer != Buffer.QUEUE
    there = memory_domain[np.where(memory, dst.rank, 0)]
    away: B1 = memory & (there != memory_domain[owner[dst.owner()]])
    return away


def put_places(src: Operands, dst: Operands, owner: I4, of_src: I4, of_dst: I4) -> I4:
    """Returns a property of the place that each primitive's network puts are carried from: i4[n].

    The place is the first destination in memory of the primitive's own rank, or else its only
    source. of_src, of_dst: i4[entries of src, of dst], the property of each operand; owner: i4[n],
    where each primitive runs.
    """
    row = dst.owner()
    own = (dst.buffer != Buffer.QUEUE) & (dst.rank == owner[row])
    place: I4 = of_src[src.ptr[:-1]].copy()
    at = np.flatnonzero(own)[::-1]
    place[row[at]] = of_dst[at]  # of several, the first is written last
    return place


def check(p: Primitives) -> list[str]:
    """Lists the invariants that `p` breaks, in words; empty when it is sound. O(n log n)."""
    problems = []
    if (p.deps.index >= p.deps.owner()).any():
        problems.append("a primitive comes before one that it depends on")
    if (p.src.counts() < 1).any() or (p.dst.counts() < 1).any():
        problems.append("a primitive has no source or no destination")
    times = np.bincount(p.tasks.index, minlength=len(p.dag))
    least, most = 1 + (p.transport is Transport.STAGED), 2 - (p.transport is Transport.DIRECT)
    if ((times < least) | (times > most)).any() or len(times) > len(p.dag):
        problems.append("a task is missing from the primitives, or done too often")
    for operands in (p.src, p.dst):
        value = operands.buffer >= Buffer.VALUE
        if (operands.slot[value] != p.chunk[operands.owner()[value]]).any():
            problems.append("an operand holds another chunk than its primitive moves")
    return problems


def lines(p: Primitives) -> Iterator[str]:
    """Prints the Primitives, one per line."""
    yield f"# {p.dag.program.name}: {len(p)} primitives, {p.transport.name.lower()}"
    for i in range(len(p)):
        yield f"{i}: {primitive_text(p, i)}"


def primitive_text(p: Primitives, i: int) -> str:
    """Writes a primitive as `rank 1 chunk 3 sub 2: OUTPUT[3]@0 VALUE[3]@1 → VALUE[3]@1 after 4
    7`."""
    src, dst = (_operands_text(operands, i) for operands in (p.src, p.dst))
    guard = "" if p.guard[i] == Guard.ALWAYS else f"  {Guard(int(p.guard[i])).name.lower()}"
    after = " ".join(map(str, p.deps.row(i).tolist()))
    where = f"rank {p.owner[i]} chunk {p.chunk[i]} sub {p.sub[i]}"
    return f"{where}: {src} → {dst}{guard}{f'  after {after}' if after else ''}"


def _operands_text(operands: Operands, i: int) -> str:
    return " ".join(
        f"{Buffer(int(operands.buffer[k])).name}[{operands.slot[k]}]@{operands.rank[k]}"
        for k in range(int(operands.ptr[i]), int(operands.ptr[i + 1]))
    )
