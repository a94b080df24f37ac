"""Libraries of all collectives for few ranks, one transfer a pair: what ranks run here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hccc.ir.collective import ROOTED, OpType
from hccc.ir.program import Program
from tests.emit import plans

Row = tuple[int, int, int, int, int, int]
COPY, REDUCE = 0, 1


def _pairs(n: int) -> Iterator[tuple[int, int, int]]:
    """Yields (step, source, destination)."""
    for k in range(1, n):
        for s in range(n):
            yield k - 1, s, (s + k) % n


def _rows(op: OpType, n: int, root: int) -> tuple[Sequence[Row], int]:
    """Returns the transfers of a collective, and its number of chunks."""
    match op:
        case OpType.ALLGATHER:
            return [(s, d, k, s, 1, COPY) for k, s, d in _pairs(n)], n
        case OpType.REDUCESCATTER:
            return [(s, d, k, d, 1, REDUCE) for k, s, d in _pairs(n)], n
        case OpType.ALLREDUCE:
            gathered = [(s, d, k + n, s, 1, COPY) for k, s, d in _pairs(n)]
            return [*_rows(OpType.REDUCESCATTER, n, root)[0], *gathered], n
        case OpType.ALLTOALL:
            return [(s, d, k, s * n + d, 1, COPY) for k, s, d in _pairs(n)], n * n
        case OpType.BROADCAST:
            return [(s, d, k, 0, 1, COPY) for k, s, d in _pairs(n) if s == root], 1
        case OpType.REDUCE:
            return [(s, d, k, 0, 1, REDUCE) for k, s, d in _pairs(n) if d == root], 1
        case OpType.GATHER:
            return [(s, d, k, s, 1, COPY) for k, s, d in _pairs(n) if d == root], n
        case _:
            return [(s, d, k, d, 1, COPY) for k, s, d in _pairs(n) if s == root], n


def environment(n: int, place: Path, *, gathers: bool = False) -> dict[str, str]:
    """Writes the kernels of groups of up to n ranks, and returns the variables that have only these
    run. gathers: with Allgatherv, else that goes by messages."""
    places = [str(_emitted(size, place, gathers)) for size in range(2, n + 1)]
    return {"HCCC_LIBRARIES": os.pathsep.join(places), "HCCC_STANDARD": "0"}


def _emitted(n: int, folder: Path, gathers: bool) -> Path:
    """Writes the kernels of all collectives of n ranks, each in a directory of its own."""
    place = folder / str(n)
    place.mkdir(exist_ok=True)
    whole = (OpType.ALLREDUCE, OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.ALLTOALL)
    wanted = [(op, 0) for op in whole] + [(op, r) for op in sorted(ROOTED) for r in range(n)]
    for op, root in wanted:
        rows, chunks = _rows(op, n, root)
        name = f"{op.value.lower()}_{n}" + (f"_{root}" if op in ROOTED else "")
        made: Program = plans.program(name, op, n, rows, chunks=chunks, root=root)
        plans.written(plans.compiled(made), place / name)
        uneven_too = (OpType.ALLTOALL, OpType.REDUCESCATTER)
        if op in uneven_too or (gathers and op is OpType.ALLGATHER):
            blocks = replace(made.collective, uneven=True)
            uneven = replace(made, name=f"{op.value.lower()}v_{n}", collective=blocks)
            plans.written(plans.compiled(uneven), place / uneven.name)
    return place
