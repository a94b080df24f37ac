"""mutate: one small change to a program, of the kinds that people and tools make.

A mutant usually is wrong, but need not be: `reference.is_correct` decides. Every mutant is a
well-formed Program (ranks, chunks and steps in range, nobody transfers to itself, `rrc` only where
the collective reduces), so that only `verify` can refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hccc.ir.program import Op, Program
from hccc.testing.grow import Choose, Row, program


@dataclass(frozen=True, slots=True, eq=False)
class Mutant:
    """`program` differs from `original` by `mutation`; `what` describes the place."""

    program: Program
    original: Program
    mutation: str
    what: str


Change = Callable[[list[Row], int, Program, Choose], list[Row]]


def mutate(original: Program, mutation: str, choose: Choose) -> Mutant:
    """Changes `original` by one `mutation` (a key of `MUTATIONS`) at a chosen transfer."""
    rows: list[Row] = [
        (int(t["src"]), int(t["dst"]), int(t["step"]), int(t["chunk"]), int(t["op"]))
        for t in original.transfers
    ]
    i = choose(len(rows) - 1)
    what = original.describe(i)
    changed = MUTATIONS[mutation](rows, i, original, choose)
    p = original
    made = program(p.collective, changed, p.gpus_per_node, p.nics_per_node, p.channels)
    return Mutant(made, original, mutation, what)


def applicable(p: Program) -> list[str]:
    """Lists the mutations that can change `p`."""
    names = list(MUTATIONS) if len(p) else []
    if not p.collective.reduces:
        names = [n for n in names if n != "swap recv and rrc"]
    if p.collective.n_ranks == 2:
        names = [n for n in names if not n.startswith("redirect")]
    return names if p.collective.n_chunks > 1 else [n for n in names if n != "shift chunk"]


def _drop(rows: list[Row], i: int, p: Program, choose: Choose) -> list[Row]:
    return rows[:i] + rows[i + 1 :]


def _duplicate(rows: list[Row], i: int, p: Program, choose: Choose) -> list[Row]:
    src, dst, step, chunk, op = rows[i]
    return [*rows, (src, dst, step + choose(3), chunk, op)]


def _other(p: Program, a: int, b: int, choose: Choose) -> int:
    free = [r for r in range(p.collective.n_ranks) if r not in (a, b)]
    return free[choose(len(free) - 1)]


def _redirect_source(rows: list[Row], i: int, p: Program, choose: Choose) -> list[Row]:
    src, dst, *rest = rows[i]
    rows[i] = (_other(p, src, dst, choose), dst, rest[0], rest[1], rest[2])
    return rows


def _redirect_destination(rows: list[Row], i: int, p: Program, choose: Choose) -> list[Row]:
    src, dst, *rest = rows[i]
    rows[i] = (src, _other(p, src, dst, choose), rest[0], rest[1], rest[2])
    return rows


def _turn_around(rows: list[Row], i: int, p: Program, choose: Choose) -> list[Row]:
    src, dst, *rest = rows[i]
    rows[i] = (dst, src, rest[0], rest[1], rest[2])
    return rows


def _swap_steps(rows: list[Row], i: int, p: Program, choose: Choose) -> list[Row]:
    j = choose(len(rows) - 1)
    a, b = rows[i], rows[j]
    rows[i], rows[j] = (*a[:2], b[2], *a[3:]), (*b[:2], a[2], *b[3:])
    return rows


def _swap_op(rows: list[Row], i: int, p: Program, choose: Choose) -> list[Row]:
    rows[i] = (*rows[i][:4], Op.RECV if rows[i][4] == Op.RRC else Op.RRC)
    return rows


def _shift_chunk(rows: list[Row], i: int, p: Program, choose: Choose) -> list[Row]:
    src, dst, step, chunk, op = rows[i]
    n = p.collective.n_chunks
    rows[i] = (src, dst, step, (chunk + 1 + choose(n - 2)) % n, op)
    return rows


def _shift_step(rows: list[Row], i: int, p: Program, choose: Choose) -> list[Row]:
    src, dst, step, chunk, op = rows[i]
    back, by = choose(1), 1 + choose(3)
    rows[i] = (src, dst, max(0, step - by) if back else step + by, chunk, op)
    return rows


MUTATIONS: dict[str, Change] = {
    "drop": _drop,
    "duplicate": _duplicate,
    "redirect source": _redirect_source,
    "redirect destination": _redirect_destination,
    "turn around": _turn_around,
    "swap steps": _swap_steps,
    "swap recv and rrc": _swap_op,
    "shift chunk": _shift_chunk,
    "shift step": _shift_step,
}
