"""verify: checks that the Program computes its collective, or names the transfer that fails.

Runs the Program symbolically (`contributions`), and on a violation replays the chunk concerned in
plain Python to name the cause (kernel-protocol §6).
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.contributions import (
    CLASH,
    EMPTY_SOURCE,
    EMPTY_TARGET,
    MISSING,
    OK,
    TWICE,
    SymbolicResult,
    run,
)
from hccc.base.diagnostics import InternalError, Note, Problem, UserError
from hccc.ir.collective import Collective
from hccc.ir.program import Op, Program

_SHOWN_RANKS = 8


def verify(program: Program) -> Program:
    """Returns `program` if it is right.

    Complexity: see `contributions.run`; 2.1 million transfers over 1,024 ranks take well under a
    second.

    Raises:
        UserError: E201-E205 with the transfer, and the one it clashes with.
    """
    outcome = run(program)
    if outcome.code == OK:
        return program
    raise UserError(_problem(program, outcome))


def _problem(p: Program, o: SymbolicResult) -> Problem:
    if o.code == MISSING:
        return _missing(p, o.row, o.rank)
    explain = {
        CLASH: _clash,
        EMPTY_SOURCE: _empty_source,
        EMPTY_TARGET: _empty_target,
        TWICE: _twice,
    }
    if o.code not in explain:
        raise InternalError(f"unknown outcome {o}")
    return explain[o.code](p, o)


def _clash(p: Program, o: SymbolicResult) -> Problem:
    t, other = p.transfers[o.row], p.transfers[o.clash]
    return Problem(
        "E204",
        f"rank {o.rank} chunk {t['chunk']} is {_deed(t, o.rank)} and {_deed(other, o.rank)} "
        f"in the same step {t['step']}: {p.describe(o.row)}",
        p.span(o.row),
        (p.note(o.clash, "it clashes with {}"),),
        "within a step a chunk at a rank may be read by many, or reduced into by many, or "
        "written by one recv; give one of the two another step",
    )


def _deed(t: object, rank: int) -> str:
    row = t  # a row of the transfer table
    if row["src"] == rank:  # type: ignore[index]
        return "read"
    return "reduced into" if row["op"] == Op.RRC else "written"  # type: ignore[index]


def _empty_source(p: Program, o: SymbolicResult) -> Problem:
    t = p.transfers[o.row]
    later = [
        i for i in _of_chunk(p, int(t["chunk"])) if i > o.row and p.transfers[i]["dst"] == o.rank
    ]
    notes = (p.note(later[0], "it arrives there only with {}"),) if later else ()
    start = _starts_at(p.collective, int(t["chunk"]))
    return Problem(
        "E201",
        f"rank {o.rank} has nothing of chunk {t['chunk']} to send at step {t['step']}: "
        f"{p.describe(o.row)}",
        p.span(o.row),
        notes,
        f"in {p.collective.name} chunk {t['chunk']} starts at {start}; "
        "it must reach a rank in an earlier step than the one it is read in",
    )


def _empty_target(p: Program, o: SymbolicResult) -> Problem:
    t = p.transfers[o.row]
    return Problem(
        "E202",
        f"rank {o.rank} has nothing of chunk {t['chunk']} to reduce into: {p.describe(o.row)}",
        p.span(o.row),
        (),
        "use recv where the destination holds no piece of the chunk",
    )


def _twice(p: Program, o: SymbolicResult) -> Problem:
    t = p.transfers[o.row]
    held, brought = _replayed(p, int(t["chunk"]), o.row)
    shared = sorted(held[int(t["src"])] & held[int(t["dst"])])
    notes = []
    via = brought.get((int(t["dst"]), shared[0]))
    if via is None:
        notes.append(Note(f"rank {t['dst']} holds its own piece from the start"))
    else:
        notes.append(p.note(via, f"rank {t['dst']} got the piece of rank {shared[0]} from {{}}"))
    return Problem(
        "E203",
        f"the piece of {_ranks(shared)} would be added twice to chunk {t['chunk']} at rank "
        f"{t['dst']}: {p.describe(o.row)}",
        p.span(o.row),
        tuple(notes),
        "every rank's piece must be reduced into a value once; use recv to replace a value",
    )


def _missing(p: Program, chunk: int, rank: int) -> Problem:
    held, _ = _replayed(p, chunk, len(p))
    want = set(_pieces(p.collective, chunk).values())
    have = held[rank]
    lacking = sorted(want - have)
    into = [i for i in _of_chunk(p, chunk) if p.transfers[i]["dst"] == rank]
    what = (
        f"holds nothing of chunk {chunk}"
        if not have
        else f"lacks the piece of {_ranks(lacking)} in chunk {chunk}"
    )
    span = p.span(into[-1]) if into else (p.origin.header("OpType") if p.origin else None)
    notes = (p.note(into[-1], "the last transfer of it to that rank is {}"),) if into else ()
    return Problem(
        "E205",
        f"at the end rank {rank} {what}, which {p.collective.name} wants there",
        span,
        notes,
        f"chunk {chunk} starts at {_starts_at(p.collective, chunk)}; bring it to rank {rank}",
    )


def _of_chunk(p: Program, chunk: int) -> list[int]:
    return [int(i) for i in (p.transfers["chunk"] == chunk).nonzero()[0]]


def _pieces(c: Collective, chunk: int) -> dict[int, int]:
    """Returns the piece that each rank starts with, by the first rank that has it."""
    ranks = np.arange(c.n_ranks)
    start = np.flatnonzero(c.holds(ranks, np.full_like(ranks, chunk))).tolist()
    copies = c.demand is not None and not c.demand.sums[chunk // c.chunks_per_block]
    return {rank: start[0] if copies else rank for rank in start}


def _starts_at(c: Collective, chunk: int) -> str:
    found = sorted(_pieces(c, chunk))
    return "every rank" if len(found) == c.n_ranks > 1 else _ranks(found)


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN_RANKS]))
    more = f" and {len(ranks) - _SHOWN_RANKS} more" if len(ranks) > _SHOWN_RANKS else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _replayed(
    p: Program, chunk: int, end: int
) -> tuple[dict[int, set[int]], dict[tuple[int, int], int]]:
    """Replays one chunk up to row `end`: the pieces each rank holds, and the row that brought each
    piece."""
    start = _pieces(p.collective, chunk)
    held = {r: {start[r]} if r in start else set[int]() for r in range(p.collective.n_ranks)}
    brought: dict[tuple[int, int], int] = {}
    for i in _of_chunk(p, chunk):
        if i >= end:
            break
        t = p.transfers[i]
        s, d = int(t["src"]), int(t["dst"])
        new = set(held[s])
        for piece in new - held[d]:
            brought[d, piece] = i
        held[d] = held[d] | new if t["op"] == Op.RRC else new
    return held, brought
