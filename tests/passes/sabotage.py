"""Faults to plant in Primitives and Plans: one small, wrong change each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.diagnostics import InternalError
from hccc.ir.arrays import Csr
from hccc.ir.plan import Plan, Posts
from hccc.ir.primitives import Operands, Primitives
from hccc.passes.grouping import graph


def take_csr(c: Csr, rows) -> Csr:
    counts = c.counts()[rows]
    ptr = np.concatenate([[0], np.cumsum(counts)])
    pick = [k for r in rows for k in range(int(c.ptr[r]), int(c.ptr[r + 1]))]
    return Csr(ptr, c.index[np.array(pick, np.int64)])


def reordered(p: Primitives, order) -> Primitives:
    """The rows of `p` in another order, dependencies along with them."""
    order = np.asarray(order)
    of = np.argsort(order)
    return replace(
        p,
        owner=p.owner[order],
        chunk=p.chunk[order],
        sub=p.sub[order],
        final=p.final[order],
        guard=p.guard[order],
        src=p.src.take(order),
        dst=p.dst.take(order),
        deps=graph(of[p.deps.owner()], of[p.deps.index], len(p)),
        tasks=take_csr(p.tasks, order),
    )


def permuted(plan: Plan, order) -> Plan:
    """The rows of `plan` in another order (within their blocks), waits and posts with them."""
    order = np.asarray(order)
    posts = plan.posts
    pick = [k for r in order for k in range(int(posts.ptr[r]), int(posts.ptr[r + 1]))]
    ptr = np.concatenate([[0], np.cumsum(posts.counts()[order])])
    pick = np.array(pick, np.int64)
    return replace(
        plan,
        chunk=plan.chunk[order],
        sub=plan.sub[order],
        line=plan.line[order],
        final=plan.final[order],
        guard=plan.guard[order],
        src=plan.src.take(order),
        dst=plan.dst.take(order),
        waits=take_csr(plan.waits, order),
        posts=Posts(ptr, posts.rank[pick], posts.flag[pick]),
    )


def swapped_rows(plan: Plan, a: int, b: int) -> Plan:
    order = np.arange(len(plan))
    order[[a, b]] = order[[b, a]]
    return permuted(plan, order)


def without_wait(plan: Plan, k: int) -> Plan:
    """`plan` without its k-th wait."""
    ptr = plan.waits.ptr.copy()
    ptr[int(plan.waits.owner()[k]) + 1 :] -= 1
    return replace(plan, waits=Csr(ptr, np.delete(plan.waits.index, k)))


def without_operand(o: Operands, k: int) -> Operands:
    """`o` without its k-th entry; its row must have another."""
    ptr = o.ptr.copy()
    ptr[int(o.owner()[k]) + 1 :] -= 1
    return Operands(ptr, *(np.delete(a, k) for a in (o.rank, o.buffer, o.slot)))


def changed(o: Operands, k: int, **new) -> Operands:
    """`o` with entry k's rank, buffer or slot replaced."""
    columns = {name: getattr(o, name).copy() for name in ("rank", "buffer", "slot")}
    for name, value in new.items():
        columns[name][k] = value
    return Operands(o.ptr, **columns)


def made(build):
    """What `build()` makes, or None when a pass itself refuses it."""
    try:
        return build()
    except InternalError:
        return None
