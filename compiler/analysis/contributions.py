"""contributions: the symbolic run of a Program: the content of every (rank, chunk), as bitsets.

Chunks are independent, so each is run alone over one bitset per rank: R²/8 bytes of state, whatever
the number of chunks. `verify` uses the first violation, `lower` the reductions that complete a
value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.grouping import group
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8, U1
from hccc.ir.collective import Collective
from hccc.ir.program import TRANSFER, Op, Program

FIELDS = TRANSFER.names or ()
RRC = int(Op.RRC)
SRC, DST, STEP, CHUNK, OP = map(FIELDS.index, ("src", "dst", "step", "chunk", "op"))
OK, EMPTY_SOURCE, TWICE, EMPTY_TARGET, CLASH, MISSING = range(6)
_READ, _REDUCE, _WRITE = 1, 2, 3
_ONE = np.uint64(1)
EVERY, LISTED = -1, -2
Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class SymbolicResult:
    """The first violation of the run. `row`: the transfer, for MISSING the chunk; `clash`: the
    other row."""

    code: int
    row: int
    clash: int
    rank: int


class ChunkEnds(NamedTuple):
    """Where chunks start, and where they must end.

    start, target: i4[chunks] the rank, EVERY rank, or those LISTED for its row; per: chunks of a
    row; has, wants: b1[rows, ranks] those listed; sums: b1[rows] whether ranks have pieces of a
    sum; whole: i4[rows] the pieces of a whole value.
    """

    start: I4
    target: I4
    per: int
    has: B1
    wants: B1
    sums: B1
    whole: I4


class HeldPieces(NamedTuple):
    """The pieces of one chunk that ranks hold: their number, i4[ranks], and as bits, u8[ranks,
    words], which may be other than 0 in the words from begin to end, i4[ranks] each, only. A rank
    that holds all pieces has the number alone."""

    number: I4
    bits: Words
    begin: I4
    end: I4


@njit(inline="always")
def piece_of(e: ChunkEnds, chunk: int, rank: int) -> int:
    """Returns the number of the piece of `chunk` that `rank` starts with, 0 for a copy, or -1."""
    start = e.start[chunk]
    row = chunk // e.per
    if start != rank and start != EVERY and not (start == LISTED and e.has[row, rank]):
        return -1
    return rank if e.sums[row] else 0


@njit(inline="always")
def is_wanted(e: ChunkEnds, chunk: int, rank: int) -> bool:
    """Tells whether `rank` must end with `chunk`."""
    target = e.target[chunk]
    every, listed = target == EVERY, target == LISTED
    return bool(every or target == rank or (listed and e.wants[chunk // e.per, rank]))


@njit
def _clear(held: HeldPieces, rank: int) -> None:
    """Takes all pieces from `rank`."""
    for w in range(held.begin[rank], held.end[rank]):
        held.bits[rank, w] = 0
    held.begin[rank] = held.end[rank] = held.number[rank] = 0


@njit
def _touch(held: HeldPieces, seen: I4, rank: int, chunk: int, e: ChunkEnds) -> None:
    """Gives `rank` its initial contribution of `chunk` when the chunk first gets there."""
    if seen[rank] == chunk:
        return
    seen[rank] = chunk
    _clear(held, rank)
    piece = piece_of(e, chunk, rank)
    if piece >= 0:
        word = piece >> 6
        held.bits[rank, word] = _ONE << np.uint64(piece & 63)
        held.begin[rank], held.end[rank], held.number[rank] = word, word + 1, 1


@njit(inline="always")
def _access(stamp: I4, kind: I4, who: I4, rank: int, step: int, k: int, row: int) -> int:
    """Records an access; returns the row it clashes with in this step, or -1."""
    if stamp[rank] == step and (kind[rank] != k or k == _WRITE):
        return int(who[rank])
    if stamp[rank] != step:
        stamp[rank], kind[rank], who[rank] = step, k, row
    return -1


@njit
def _violation(held: HeldPieces, s: int, d: int, whole: int, reduce: bool) -> int:
    """Tells whether a transfer reads nothing, reduces into nothing, or adds a contribution twice.
    whole: how many pieces a whole value has."""
    if not held.number[s]:
        return EMPTY_SOURCE
    if not reduce:
        return OK
    if not held.number[d]:
        return EMPTY_TARGET
    if held.number[s] == whole or held.number[d] == whole:
        return TWICE
    overlap = np.uint64(0)
    for w in range(max(held.begin[s], held.begin[d]), min(held.end[s], held.end[d])):
        overlap |= held.bits[s, w] & held.bits[d, w]
    return TWICE if overlap else OK


@njit
def _apply(held: HeldPieces, s: int, d: int, whole: int, reduce: bool) -> None:
    """Moves or merges the contributions; of a whole value only their number is kept."""
    count = held.number[s] + (held.number[d] if reduce else 0)
    if not reduce or count == whole:
        _clear(held, d)
    if count < whole:
        begin, end = held.begin[s], held.end[s]
        for w in range(begin, end):
            held.bits[d, w] |= held.bits[s, w]
        if reduce:
            begin, end = min(begin, held.begin[d]), max(end, held.end[d])
        held.begin[d], held.end[d] = begin, end
    held.number[d] = count


@njit
def _missing(held: HeldPieces, seen: I4, chunk: int, e: ChunkEnds) -> int:
    """Returns the first rank that wants `chunk` and does not hold all of it, or -1."""
    target, whole = e.target[chunk], e.whole[chunk // e.per]
    lo, hi = (0, len(seen)) if target < 0 else (target, target + 1)
    for r in range(lo, hi):
        if not is_wanted(e, chunk, r):
            continue
        _touch(held, seen, r, chunk, e)
        if held.number[r] != whole:
            return r
    return -1


@njit
def _run(ptr: I8, rows: I4, table: I4, e: ChunkEnds, held: HeldPieces) -> tuple[int, int, int, int]:
    """Runs every chunk; returns (code, row or chunk, clashing row, rank)."""
    n_ranks = len(held.number)
    seen = np.full(n_ranks, -1, np.int32)
    stamp = np.full(n_ranks, -1, np.int32)
    kind, who = np.zeros(n_ranks, np.int32), np.zeros(n_ranks, np.int32)
    code, bad, other, where = OK, len(rows), -1, -1
    lost_chunk, lost_rank = -1, -1
    for c in range(len(ptr) - 1):
        stamp[:] = -1
        violation, whole = OK, e.whole[c // e.per]
        for k in range(ptr[c], ptr[c + 1]):
            i = rows[k]
            s, d, step, reduces = table[i, SRC], table[i, DST], table[i, STEP], table[i, OP] == RRC
            _touch(held, seen, s, c, e)
            _touch(held, seen, d, c, e)
            clash = _access(stamp, kind, who, s, step, _READ, i)
            at = s
            if clash < 0:
                at = d
                clash = _access(stamp, kind, who, d, step, _REDUCE if reduces else _WRITE, i)
            violation = CLASH if clash >= 0 else _violation(held, s, d, whole, reduces)
            if violation != OK:
                if i < bad:
                    code, bad, other = violation, i, clash
                    where = s if violation == EMPTY_SOURCE else at
                break
            _apply(held, s, d, whole, reduces)
        if violation == OK and lost_chunk < 0:
            lost_rank = _missing(held, seen, c, e)
            lost_chunk = c if lost_rank >= 0 else -1
    if code == OK and lost_chunk >= 0:
        return MISSING, lost_chunk, -1, lost_rank
    return code, bad, other, where


def columns(program: Program) -> I4:
    """Returns the transfers as plain numbers, i4[n, 6], so that the fields of a row lie
    together."""
    return program.transfers.view(np.int32).reshape(len(program), len(FIELDS))


def ends(c: Collective) -> ChunkEnds:
    """Returns where the chunks of a collective, whose result is known, start and must end."""
    if c.demand:
        d, listed = c.demand, np.full(c.n_chunks, LISTED, np.int32)
        return ChunkEnds(listed, listed, c.chunks_per_block, d.has, d.wants, d.sums, _whole(c))
    chunks = np.arange(c.n_chunks, dtype=np.int64)
    start = np.full(c.n_chunks, EVERY, np.int32)
    if not c.reduces:
        start = c.source_of(chunks).astype(np.int32)
    target = np.full(c.n_chunks, EVERY, np.int32)
    if not c.all_want:
        target = c.target_of(chunks).astype(np.int32)
    none, sums = np.zeros((1, 1), np.bool_), np.array([c.reduces])
    return ChunkEnds(start, target, c.n_chunks, none, none, sums, _whole(c))


def run(program: Program) -> SymbolicResult:
    """Runs `program` symbolically.

    The violation is the earliest in the table; a missing chunk is reported only when every transfer
    is sound. O(transfers · R/64 + chunks · R) time and O(R²/8) bytes beside the table at most;
    transfers · log R and pages of R rows where ranks next to each other reduce first.
    """
    c, t = program.collective, program.transfers
    ptr, rows = group(t["chunk"], c.n_chunks)
    count, begin, end = np.zeros((3, c.n_ranks), np.int32)
    bits = np.zeros((c.n_ranks, (c.n_ranks + 63) // 64 if c.reduces else 1), np.uint64)
    held = HeldPieces(count, bits, begin, end)  # memory that nobody writes is not there
    outcome = _run(ptr, rows, columns(program), ends(c), held)
    return SymbolicResult(*(int(x) for x in outcome))


@njit
def _count(ptr: I8, rows: I4, table: I4, n_ranks: int) -> U1:
    final = np.zeros(len(rows), np.uint8)
    held = np.empty(n_ranks, np.int32)
    for c in range(len(ptr) - 1):
        held[:] = 1
        for k in range(ptr[c], ptr[c + 1]):
            i = rows[k]
            s, d, reduces = table[i, SRC], table[i, DST], table[i, OP] == RRC
            held[d] = held[s] + (held[d] if reduces else 0)
            final[i] = reduces and held[d] == n_ranks
    return final


def completing(program: Program) -> U1:
    """Marks the transfers of a verified, reducing `program` that complete their destination's
    value.

    No contribution is ever added twice there, so counting them is enough. A custom collective has
    no marks (`Plan.averages`). O(transfers + chunks · R).
    """
    c = program.collective
    if c.demand:
        return np.zeros(len(program), np.uint8)
    ptr, rows = group(program.transfers["chunk"], c.n_chunks)
    return _count(ptr, rows, columns(program), c.n_ranks)


def carried(program: Program, row: int) -> list[int]:
    """Returns the ranks whose pieces transfer `row` brings of its chunk.

    O(transfers of the chunk).
    """
    c, t = program.collective, program.transfers
    chunk = int(t["chunk"][row])
    ranks = np.arange(c.n_ranks)
    held = {r: {r} for r in np.flatnonzero(c.holds(ranks, np.full_like(ranks, chunk))).tolist()}
    for i in np.flatnonzero(t["chunk"][:row] == chunk).tolist():
        src, dst, _, _, _, op = t[i].tolist()
        new = held.get(src, set())
        held[dst] = held.get(dst, set()) | new if op == RRC else new
    return sorted(held.get(int(t["src"][row]), set()))


def _whole(c: Collective) -> I4:
    """Returns how many pieces a whole value has: i4[1], or i4[blocks] of a demand."""
    if not c.demand:
        return np.array([c.n_ranks if c.reduces else 1], np.int32)
    return np.where(c.demand.sums, c.demand.has.sum(1), 1).astype(np.int32)


def full_sets(c: Collective) -> Words:
    """Returns the pieces of a whole value: u8[1, words], or u8[blocks, words] of a demand."""
    if not c.demand:
        return (full_set(c.n_ranks) if c.reduces else np.ones(1, np.uint64))[None]
    sums, width = c.demand.sums, (c.n_ranks + 63) // 64 * 64 if c.reduces else 64
    bits = np.zeros((len(sums), width), np.uint8)
    bits[~sums, 0] = 1
    if c.reduces:
        bits[sums, : c.n_ranks] = c.demand.has[sums]
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint64)


def full_set(n_ranks: int) -> Words:
    """Returns the bitset of all ranks: u8[ceil(R / 64)]."""
    bits = np.zeros((n_ranks + 63) // 64 * 64, np.uint8)
    bits[:n_ranks] = 1
    return np.packbits(bits, bitorder="little").view(np.uint64)
