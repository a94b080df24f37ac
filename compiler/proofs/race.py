"""race: no two accesses to one location conflict unless something orders them (kernel-protocol §6).

For every location, in one order the Plan allows: each read must happen after the write before it,
each write after the reads (or, without any, the write) before it. If all of these are ordered by
program order and waits, then every order the Plan allows is the same one, and no interleaving can
race. Runs in place and out of place, on the waits that the Plan enforces rather than on the
dependencies that the compiler meant. A proxy reads and writes a carried message later than the
primitive does (`carriers`).
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.carriers import Carriers, enforced_with_carriers, locate_carried
from hccc.analysis.clocks import happens_before, topological
from hccc.analysis.locations import Locations, locate
from hccc.analysis.waits import how, name
from hccc.base.diagnostics import fail
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer
from hccc.proofs.proof import Proof


def race(plan: Plan) -> Proof:
    """Proves that `plan` has no race; it must have passed `deadlock`. Time: see `clocks`.

    Raises:
        UserError E304: two primitives touch one location unordered; E305: the send buffer would
        be written out of place.
    """
    _inputs_constant(plan)
    made, waits = enforced_with_carriers(plan)
    order = topological(made.tb_ptr, waits)
    pairs = [_pairs(plan, made, order, in_place=mode) for mode in plan.modes]
    a, b = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    ordered = happens_before(made.tb_ptr, waits, order, a, b, made.column(plan.chunk))
    if not ordered.all():
        i = int(np.flatnonzero(ordered == 0)[0])
        in_place = plan.modes[0 if i < len(pairs[0][0]) else 1]
        raise fail(
            "E304",
            f"nothing orders {_named(plan, made, a[i])} and {_named(plan, made, b[i])}, which "
            f"touch the same memory {'in place' if in_place else 'out of place'}",
            help="the second must wait for the first",
        )
    detail: dict[str, int | str] = {
        "conflicting pairs across blocks": len(a),
        "waits": len(plan.waits.index),
    }
    return Proof("race", f"every conflicting pair of accesses is ordered, {how(plan)}", detail)


def _inputs_constant(plan: Plan) -> None:
    """Raises E305 if the send buffer is written: NCCL's are const; imported plans may be marked
    otherwise."""
    wrong = (plan.dst.buffer == Buffer.INPUT) & plan.keeps_input
    if wrong.any():
        i = int(plan.dst.owner()[wrong][0])
        raise fail("E305", f"{name(plan, i)} writes the send buffer")


def _named(plan: Plan, made: Carriers, row: np.int32) -> str:
    by = "what a proxy carries for " if row >= len(plan) else ""
    return by + name(plan, made.primitive(int(row)))


def _pairs(plan: Plan, made: Carriers, order: I4, *, in_place: bool) -> tuple[I4, I4]:
    """Finds pairs of rows in different blocks that must be ordered, the earlier row first."""
    where = locate_carried(plan, made, locate(plan, in_place=in_place))
    ptr, access = _accesses(order, where)
    block = np.repeat(np.arange(len(made.tb_ptr) - 1, dtype=np.int32), np.diff(made.tb_ptr))
    return _conflicts(ptr, access, block)


@njit
def _accesses(order: I4, where: Locations) -> tuple[I8, I4]:
    """Lists the accesses to each location in the order of time: i for a read by primitive i, ~i for
    a write. A primitive reads before it writes."""
    active, src_ptr, src = where.active, where.src_ptr, where.src
    dst_ptr, dst = where.dst_ptr, where.dst
    n_locations = len(where.start)
    ptr = np.zeros(n_locations + 1, np.int64)
    for i in order:
        if active[i]:
            for x in src[src_ptr[i] : src_ptr[i + 1]]:
                ptr[x + 1] += 1
            for x in dst[dst_ptr[i] : dst_ptr[i + 1]]:
                ptr[x + 1] += 1
    for x in range(n_locations):
        ptr[x + 1] += ptr[x]
    fill = ptr[:-1].copy()
    access = np.empty(ptr[-1], np.int32)
    for i in order:
        if active[i]:
            for x in src[src_ptr[i] : src_ptr[i + 1]]:
                access[fill[x]] = i
                fill[x] += 1
            for x in dst[dst_ptr[i] : dst_ptr[i + 1]]:
                access[fill[x]] = ~i
                fill[x] += 1
    return ptr, access


@njit
def _conflicts(ptr: I8, access: I4, block: I4) -> tuple[I4, I4]:
    """Finds the neighbouring conflicts of every location: at most two per access."""
    a, b = np.empty(2 * len(access), np.int32), np.empty(2 * len(access), np.int32)
    n = 0
    for location in range(len(ptr) - 1):
        writer, first_read = -1, ptr[location]
        for k in range(ptr[location], ptr[location + 1]):
            if access[k] >= 0:
                i = access[k]
                if writer >= 0 and block[writer] != block[i]:
                    a[n], b[n] = writer, i
                    n += 1
                continue
            i, others = ~access[k], 0
            for r in range(first_read, k):
                if access[r] != i:
                    others += 1
                    if block[access[r]] != block[i]:
                        a[n], b[n] = access[r], i
                        n += 1
            if others == 0 and writer >= 0 and block[writer] != block[i]:
                a[n], b[n] = writer, i
                n += 1
            writer, first_read = i, k + 1
    return a[:n].copy(), b[:n].copy()
