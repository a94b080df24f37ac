"""race: no two accesses to one location conflict unless something orders them (DESIGN §6).

For every location, in one order the Plan allows: each read must happen after the write before
it, each write after the reads (or, without any, the write) before it. If all of these are
ordered by program order and waits, then every order the Plan allows is the same one, and no
interleaving can race. Runs in place and out of place; reads what the Plan enforces, not what the
compiler meant.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hccc.diagnostics import fail
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer
from hccc.passes.clocks import happens_before
from hccc.passes.deadlock import execution_order
from hccc.passes.grouping import group
from hccc.passes.locations import Locations, locate
from hccc.passes.proof import Proof
from hccc.passes.waits import enforced, how, name


def race(plan: Plan) -> Proof:
    """Proves that `plan` has no race; it must have passed `deadlock`. Time: see `clocks`.

    Raises:
        UserError E304: two primitives touch one location unordered; E305: the send buffer would
        be written out of place.
    """
    _inputs_constant(plan)
    waits = enforced(plan)
    order = execution_order(plan, waits)
    checked = 0
    for in_place in plan.modes:
        where = locate(plan, in_place=in_place)
        a, b = _pairs(plan, where, order)
        block = plan.block_of()
        apart = block[a] != block[b]
        a, b = a[apart], b[apart]
        ordered = happens_before(plan.tb_ptr, waits, order, a, b)
        if not ordered.all():
            i = int(np.flatnonzero(ordered == 0)[0])
            raise fail(
                "E304",
                f"nothing orders {name(plan, int(a[i]))} and {name(plan, int(b[i]))}, which "
                f"touch the same memory {'in place' if in_place else 'out of place'}",
                help="the second must wait for the first",
            )
        checked += len(a)
    detail: dict[str, int | str] = {
        "conflicting pairs across blocks": checked,
        "waits": len(plan.waits.index),
    }
    return Proof("race", f"every conflicting pair of accesses is ordered, {how(plan)}", detail)


def _inputs_constant(plan: Plan) -> None:
    """NCCL's send buffers are const; imported plans may say that theirs are not."""
    wrong = (plan.dst.buffer == Buffer.INPUT) & plan.keeps_input
    if wrong.any():
        i = int(plan.dst.owner()[wrong][0])
        raise fail("E305", f"{name(plan, i)} writes the send buffer")


def _pairs(plan: Plan, where: Locations, order: I4) -> tuple[I4, I4]:
    """Pairs of primitives that must be ordered, earlier first."""
    position = np.empty(len(plan), np.int64)
    position[order] = np.arange(len(order))
    active = where.active
    src_row, dst_row = plan.src.owner(), plan.dst.owner()
    keep_src, keep_dst = active[src_row], active[dst_row]
    row = np.concatenate([src_row[keep_src], dst_row[keep_dst]])
    location = np.concatenate([where.src[keep_src], where.dst[keep_dst]])
    writes = np.zeros(len(row), np.bool_)
    writes[int(keep_src.sum()) :] = True
    by_time = np.argsort(position[row] * 2 + writes, kind="stable")
    row, location, writes = row[by_time], location[by_time], writes[by_time]
    ptr, access = group(location, where.count)
    return _conflicts(ptr, access, row, writes)


@njit(cache=True)
def _conflicts(ptr: I8, access: I4, row: I4, writes: B1) -> tuple[I4, I4]:
    """Neighbouring conflicts of every location: at most two per access."""
    a, b = np.empty(2 * len(access), np.int32), np.empty(2 * len(access), np.int32)
    n = 0
    for location in range(len(ptr) - 1):
        writer, first_read = -1, ptr[location]
        for k in range(ptr[location], ptr[location + 1]):
            i = row[access[k]]
            if not writes[access[k]]:
                if writer >= 0 and writer != i:
                    a[n], b[n] = writer, i
                    n += 1
                continue
            reads = 0
            for r in range(first_read, k):
                if row[access[r]] != i:
                    a[n], b[n] = row[access[r]], i
                    n += 1
                    reads += 1
            if reads == 0 and writer >= 0 and writer != i:
                a[n], b[n] = writer, i
                n += 1
            writer, first_read = i, k + 1
    return a[:n], b[:n]
