"""place: gives every value a buffer, and adds the local copies that in- and out-of-place need.

- A chunk in its initial state is read from the send buffer (ResCCL §4.2), so out-of-place
  needs no copy before it begins.
- Its current value lives in the receive buffer if the rank wants the chunk, else in scratch.
- Data that lands in scratch memory keeps its slots, which come first there.
- A chunk that starts and ends at a rank untouched is copied to the receive buffer (out of place).
- In place, Alltoall and SendRecv overwrite a send slot with another chunk. Such slots are copied
  aside first (STAGE), and a primitive that overwrites the slot waits for that copy. In protocol LL
  a send waits for nobody and comes before all that overwrites: nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hccc.analysis.grouping import graph
from hccc.base.diagnostics import InternalError
from hccc.ir.arrays import I4, I8, U1, Csr, places_of, starts
from hccc.ir.choices import PlanProtocol
from hccc.ir.collective import Collective
from hccc.ir.primitives import Buffer, Guard, Operands, Primitives


def place(p: Primitives) -> Primitives:
    """Resolves the VALUE and START operands of `p`. O(operands log operands)."""
    c = p.dag.program.collective
    slots, counts = _scratch(p, c)
    p = replace(
        p,
        src=_placed(p.src, c, slots),
        dst=_placed(p.dst, c, slots),
        scratch_slots=counts,
    )
    p = _stage(p, c) if c.swaps_in_place else p
    return _own_copies(p, c)


def _key(c: Collective, rank: I4, chunk: I4) -> I8:
    return rank.astype(np.int64) * c.n_chunks + chunk


def _scratch(p: Primitives, c: Collective) -> tuple[tuple[I8, I4], I4]:
    """Returns scratch slots by (rank, chunk) key, numbered at each rank by first write, and slots
    per rank."""
    rank, chunk = p.dst.rank, p.dst.slot
    away = p.dst.buffer == Buffer.VALUE
    away[away] = ~c.wants(rank[away], chunk[away])
    keys, first = np.unique(_key(c, rank, chunk)[away], return_index=True)
    at_rank = (keys // c.n_chunks).astype(np.int32)
    order = np.lexsort((first, at_rank))
    counts = np.bincount(at_rank, minlength=c.n_ranks)
    slot = places_of(order, counts) + p.scratch_slots[at_rank]
    return (keys, slot.astype(np.int32)), (counts + p.scratch_slots).astype(np.int32)


def _placed(o: Operands, c: Collective, scratch: tuple[I8, I4]) -> Operands:
    """Returns the operands with VALUE and START resolved."""
    keys, slots = scratch
    buffer, slot = o.buffer.copy(), o.slot.copy()
    start, value = o.buffer == Buffer.START, o.buffer == Buffer.VALUE
    chunk = o.slot.astype(np.int64)
    buffer[start], slot[start] = Buffer.INPUT, c.input_slot(o.rank[start], chunk[start])
    home = value.copy()
    home[value] = c.wants(o.rank[value], chunk[value])
    buffer[home], slot[home] = Buffer.OUTPUT, c.output_slot(o.rank[home], chunk[home])
    away = value & ~home
    wanted = _key(c, o.rank[away], o.slot[away])
    at = np.searchsorted(keys, wanted)
    if not np.array_equal(keys[at[at < len(keys)]], wanted):
        raise InternalError("a value is read where nothing writes it")
    buffer[away], slot[away] = Buffer.SCRATCH, slots[at]
    return Operands(o.ptr, o.rank, buffer, slot)


def _own_copies(p: Primitives, c: Collective) -> Primitives:
    """Adds INPUT → OUTPUT copies of chunks that stay where they start; in a reduction, those of a
    rank that is alone."""
    if c.reduces and c.n_ranks > 1 and not c.demand:
        return p
    rank, chunk = _staying(c)
    written = p.dst.buffer == Buffer.OUTPUT
    width = c.n_chunks + 1
    done = np.isin(
        rank * width + c.output_slot(rank, chunk),
        p.dst.rank[written].astype(np.int64) * width + p.dst.slot[written],
    )
    rank, chunk = rank[~done], chunk[~done]
    source = Buffer.INPUT, c.input_slot(rank, chunk)
    target = Buffer.OUTPUT, c.output_slot(rank, chunk)
    # A rank that is alone may have to multiply what it has (`Plan.multiplies`).
    guard = Guard.ALWAYS if c.reduces or c.demand else Guard.OUT_OF_PLACE
    copies = _Copies(rank, chunk, source, target, guard, first=False)
    return _with_copies(p, copies, p.deps.owner(), p.deps.index)


def _staying(c: Collective) -> tuple[I8, I8]:
    """Returns the ranks and the whole chunks that they both start and must end with."""
    if c.demand:
        blocks, ranks = np.nonzero(c.demand.has & c.demand.wants & ~c.demand.sums[:, None])
        per = c.chunks_per_block
        chunks = blocks[:, None] * per + np.arange(per)
        return np.repeat(ranks, per), chunks.ravel()
    chunk = np.arange(c.n_chunks, dtype=np.int64)
    rank = np.zeros_like(chunk) if c.reduces else c.source_of(chunk)
    stays = c.wants(rank, chunk)
    return rank[stays], chunk[stays]


def _stage(p: Primitives, c: Collective) -> Primitives:
    """Copies aside the send slots whose memory, in place, is overwritten by another chunk."""
    width = max(c.input_blocks(0), c.output_blocks(0)) * c.chunks_per_block
    written = np.flatnonzero(p.dst.buffer == Buffer.OUTPUT)
    overwritten = p.dst.rank[written].astype(np.int64) * width + p.dst.slot[written]
    read = np.flatnonzero(p.src.buffer == Buffer.INPUT)
    needed = p.src.rank[read].astype(np.int64) * width + p.src.slot[read]
    both = np.zeros((2, c.n_ranks * width), np.bool_)  # by memory: np.unique takes a hash of each
    both[0, needed], both[1, overwritten] = True, True
    swapped = both[0] & both[1]
    staged = np.flatnonzero(swapped)
    if not len(staged):
        return p
    hit = swapped[needed]
    readers = p.src.owner()[read[hit]], np.searchsorted(staged, needed[hit])
    writers = _matching(p.dst.owner()[written], overwritten, staged)
    if p.protocol is PlanProtocol.LL:
        return _read_first(p, readers, writers, len(staged))
    buffer = p.src.buffer.copy()
    buffer[read[hit]] = Buffer.STAGE
    chunk = _lookup(needed, p.chunk[p.src.owner()[read]], staged)
    rank, slot = staged // width, staged % width
    slots = np.zeros(c.n_ranks, np.int32)
    np.maximum.at(slots, rank, slot + 1)
    p = replace(p, src=replace(p.src, buffer=buffer), stage_slots=slots)
    source, target = (Buffer.INPUT, slot), (Buffer.STAGE, slot)
    copies = _Copies(rank, chunk, source, target, Guard.IN_PLACE, first=True)
    m = len(staged)  # copies come first: what was row i is row m + i
    rows = np.concatenate([p.deps.owner() + m, readers[0] + m, writers[0] + m])
    values = np.concatenate([p.deps.index + m, readers[1], writers[1]])
    return _with_copies(p, copies, rows, values)


def _read_first(
    p: Primitives, readers: tuple[I4, I8], writers: tuple[I4, I8], n_slots: int
) -> Primitives:
    """Makes what overwrites a slot wait for all that read it. Each of the two: primitives, and the
    slots that they touch, numbered from 0."""
    reads = graph(readers[1], readers[0], n_slots).take(writers[1])
    rows, preds = np.repeat(writers[0], reads.counts()), reads.index
    if (preds >= rows).any():
        raise InternalError("a slot is read after a packet may have overwritten it")
    rows, preds = np.append(p.deps.owner(), rows), np.append(p.deps.index, preds)
    return replace(p, deps=graph(rows, preds, len(p)))


def _lookup(keys: I8, values: I4, wanted: I8) -> I4:
    """Returns the value of each wanted key (every one occurs in `keys`)."""
    order = np.argsort(keys, kind="stable")
    return values[order][np.searchsorted(keys[order], wanted)]


def _matching(rows: I4, keys: I8, staged: I8) -> tuple[I4, I8]:
    hit = np.isin(keys, staged)
    return rows[hit], np.searchsorted(staged, keys[hit])


@dataclass(frozen=True, slots=True)
class _Copies:
    """Local copies from `source` to `target`, each a buffer and i8[m] slots. rank, chunk: i8[m];
    first: whether they run before all other primitives, or else after them."""

    rank: I8
    chunk: I8 | I4
    source: tuple[Buffer, I8]
    target: tuple[Buffer, I8]
    guard: Guard
    first: bool

    def __len__(self) -> int:
        return len(self.rank)

    def join(self, old: I8 | U1, new: I8 | U1) -> I8:
        """Joins a column of the other primitives with that of the copies."""
        return np.concatenate([new, old] if self.first else [old, new])

    def operands(self, old: Operands, added: tuple[Buffer, I8]) -> Operands:
        """Adds to `old` the one operand that each copy has at this end."""
        ptr = starts(self.join(old.counts(), np.ones(len(self), np.int64)))
        buffer = np.full(len(self), added[0], np.uint8)
        columns = (old.rank, self.rank), (old.buffer, buffer), (old.slot, added[1])
        return Operands(ptr, *(self.join(*pair) for pair in columns))


def _with_copies(p: Primitives, copies: _Copies, rows: I8 | I4, values: I8 | I4) -> Primitives:
    """Returns `p` with `copies`. rows, values: the dependencies of all, numbered as in the
    result."""
    m, n = len(copies), len(p)
    if not m:
        return p
    last = 0 if copies.first or not n else int(p.sub[-1])
    none = np.zeros(m, np.int64)
    return replace(
        p,
        owner=copies.join(p.owner, copies.rank),
        chunk=copies.join(p.chunk, copies.chunk),
        sub=copies.join(p.sub, np.full(m, last)),
        final=copies.join(p.final, none),
        guard=copies.join(p.guard, np.full(m, copies.guard)),
        src=copies.operands(p.src, copies.source),
        dst=copies.operands(p.dst, copies.target),
        deps=graph(rows, values, n + m),
        tasks=Csr(starts(copies.join(p.tasks.counts(), none)), p.tasks.index),
    )
