"""The symbolic run of a Program: which contributions every (rank, chunk) holds, as bitsets.

Chunks are independent, so each is run alone over one bitset per rank: R²/8 bytes of state,
whatever the number of chunks. `verify` reads the first violation, `lower` which reductions
complete a value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hccc.ir.arrays import I4, I8, U1
from hccc.ir.program import Program
from hccc.passes.grouping import group

OK, EMPTY_SOURCE, TWICE, EMPTY_TARGET, CLASH, MISSING = range(6)
_READ, _REDUCE, _WRITE = 1, 2, 3
_ONE = np.uint64(1)
Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the run found. `row`: the transfer, for MISSING the chunk; `clash`: the other row."""

    code: int
    row: int
    clash: int
    rank: int


@njit(cache=True)
def _touch(state: Words, seen: I4, rank: int, chunk: int, start: int, single: bool) -> None:
    """Gives `rank` its initial contribution of `chunk` when the chunk first gets there."""
    if seen[rank] == chunk:
        return
    seen[rank] = chunk
    state[rank] = 0
    if start == rank or start < 0:
        state[rank, 0 if single else rank >> 6] = _ONE << np.uint64(0 if single else rank & 63)


@njit(cache=True)
def _access(stamp: I4, kind: I4, who: I4, rank: int, step: int, k: int, row: int) -> int:
    """Notes an access; returns the row it clashes with in this step, or -1 (DESIGN §3)."""
    if stamp[rank] == step and (kind[rank] != k or k == _WRITE):
        return int(who[rank])
    if stamp[rank] != step:
        stamp[rank], kind[rank], who[rank] = step, k, row
    return -1


@njit(cache=True)
def _violation(state: Words, s: int, d: int, reduce: bool) -> int:
    """Whether a transfer reads nothing, reduces into nothing, or adds a contribution twice."""
    some_s = some_d = overlap = False
    for w in range(state.shape[1]):
        some_s |= state[s, w] != 0
        some_d |= state[d, w] != 0
        overlap |= (state[s, w] & state[d, w]) != 0
    if not some_s:
        return EMPTY_SOURCE
    if reduce and not some_d:
        return EMPTY_TARGET
    return TWICE if reduce and overlap else OK


@njit(cache=True)
def _apply(state: Words, s: int, d: int, reduce: bool, full: Words) -> bool:
    """Moves or merges the contributions; returns whether the destination is now complete."""
    complete = True
    for w in range(state.shape[1]):
        state[d, w] = (state[d, w] | state[s, w]) if reduce else state[s, w]
        complete &= state[d, w] == full[w]
    return complete


@njit(cache=True)
def _missing(
    state: Words, seen: I4, chunk: int, start: int, target: int, full: Words, single: bool
) -> int:
    """The first rank that wants `chunk` and does not hold all of it, or -1."""
    lo, hi = (0, len(seen)) if target < 0 else (target, target + 1)
    for r in range(lo, hi):
        _touch(state, seen, r, chunk, start, single)
        for w in range(state.shape[1]):
            if state[r, w] != full[w]:
                return r
    return -1


@njit(cache=True)
def _run(
    ptr: I8, rows: I4, src: I4, dst: I4, step: I4, op: I4, start: I4, target: I4, full: Words,
    n_ranks: int, single: bool, final: U1,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Runs every chunk; fills `final`; returns (code, row or chunk, clashing row, rank)."""
    state = np.zeros((n_ranks, len(full)), np.uint64)
    seen = np.full(n_ranks, -1, np.int32)
    stamp = np.full(n_ranks, -1, np.int32)
    kind, who = np.zeros(n_ranks, np.int32), np.zeros(n_ranks, np.int32)
    code, bad, other, where = OK, len(rows), -1, -1
    lost_chunk, lost_rank = -1, -1
    for c in range(len(ptr) - 1):
        stamp[:] = -1
        found = OK
        for k in range(ptr[c], ptr[c + 1]):
            i = rows[k]
            s, d = src[i], dst[i]
            _touch(state, seen, s, c, start[c], single)
            _touch(state, seen, d, c, start[c], single)
            clash = _access(stamp, kind, who, s, step[i], _READ, i)
            at = s
            if clash < 0:
                at = d
                clash = _access(stamp, kind, who, d, step[i], _REDUCE if op[i] else _WRITE, i)
            found = CLASH if clash >= 0 else _violation(state, s, d, op[i] == 1)
            if found != OK:
                if i < bad:
                    code, bad, other = found, i, clash
                    where = s if found == EMPTY_SOURCE else at
                break
            final[i] = _apply(state, s, d, op[i] == 1, full) and not single and op[i] == 1
        if found == OK and lost_chunk < 0:
            lost_rank = _missing(state, seen, c, start[c], target[c], full, single)
            lost_chunk = c if lost_rank >= 0 else -1
    if code == OK and lost_chunk >= 0:
        return MISSING, lost_chunk, -1, lost_rank
    return code, bad, other, where


def run(program: Program) -> tuple[Outcome, U1]:
    """Runs `program` symbolically; also final u1[n]: rrc i completes its destination's value.

    The violation is the earliest in the table; a missing chunk is reported only when every
    transfer is sound. O(transfers · R/64 + chunks · R) time (R²/64 more where all ranks want
    all chunks), O(R²/8) bytes beside the table.
    """
    c, t = program.collective, program.transfers
    chunks = np.arange(c.n_chunks, dtype=np.int64)
    start = np.full(c.n_chunks, -1, np.int32)
    if not c.reduces:
        start = c.source_of(chunks).astype(np.int32)
    target = np.full(c.n_chunks, -1, np.int32)
    if not c.all_want:
        target = c.target_of(chunks).astype(np.int32)
    src, dst, step, op = (np.ascontiguousarray(t[k]) for k in ("src", "dst", "step", "op"))
    ptr, rows = group(np.ascontiguousarray(t["chunk"]), c.n_chunks)
    final = np.zeros(len(t), np.uint8)
    full = full_set(c.n_ranks) if c.reduces else np.ones(1, np.uint64)
    found = _run(
        ptr, rows, src, dst, step, op, start, target, full, c.n_ranks, not c.reduces, final
    )
    return Outcome(*(int(x) for x in found)), final


def full_set(n_ranks: int) -> Words:
    """The bitset of all ranks: u8[ceil(R / 64)]."""
    bits = np.zeros((n_ranks + 63) // 64 * 64, np.uint8)
    bits[:n_ranks] = 1
    return np.packbits(bits, bitorder="little").view(np.uint64)
