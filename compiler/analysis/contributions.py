"""contributions: the symbolic run of a Program: the content of every (rank, chunk), as bitsets.

Chunks are independent, so each is run alone over one bitset per rank: R²/8 bytes of state, whatever
the number of chunks. `verify` uses the first violation, `lower` the reductions that complete a
value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.grouping import group
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, U1
from hccc.ir.collective import Collective
from hccc.ir.program import TRANSFER, Op, Program

FIELDS = TRANSFER.names or ()
RRC = int(Op.RRC)
SRC, DST, STEP, CHUNK, OP = map(FIELDS.index, ("src", "dst", "step", "chunk", "op"))
OK, EMPTY_SOURCE, TWICE, EMPTY_TARGET, CLASH, MISSING = range(6)
_READ, _REDUCE, _WRITE = 1, 2, 3
_ONE = np.uint64(1)
Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class SymbolicResult:
    """The first violation of the run. `row`: the transfer, for MISSING the chunk; `clash`: the
    other row."""

    code: int
    row: int
    clash: int
    rank: int


@njit(inline="always")
def _touch(state: Words, seen: I4, rank: int, chunk: int, start: int, single: bool) -> None:
    """Gives `rank` its initial contribution of `chunk` when the chunk first gets there."""
    if seen[rank] == chunk:
        return
    seen[rank] = chunk
    state[rank] = 0
    if start == rank or start < 0:
        state[rank, 0 if single else rank >> 6] = _ONE << np.uint64(0 if single else rank & 63)


@njit(inline="always")
def _access(stamp: I4, kind: I4, who: I4, rank: int, step: int, k: int, row: int) -> int:
    """Records an access; returns the row it clashes with in this step, or -1."""
    if stamp[rank] == step and (kind[rank] != k or k == _WRITE):
        return int(who[rank])
    if stamp[rank] != step:
        stamp[rank], kind[rank], who[rank] = step, k, row
    return -1


@njit
def _violation(source: Words, target: Words, reduce: bool) -> int:
    """Tells whether a transfer reads nothing, reduces into nothing, or adds a contribution
    twice."""
    some_s = some_d = overlap = np.uint64(0)
    for w in range(len(source)):
        some_s |= source[w]
        some_d |= target[w]
        overlap |= source[w] & target[w]
    if not some_s:
        return EMPTY_SOURCE
    if reduce and not some_d:
        return EMPTY_TARGET
    return TWICE if reduce and overlap else OK


@njit
def _apply(source: Words, target: Words, reduce: bool) -> None:
    """Moves or merges the contributions."""
    if not reduce:
        target[:] = 0
    for w in range(len(source)):
        target[w] |= source[w]


@njit
def _missing(
    state: Words, seen: I4, chunk: int, start: int, target: int, full: Words, single: bool
) -> int:
    """Returns the first rank that wants `chunk` and does not hold all of it, or -1."""
    lo, hi = (0, len(seen)) if target < 0 else (target, target + 1)
    for r in range(lo, hi):
        _touch(state, seen, r, chunk, start, single)
        lacking, held = np.uint64(0), state[r]
        for w in range(len(full)):
            lacking |= held[w] ^ full[w]
        if lacking:
            return r
    return -1


@njit
def _run(
    ptr: I8, rows: I4, table: I4, start: I4, target: I4, full: Words, n_ranks: int, single: bool
) -> tuple[int, int, int, int]:
    """Runs every chunk; returns (code, row or chunk, clashing row, rank)."""
    state = np.zeros((n_ranks, len(full)), np.uint64)
    seen = np.full(n_ranks, -1, np.int32)
    stamp = np.full(n_ranks, -1, np.int32)
    kind, who = np.zeros(n_ranks, np.int32), np.zeros(n_ranks, np.int32)
    code, bad, other, where = OK, len(rows), -1, -1
    lost_chunk, lost_rank = -1, -1
    for c in range(len(ptr) - 1):
        stamp[:] = -1
        violation = OK
        for k in range(ptr[c], ptr[c + 1]):
            i = rows[k]
            s, d, step, reduces = table[i, SRC], table[i, DST], table[i, STEP], table[i, OP] == RRC
            _touch(state, seen, s, c, start[c], single)
            _touch(state, seen, d, c, start[c], single)
            clash = _access(stamp, kind, who, s, step, _READ, i)
            at = s
            if clash < 0:
                at = d
                clash = _access(stamp, kind, who, d, step, _REDUCE if reduces else _WRITE, i)
            violation = CLASH if clash >= 0 else _violation(state[s], state[d], reduces)
            if violation != OK:
                if i < bad:
                    code, bad, other = violation, i, clash
                    where = s if violation == EMPTY_SOURCE else at
                break
            _apply(state[s], state[d], reduces)
        if violation == OK and lost_chunk < 0:
            lost_rank = _missing(state, seen, c, start[c], target[c], full, single)
            lost_chunk = c if lost_rank >= 0 else -1
    if code == OK and lost_chunk >= 0:
        return MISSING, lost_chunk, -1, lost_rank
    return code, bad, other, where


def columns(program: Program) -> I4:
    """Returns the transfers as plain numbers, i4[n, 6], so that the fields of a row lie
    together."""
    return program.transfers.view(np.int32).reshape(len(program), len(FIELDS))


def ends(c: Collective) -> tuple[I4, I4]:
    """Returns the rank where each chunk starts, and the rank that must end with it: i4[chunks]
    each.

    The start is -1 if every rank has a piece, the end is -1 if every rank wants the chunk.
    """
    chunks = np.arange(c.n_chunks, dtype=np.int64)
    start = np.full(c.n_chunks, -1, np.int32)
    if not c.reduces:
        start = c.source_of(chunks).astype(np.int32)
    target = np.full(c.n_chunks, -1, np.int32)
    if not c.all_want:
        target = c.target_of(chunks).astype(np.int32)
    return start, target


def run(program: Program) -> SymbolicResult:
    """Runs `program` symbolically.

    The violation is the earliest in the table; a missing chunk is reported only when every transfer
    is sound. O(transfers · R/64 + chunks · R) time (R²/64 more where all ranks want all chunks),
    O(R²/8) bytes beside the table.
    """
    c, t = program.collective, program.transfers
    start, target = ends(c)
    ptr, rows = group(t["chunk"], c.n_chunks)
    full = full_set(c.n_ranks) if c.reduces else np.ones(1, np.uint64)
    outcome = _run(ptr, rows, columns(program), start, target, full, c.n_ranks, not c.reduces)
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

    No contribution is ever added twice there, so counting them is enough. O(transfers + chunks ·
    R).
    """
    c = program.collective
    ptr, rows = group(program.transfers["chunk"], c.n_chunks)
    return _count(ptr, rows, columns(program), c.n_ranks)


def carried(program: Program, row: int) -> list[int]:
    """Returns the ranks whose pieces transfer `row` brings of its chunk.

    O(transfers of the chunk).
    """
    c, t = program.collective, program.transfers
    chunk = int(t["chunk"][row])
    start = int(ends(c)[0][chunk])
    held = {r: {r} for r in (range(c.n_ranks) if start < 0 else (start,))}
    for i in np.flatnonzero(t["chunk"][:row] == chunk).tolist():
        src, dst, _, _, _, op = t[i].tolist()
        new = held.get(src, set())
        held[dst] = held.get(dst, set()) | new if op == RRC else new
    return sorted(held.get(int(t["src"][row]), set()))


def full_set(n_ranks: int) -> Words:
    """Returns the bitset of all ranks: u8[ceil(R / 64)]."""
    bits = np.zeros((n_ranks + 63) // 64 * 64, np.uint8)
    bits[:n_ranks] = 1
    return np.packbits(bits, bitorder="little").view(np.uint64)
