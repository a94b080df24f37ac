"""result: executing the Plan gives the collective's result at every rank (kernel-protocol §6).

The same symbolic run as `verify`, over the Plan's memory instead of (rank, chunk): it shows that
scheduling, fusing, placing and allocating changed nothing. Because `race` holds, any one order
the Plan allows stands for all of them. Runs in place and out of place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.components import Components, components
from hccc.analysis.contributions import full_sets
from hccc.analysis.execution_order import execution_order
from hccc.analysis.locations import Locations, locate
from hccc.analysis.waits import enforced, how, name
from hccc.base.diagnostics import InternalError, UserError, fail
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, U1
from hccc.ir.plan import Plan
from hccc.proofs.proof import Proof

Words = NDArray[np.uint64]
STATE_BYTES = 1 << 29  # how much of the bitsets is held at once
OK, EMPTY, MIXED, TWICE, EARLY, LATE, OTHER = range(7)
_WHY = {
    EMPTY: "reads memory that holds nothing yet",
    MIXED: "combines two different chunks",
    TWICE: "adds a contribution that is already in the value",
    EARLY: "is marked as completing a value that is not complete",
    LATE: "combines or completes a value that was already complete",
    OTHER: "moves another chunk than the plan says, and so perhaps another length",
}


def result(plan: Plan) -> Proof:
    """Proves that `plan` computes its collective; it must have passed `deadlock` and `race`.

    Kernels take the length that a primitive moves from its `chunk`, so that must be the chunk it
    moves; `plan_check` has checked that every slot on its path is as long. Where nobody knows the
    result, chunks all have one length, and the proof is only that nothing is read before it is
    written.

    O(operands · R/64) time. Memory: the bitsets of one component at a time (`components`), mostly
    R²/8 bytes; where they do not fit `STATE_BYTES`, in several runs over ranges of words.

    Raises:
        UserError E306: a primitive combines wrong values; E307: a receive slot ends wrong.
    """
    order = execution_order(plan, enforced(plan))
    unknown = not plan.collective.known
    where: Locations | None = None
    for in_place in plan.modes:
        where = locate(plan, in_place=in_place)
        proved = _nothing_empty if unknown else _prove
        proved(plan, where, order, "in place" if in_place else "out of place")
    if where is None:
        raise InternalError("a plan that serves no call")
    if unknown:
        claim = "nothing is read before it is written; more only a custom collective's author knows"
        return Proof("result", claim, {"locations": where.total})
    detail: dict[str, int | str] = {
        "receive slots": int((where.want >= 0).sum()),
        "locations": where.total,
    }
    claim = f"every rank ends with the collective's result, {how(plan)}"
    if plan.unusual_sums:
        claim += f"; {plan.unusual_sums}"
    return Proof("result", claim, detail)


class _Stated(NamedTuple):
    """The Plan's statements on each primitive. chunk: i4[P]; final: u1[P]; position: i4[P], its
    place in the order of execution."""

    chunk: I4
    final: U1
    position: I4


class _Range(NamedTuple):
    """The words of the bitsets that one run covers, from word `lo`.

    full: u8[rows, words] of a complete value; sums: b1[rows] whether values are sums, with a bit
    for each rank; per: chunks of a row; marked: whether primitives say where sums are complete.
    """

    lo: int
    full: Words
    sums: B1
    per: int
    marked: bool


class _Values(NamedTuple):
    """The values in the locations of one component. bits: u8[locations, words]; chunk:
    i4[locations], or -1 for nothing; complete: u1[locations]."""

    bits: Words
    chunk: I4
    complete: U1


def _nothing_empty(plan: Plan, where: Locations, order: I4, how: str) -> None:
    """Raises E306 unless every read is of memory that is written or held something at the start."""
    i = _first_empty(order, where, where.start >= 0)
    if i >= 0:
        raise fail("E306", f"{how}, {name(plan, i)} {_WHY[EMPTY]}")


@njit
def _first_empty(order: I4, where: Locations, written: B1) -> int:
    """Returns the first primitive in `order` that reads a location not `written`, or -1."""
    for i in order:
        if not where.active[i]:
            continue
        for x in where.src[where.src_ptr[i] : where.src_ptr[i + 1]]:
            if not written[x]:
                return int(i)
        for x in where.dst[where.dst_ptr[i] : where.dst_ptr[i + 1]]:
            written[x] = True
    return -1


def _prove(plan: Plan, where: Locations, order: I4, how: str) -> None:
    c = plan.collective
    full, sums = full_sets(c), np.array([c.reduces and plan.n_ranks > 1])  # alone: the whole
    per, marked = c.n_chunks, c.demand is None
    if c.demand:
        sums, per = c.demand.sums, c.chunks_per_block
    split = components(plan, where, order)
    size = max(1, split.largest())
    width = full.shape[1]
    words = max(1, min(width, STATE_BYTES // (8 * size)))
    position = np.empty(len(plan), np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    stated = _Stated(plan.chunk, plan.final, position)
    for lo in range(0, width, words):
        seen = _Range(lo, full[:, lo : lo + words], sums, per, marked)
        code, i = _execute(split, where, stated, seen, size)
        if code > 0:
            raise fail("E306", f"{how}, {name(plan, int(i))} {_WHY[int(code)]}")
        if i >= 0:
            raise _wrong_end(plan, where, int(i), how)


def _wrong_end(plan: Plan, where: Locations, location: int, how: str) -> UserError:
    writer = plan.dst.owner()[where.dst == location]
    last = f"; it is last written by {name(plan, int(writer[-1]))}" if len(writer) else ""
    return fail(
        "E307",
        f"{how}, the receive slot that wants chunk {where.want[location]} ends without all of "
        f"it{last}",
    )


@njit
def begin(bits: Words, where: Locations, location: int, lo: int, reduces: bool) -> None:
    """Sets `bits` to the value of a location at the start: its words [lo, lo + len(bits))."""
    bits[:] = 0
    bit = where.start_rank[location] if reduces else 0
    if where.start[location] >= 0 and lo <= bit >> 6 < lo + len(bits):
        bits[(bit >> 6) - lo] = np.uint64(1) << np.uint64(bit & 63)


@njit
def _combine(sources: I4, local: I4, values: _Values, value: Words) -> tuple[int, int, int]:
    """Combines the sources into `value`; returns (code, chunk, complete)."""
    first = local[sources[0]]
    chunk, complete = values.chunk[first], values.complete[first]
    value[:] = 0
    for x in sources:
        s = local[x]
        if values.chunk[s] < 0:
            return EMPTY, 0, 0
        if values.chunk[s] != chunk:
            return MIXED, 0, 0
        if len(sources) > 1 and values.complete[s]:
            return LATE, 0, 0
        overlap = np.uint64(0)
        for w in range(len(value)):
            overlap |= value[w] & values.bits[s, w]
            value[w] |= values.bits[s, w]
        if overlap:
            return TWICE, 0, 0
    return OK, chunk, complete


@njit
def _differ(a: Words, b: Words) -> bool:
    difference = np.uint64(0)
    for w in range(len(a)):
        difference |= a[w] ^ b[w]
    return bool(difference != 0)


@njit
def _run(
    rows: I4, local: I4, where: Locations, stated: _Stated, values: _Values, seen: _Range
) -> tuple[int, int]:
    """Runs the primitives of one component; returns (code, primitive)."""
    value = np.empty(seen.full.shape[1], np.uint64)
    for i in rows:
        sources = where.src[where.src_ptr[i] : where.src_ptr[i + 1]]
        code, chunk, complete = _combine(sources, local, values, value)
        if code != OK:
            return code, i
        if chunk != stated.chunk[i]:
            return OTHER, i
        if stated.final[i]:
            if complete:
                return LATE, i
            complete = 1
            if _differ(value, seen.full[chunk // seen.per]):
                return EARLY, i
        for x in where.dst[where.dst_ptr[i] : where.dst_ptr[i + 1]]:
            d = local[x]
            values.bits[d] = value
            values.chunk[d], values.complete[d] = chunk, complete
    return OK, -1


@njit
def _execute(
    split: Components, where: Locations, stated: _Stated, seen: _Range, size: int
) -> tuple[int, int]:
    """Runs the Plan on one range of words: (code, primitive), or (0, wrong location or -1).

    Reports the primitive that runs first of all wrong ones, or the first wrong location. size: the
    most locations of a component.
    """
    values = _Values(
        np.empty((size, seen.full.shape[1]), np.uint64),
        np.empty(size, np.int32),
        np.empty(size, np.uint8),
    )
    bad, code, wrong = -1, OK, len(where.want)
    for k in range(len(split.row_ptr) - 1):
        touched = split.touched[split.touched_ptr[k] : split.touched_ptr[k + 1]]
        for j in range(len(touched)):
            start = where.start[touched[j]]
            begin(values.bits[j], where, touched[j], seen.lo, seen.sums[start // seen.per])
            values.chunk[j], values.complete[j] = start, 0
        rows = split.rows[split.row_ptr[k] : split.row_ptr[k + 1]]
        refused, i = _run(rows, split.local, where, stated, values, seen)
        if refused != OK:
            if bad < 0 or stated.position[i] < stated.position[bad]:
                bad, code = i, refused
            continue
        for j in range(len(touched)):
            x = touched[j]
            if where.want[x] >= 0 and x < wrong:
                row = where.want[x] // seen.per
                same = values.chunk[j] == where.want[x]
                same = same and values.complete[j] == (seen.marked and seen.sums[row])
                if not same or _differ(values.bits[j], seen.full[row]):
                    wrong = x
    if code != OK:
        return code, bad
    for x in range(wrong):  # where nothing is done, only what starts there can end there
        idle = where.want[x] >= 0 and split.local[x] < 0
        if idle and (seen.sums[where.want[x] // seen.per] or where.start[x] != where.want[x]):
            return OK, x
    return OK, wrong if wrong < len(where.want) else -1
