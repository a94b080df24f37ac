"""result: executing the Plan gives the collective's result at every rank (kernel-protocol §6).

The same symbolic run as `verify`, over the Plan's memory instead of (rank, chunk): it shows that
scheduling, fusing, placing and allocating changed nothing. Because `race` holds, any one order
the Plan allows stands for all of them. Runs in place and out of place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.components import components
from hccc.analysis.contributions import full_set
from hccc.analysis.execution_order import execution_order
from hccc.analysis.locations import Locations, locate
from hccc.analysis.waits import enforced, how, name
from hccc.diagnostics import UserError, fail
from hccc.ir.arrays import B1, I4, I8, U1
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.jit.compiled import njit
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
    moves; that every slot on its way is as long, `plan_check` knows. Of a custom collective, whose
    chunks all have one length, only that nothing is read before it is written.

    O(operands · R/64) time; bitsets of one part at a time (`parts`), mostly R²/8 bytes, run in word
    ranges where they do not fit `STATE_BYTES`.

    Raises:
        UserError E306: a primitive combines wrong values; E307: a receive slot ends wrong.
    """
    order = execution_order(plan, enforced(plan))
    custom = plan.collective.op is OpType.CUSTOM
    for in_place in plan.modes:
        where = locate(plan, in_place=in_place)
        proved = _nothing_empty if custom else _prove
        proved(plan, where, order, "in place" if in_place else "out of place")
    if custom:
        claim = "nothing is read before it is written; more only a custom collective's author knows"
        return Proof("result", claim, {"locations": where.count})
    detail: dict[str, int | str] = {
        "receive slots": int((where.want >= 0).sum()),
        "locations": where.count,
    }
    return Proof("result", f"every rank ends with the collective's result, {how(plan)}", detail)


def _nothing_empty(plan: Plan, where: Locations, order: I4, how: str) -> None:
    """Every read is of memory that held something when the call began, or that was written."""
    i = _first_empty(
        order, where.active, plan.src.ptr, where.src, plan.dst.ptr, where.dst, where.start >= 0
    )
    if i >= 0:
        raise fail("E306", f"{how}, {name(plan, i)} {_WHY[EMPTY]}")


@njit
def _first_empty(
    order: I4, active: B1, src_ptr: I8, src: I4, dst_ptr: I8, dst: I4, written: B1
) -> int:
    """The first primitive in `order` that reads a location not `written`, or -1."""
    for i in order:
        if not active[i]:
            continue
        for x in src[src_ptr[i] : src_ptr[i + 1]]:
            if not written[x]:
                return int(i)
        for x in dst[dst_ptr[i] : dst_ptr[i + 1]]:
            written[x] = True
    return -1


def _prove(plan: Plan, where: Locations, order: I4, how: str) -> None:
    reduces = plan.collective.reduces
    full = full_set(plan.n_ranks) if reduces else np.ones(1, np.uint64)
    split = components(plan, where, order)
    size = max(1, split.largest())
    span = max(1, min(len(full), STATE_BYTES // (8 * size)))
    turn = np.empty(len(plan), np.int32)
    turn[order] = np.arange(len(order), dtype=np.int32)
    for lo in range(0, len(full), span):
        code, i = _execute(
            split.row_ptr, split.rows, split.place_ptr, split.places, split.local, turn,
            plan.src.ptr, where.src, plan.dst.ptr, where.dst, plan.final, plan.chunk,
            where.start, where.start_rank, where.want, full[lo : lo + span], lo, reduces, size,
        )  # fmt: skip
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
def begin(start: I4, start_rank: I4, words: int, lo: int, reduces: bool) -> Words:
    """The bitsets at the start, words [lo, lo + words): u8[locations, words]."""
    state = np.zeros((len(start), words), np.uint64)
    for x in range(len(start)):
        bit = start_rank[x] if reduces else 0
        if start[x] >= 0 and lo <= bit >> 6 < lo + words:
            state[x, (bit >> 6) - lo] = np.uint64(1) << np.uint64(bit & 63)
    return state


@njit
def _reset(
    places: I4, start: I4, start_rank: I4, lo: int, reduces: bool, state: Words, held: I4, done: U1
) -> None:
    """The bitsets of a part's locations at the start, words [lo, lo + words)."""
    words = state.shape[1]
    for j in range(len(places)):
        state[j] = 0
        held[j], done[j] = start[places[j]], 0
        bit = start_rank[places[j]] if reduces else 0
        if held[j] >= 0 and lo <= bit >> 6 < lo + words:
            state[j, (bit >> 6) - lo] = np.uint64(1) << np.uint64(bit & 63)


@njit
def _combine(
    sources: I4, local: I4, state: Words, held: I4, done: U1, value: Words
) -> tuple[int, int, int]:
    """Combines the sources into `value`: (code, chunk, done)."""
    first = local[sources[0]]
    chunk, complete = held[first], done[first]
    value[:] = 0
    for x in sources:
        s = local[x]
        if held[s] < 0:
            return EMPTY, 0, 0
        if held[s] != chunk:
            return MIXED, 0, 0
        if len(sources) > 1 and done[s]:
            return LATE, 0, 0
        overlap = np.uint64(0)
        for w in range(len(value)):
            overlap |= value[w] & state[s, w]
            value[w] |= state[s, w]
        if overlap:
            return TWICE, 0, 0
    return OK, chunk, complete


@njit
def _differ(a: Words, b: Words) -> bool:
    found = np.uint64(0)
    for w in range(len(a)):
        found |= a[w] ^ b[w]
    return bool(found != 0)


@njit
def _run(
    rows: I4, local: I4, src_ptr: I8, src: I4, dst_ptr: I8, dst: I4, final: U1, said: I4,
    full: Words, state: Words, held: I4, done: U1, value: Words,
) -> tuple[int, int]:  # fmt: skip
    """Runs the primitives of a part: (code, primitive)."""
    for i in rows:
        sources = src[src_ptr[i] : src_ptr[i + 1]]
        code, chunk, complete = _combine(sources, local, state, held, done, value)
        if code != OK:
            return code, i
        if chunk != said[i]:
            return OTHER, i
        if final[i]:
            if complete:
                return LATE, i
            complete = 1
            if _differ(value, full):
                return EARLY, i
        for k in range(dst_ptr[i], dst_ptr[i + 1]):
            d = local[dst[k]]
            state[d] = value
            held[d], done[d] = chunk, complete
    return OK, -1


@njit
def _execute(
    row_ptr: I8, rows: I4, place_ptr: I8, places: I4, local: I4, turn: I4, src_ptr: I8, src: I4,
    dst_ptr: I8, dst: I4, final: U1, said: I4, start: I4, start_rank: I4, want: I4, full: Words,
    lo: int, reduces: bool, size: int,
) -> tuple[int, int]:  # fmt: skip
    """Runs the Plan on words [lo, lo + len(full)): (code, primitive), or (0, wrong location).

    Of several, the primitive that runs first, or the first location.
    """
    state, held = np.empty((size, len(full)), np.uint64), np.empty(size, np.int32)
    done, value = np.empty(size, np.uint8), np.empty(len(full), np.uint64)
    bad, code, wrong = -1, OK, len(want)
    for part in range(len(row_ptr) - 1):
        here = places[place_ptr[part] : place_ptr[part + 1]]
        _reset(here, start, start_rank, lo, reduces, state, held, done)
        found, i = _run(
            rows[row_ptr[part] : row_ptr[part + 1]], local, src_ptr, src, dst_ptr, dst, final, said,
            full, state, held, done, value,
        )  # fmt: skip
        if found != OK:
            if bad < 0 or turn[i] < turn[bad]:
                bad, code = i, found
            continue
        for j in range(len(here)):
            if want[here[j]] >= 0 and here[j] < wrong:
                same = held[j] == want[here[j]] and done[j] == reduces
                if not same or _differ(state[j], full):
                    wrong = here[j]
    if code != OK:
        return code, bad
    for x in range(wrong):  # where nothing is done, only what starts there can end there
        if want[x] >= 0 and local[x] < 0 and (reduces or start[x] != want[x]):
            return OK, x
    return OK, wrong if wrong < len(want) else -1
