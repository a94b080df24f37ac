"""redundant: the transfers of a right program that nobody needs.

    transfer(0, 1, 0, 0, recv)
    transfer(2, 1, 5, 0, recv)   # W201 when rank 1 holds the same by then
    transfer(1, 3, 6, 0, recv)   # W202 when nothing ever comes of chunk 0 at rank 3

Chunks are independent. Forwards, a (rank, chunk) is the exclusive or of a number for each
contribution it holds: equal numbers are equal contents, since a right program adds nothing twice
(the chance of an error is 2^-64 a transfer). Backwards, a (rank, chunk) is needed while something
that is wanted at the end comes of it. A program without the transfers found here is as right as
with them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.contributions import (
    DST,
    OP,
    RRC,
    SRC,
    ChunkEnds,
    columns,
    ends,
    is_wanted,
    piece_of,
)
from hccc.analysis.grouping import group
from hccc.base.diagnostics import Problem
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, U1
from hccc.ir.hashing import GOLDEN, mixed
from hccc.ir.program import Program

NEEDED, HELD, UNUSED = range(3)
MOST_SHOWN = 4  # lines of the program, for each of the two warnings
CODES = {HELD: "W201", UNUSED: "W202"}
TEXTS = {
    HELD: "{} brings rank {dst} what it holds of chunk {chunk} already",
    UNUSED: "{}: what it brings rank {dst} of chunk {chunk} is never used",
}
HELP = {
    HELD: "leave it out, or send something else",
    UNUSED: "leave it out: the result is the same without it",
}


def redundant(program: Program) -> tuple[Problem, ...]:
    """Returns warnings W201 and W202 about a program that `verify` accepted, for a few of its
    lines.

    W201: a recv brings a rank the contents that it holds already. W202: nothing that the collective
    wants comes of a transfer's data. Each names its first transfer with its loop values, and the
    number of transfers of the same line. A collective of which nobody knows the result
    has none. O(transfers + chunks), and one evaluation of the text a warning.
    """
    use = uses(program)
    return tuple(
        _warning(program, kind, rows, more)
        for kind in (HELD, UNUSED)
        for rows, more in _lines(program, np.flatnonzero(use == kind))
    )


def uses(program: Program) -> U1:
    """Returns NEEDED, HELD or UNUSED for every transfer of a right program: u1[n]."""
    c, t = program.collective, program.transfers
    if not c.known:
        return np.zeros(len(t), np.uint8)
    ptr, rows = group(t["chunk"], c.n_chunks)
    numbers = mixed(np.arange(1, c.n_ranks + 1, dtype=np.uint64) * GOLDEN)
    found: U1 = _uses(ptr, rows, columns(program), ends(c), numbers)
    return found


@njit
def _uses(ptr: I8, rows: I4, table: I4, e: ChunkEnds, numbers: NDArray[np.uint64]) -> U1:
    """Computes `uses`."""
    use = np.zeros(len(rows), np.uint8)
    held = np.zeros(len(numbers), np.uint64)
    needed = np.zeros(len(numbers), np.bool_)
    seen = np.full(len(numbers), -1, np.int32)
    for c in range(len(ptr) - 1):
        for k in range(ptr[c], ptr[c + 1]):
            i = rows[k]
            s, d = table[i, SRC], table[i, DST]
            for r in (s, d):
                if seen[r] != c:
                    seen[r] = c
                    piece = piece_of(e, c, r)
                    held[r] = numbers[piece] if piece >= 0 else np.uint64(0)
                    needed[r] = is_wanted(e, c, r)
            if table[i, OP] == RRC:
                held[d] ^= held[s]
            elif held[d] == held[s]:
                use[i] = HELD
            else:
                held[d] = held[s]
        for k in range(ptr[c + 1] - 1, ptr[c] - 1, -1):
            i = rows[k]
            s, d = table[i, SRC], table[i, DST]
            if use[i] == HELD:
                continue
            if not needed[d]:
                use[i] = UNUSED
                continue
            if table[i, OP] != RRC:
                needed[d] = False
            needed[s] = True
    return use


def _lines(program: Program, rows: I8) -> list[tuple[I8, int]]:
    """Returns the rows of the first lines that have any; the last with the number of further
    lines."""
    line = program.transfers["line"][rows]
    order = list(dict.fromkeys(line.tolist()))
    shown = order[:MOST_SHOWN]
    left = len(order) - len(shown)
    return [(rows[line == x], left * (x == shown[-1])) for x in shown]


def _warning(program: Program, kind: int, rows: I8, more: int) -> Problem:
    first = int(rows[0])
    t = program.transfers[first]
    message = TEXTS[kind].format(program.describe(first), dst=t["dst"], chunk=t["chunk"])
    if len(rows) > 1:
        message += f" (as do {len(rows):,} transfers of this line)"
    if more:
        message += f"; {more:,} more lines have such transfers"
    return Problem(CODES[kind], message, program.span(first), help=HELP[kind], severity="warning")
