"""reference: the meaning of a Program and of a collective, in plain Python and NumPy.

Nothing here is fast and nothing is shared with the passes: dictionaries by (rank, chunk), one step
after the other, reads before writes. Three independent statements of the same truth:

- `is_correct`: the step rule and the postcondition (docs/transfer-language.md), on sets of
  contributions;
- `run`: the same execution on real data;
- `expected`: the result each collective defines, with no program at all.

Data is in chunks: `inputs[r]` is rank r's send buffer, shape (input_blocks(r) · S, ...), S being
`chunks_per_block`; the axes after the first are the elements of a chunk. Outputs likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from hccc.base.dtypes import OPS
from hccc.ir.collective import Collective, OpType
from hccc.ir.program import Op, Program

Data = NDArray[Any]
Place = tuple[int, int]  # (rank, chunk)
Transfer = tuple[int, int, int, int, bool]  # src, dst, step, chunk, is rrc

REDUCE_OPS = tuple(op for op in OPS if op != "premul_sum")  # which takes scalars, too
COMBINE: dict[str, Callable[[Data, Data], Data]] = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": lambda a, b: np.logical_and(a, b).astype(a.dtype),
    "lor": lambda a, b: np.logical_or(a, b).astype(a.dtype),
}


def steps(program: Program) -> Iterator[list[Transfer]]:
    """Yields the transfers of each step, in program order."""
    rows = [
        (t["src"], t["dst"], t["step"], t["chunk"], t["op"] == Op.RRC)
        for t in program.transfers[["src", "dst", "step", "chunk", "op"]]
    ]
    plain = [(int(s), int(d), int(at), int(c), bool(rrc)) for s, d, at, c, rrc in rows]
    for _, together in groupby(sorted(plain, key=lambda t: t[2]), key=lambda t: t[2]):
        yield list(together)


def is_correct(program: Program) -> bool:
    """Tells whether `program` obeys the step rule and performs its collective."""
    c = program.collective
    held = {place: frozenset([_piece(c, *place)]) for place in _places(c, c.holds)}
    pieces = dict[int, frozenset[int]]()
    for (_, chunk), own in held.items():
        pieces[chunk] = pieces.get(chunk, own) | own
    for together in steps(program):
        if not (_keeps_step_rule(together) and _apply_sets(held, together)):
            return False
    wanted = _places(c, c.wants)
    if not c.reduces:
        return all(held.get(place) for place in wanted)
    return all(held.get(place) == pieces[place[1]] for place in wanted)


def _piece(c: Collective, rank: int, chunk: int) -> int:
    """Returns the number of what a rank has of a chunk: of copies one number for all."""
    copies = c.demand is not None and not c.demand.sums[chunk // c.chunks_per_block]
    return -1 if copies else rank


def _places(c: Collective, which: Callable[..., Any]) -> list[Place]:
    rank, chunk = np.divmod(np.arange(c.n_ranks * c.n_chunks), c.n_chunks)
    chosen = which(rank, chunk)
    return list(zip(rank[chosen].tolist(), chunk[chosen].tolist(), strict=True))


def _keeps_step_rule(together: list[Transfer]) -> bool:
    """Tells whether each (rank, chunk) is read by many, or reduced into by many, or written by one
    recv."""
    uses: dict[Place, list[str]] = {}
    for src, dst, _, chunk, rrc in together:
        uses.setdefault((src, chunk), []).append("read")
        uses.setdefault((dst, chunk), []).append("rrc" if rrc else "recv")
    return all(len(set(kinds)) == 1 and kinds.count("recv") <= 1 for kinds in uses.values())


def _apply_sets(held: dict[Place, frozenset[int]], together: list[Transfer]) -> bool:
    """Moves contributions; returns False if one is read before it exists or is added twice."""
    none: frozenset[int] = frozenset()
    read = [held.get((src, chunk), none) for src, _, _, chunk, _ in together]
    for (_, dst, _, chunk, rrc), value in zip(together, read, strict=True):
        here = held.get((dst, chunk), none)
        if not value or (rrc and (not here or here & value)):
            return False
        held[dst, chunk] = here | value if rrc else value
    return True


def run(program: Program, inputs: Sequence[Data], op: str, dtype: DTypeLike) -> list[Data]:
    """Executes `program`, which must be correct, on data; returns the outputs of every rank.

    op: one of `REDUCE_OPS` (ignored by collectives that do not reduce). Values are combined two at
    a time in `dtype`, so floating-point inputs should have sums exact in it (`exact_inputs`).
    """
    c, held = program.collective, dict[Place, Data]()
    for rank, buffer in enumerate(inputs):
        slots = np.arange(len(buffer))
        for chunk, data in zip(
            c.input_chunk(rank + 0 * slots, slots).tolist(), buffer, strict=True
        ):
            held[rank, chunk] = data.astype(dtype)
    for together in steps(program):
        read = [held[src, chunk] for src, _, _, chunk, _ in together]
        for (_, dst, _, chunk, rrc), value in zip(together, read, strict=True):
            held[dst, chunk] = COMBINE[op](held[dst, chunk], value) if rrc else value
    shape = np.shape(inputs[c.root])[1:]
    return [_output(c, rank, held, op, shape, dtype) for rank in range(c.n_ranks)]


def _output(
    c: Collective, rank: int, held: dict[Place, Data], op: str, shape: tuple[int, ...], dtype: Any
) -> Data:
    slots = np.arange(c.output_blocks(rank) * c.chunks_per_block)
    out = np.empty((len(slots), *shape), dtype)
    for slot, chunk in enumerate(c.output_chunk(rank + 0 * slots, slots).tolist()):
        value = held[rank, chunk]
        out[slot] = average(value, c.n_ranks) if op == "avg" and c.reduces else value
    return out


def average(total: Data, n_ranks: int) -> Data:
    """Divides a sum over ranks by their number: integers divide as in C, towards zero."""
    if np.issubdtype(total.dtype, np.integer):
        mean = np.sign(total) * (np.abs(total) // n_ranks)
    else:
        mean = total / np.asarray(n_ranks, total.dtype)
    return np.asarray(mean, total.dtype)


def rounded(total: Data, dtype: np.dtype[Any]) -> Data:
    """Rounds to nearest even once: NumPy and ml_dtypes go from float64 to short floats by float32,
    of which this sets the last bit where it is inexact."""
    if total.dtype != np.float64 or dtype.itemsize > 2:
        return np.asarray(total.astype(dtype))
    with np.errstate(over="ignore"):
        near = total.astype(np.float32)
    inexact = (near.astype(np.float64) != total) & np.isfinite(near)
    away = inexact & (np.abs(near.astype(np.float64)) > np.abs(total))
    bits = near.view(np.uint32) - away
    return np.asarray((bits | inexact).astype(np.uint32).view(np.float32).astype(dtype))


def expected(c: Collective, inputs: Sequence[Data], op: str, dtype: DTypeLike) -> list[Data]:
    """Returns every rank's output as `c` defines it: NCCL's definitions over whole buffers."""
    if c.demand:
        return [_demanded(c, r, inputs, op, dtype) for r in range(c.n_ranks)]
    ranks, per = range(c.n_ranks), c.chunks_per_block
    x = [np.asarray(a).astype(dtype) for a in inputs]

    def block(a: Data, i: int) -> Data:
        return a[i * per : (i + 1) * per]

    def reduced() -> Data:
        total = x[0]
        for a in x[1:]:
            total = COMBINE[op](total, a)
        return average(total, c.n_ranks) if op == "avg" else total

    nothing = np.empty((0, *np.shape(x[c.root])[1:]), dtype)
    results: dict[OpType, Callable[[int], Data]] = {
        OpType.ALLREDUCE: lambda r: reduced(),
        OpType.REDUCE: lambda r: reduced() if r == c.root else nothing,
        OpType.REDUCESCATTER: lambda r: block(reduced(), r),
        OpType.BROADCAST: lambda r: x[c.root],
        OpType.ALLGATHER: lambda r: np.concatenate(x),
        OpType.GATHER: lambda r: np.concatenate(x) if r == c.root else nothing,
        OpType.SCATTER: lambda r: block(x[c.root], r),
        OpType.ALLTOALL: lambda r: np.concatenate([block(a, r) for a in x]),
        OpType.SENDRECV: lambda r: x[(r - 1) % c.n_ranks],
    }
    return [results[c.op](r) for r in ranks]


def _demanded(c: Collective, rank: int, inputs: Sequence[Data], op: str, dtype: DTypeLike) -> Data:
    """Returns a rank's output of a demand."""
    demand, per = c.demand, c.chunks_per_block
    assert demand is not None
    found = [np.empty((0, *np.shape(inputs[0])[1:]), dtype)]
    for block in range(len(demand)):
        if demand.wants[block, rank]:
            pieces = []
            for r in np.flatnonzero(demand.has[block]).tolist():
                at = int(np.count_nonzero(demand.has[:block, r])) * per
                pieces.append(np.asarray(inputs[r][at : at + per]).astype(dtype))
            total = pieces[0]
            for piece in pieces[1:] if demand.sums[block] else ():
                total = COMBINE[op](total, piece)
            found.append(total)
    return np.concatenate(found)


def exact_inputs(
    c: Collective, dtype: DTypeLike, shape: tuple[int, ...] = (1,), *, seed: int = 0
) -> list[Data]:
    """Returns send buffers that differ per rank, slot and element, whose sums are exact in `dtype`.

    shape: of one chunk. (Products are exact where they fit; prefer integers, which wrap alike.)
    """
    limit = max(2, _largest_exact(np.dtype(dtype)) // c.n_ranks)
    rng = np.random.default_rng(seed)
    if c.demand:  # ranks that have a copy have the same
        size = (c.n_ranks, c.n_chunks, *shape)
        data, chunk, rank = rng.integers(0, limit, size), np.arange(c.n_chunks), range(c.n_ranks)
        sums = c.demand.sums[chunk // c.chunks_per_block]
        own = [np.where(sums, r, c.source_of(chunk)) for r in rank]
        there = [c.holds(np.full_like(chunk, r), chunk) for r in rank]
        return [data[own[r], chunk][there[r]].astype(dtype) for r in rank]
    slots = [c.input_blocks(r) * c.chunks_per_block for r in range(c.n_ranks)]
    return [rng.integers(0, limit, (n, *shape)).astype(dtype) for n in slots]


def _largest_exact(dtype: np.dtype[Any]) -> int:
    """Returns the largest n such that 0..n are all exact in `dtype`, at most 2**24."""
    if np.issubdtype(dtype, np.integer):
        return min(1 << 24, int(np.iinfo(dtype).max))
    return min(1 << 24, 2 << int(ml_dtypes.finfo(dtype).nmant))  # type: ignore[no-untyped-call]
