"""sabotage: faults to plant in Primitives and Plans, one small change each.

What a test does with one: a proof refuses it, or running it (`stepwise`) gives the right data
all the same. Nothing here checks that the result is well formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import Csr, entries
from hccc.ir.plan import Plan, Posts
from hccc.ir.primitives import Operands

Rows = Sequence[int] | NDArray[Any]


def permuted(plan: Plan, rows: Rows) -> Plan:
    """`plan` with its rows in another order, each with its waits and posts; blocks stay."""
    order = np.asarray(rows)
    ptr, pick = entries(plan.posts.ptr, order)
    return replace(
        plan,
        chunk=plan.chunk[order],
        sub=plan.sub[order],
        line=plan.line[order],
        final=plan.final[order],
        guard=plan.guard[order],
        src=plan.src.take(order),
        dst=plan.dst.take(order),
        waits=plan.waits.take(order),
        posts=Posts(ptr, plan.posts.rank[pick], plan.posts.flag[pick]),
    )


def swapped_rows(plan: Plan, a: int, b: int) -> Plan:
    """`plan` with two primitives exchanged."""
    order = np.arange(len(plan))
    order[[a, b]] = order[[b, a]]
    return permuted(plan, order)


def without_edge(edges: Csr, k: int) -> Csr:
    """`edges` (dependencies or waits) without their k-th entry."""
    ptr = edges.ptr.copy()
    ptr[int(edges.owner()[k]) + 1 :] -= 1
    return Csr(ptr, np.delete(edges.index, k))


def without_wait(plan: Plan, k: int) -> Plan:
    """`plan` without its k-th wait."""
    return replace(plan, waits=without_edge(plan.waits, k))


def without_operand(operands: Operands, k: int) -> Operands:
    """`operands` without the k-th; its row must have another."""
    ptr = operands.ptr.copy()
    ptr[int(operands.owner()[k]) + 1 :] -= 1
    columns = (operands.rank, operands.buffer, operands.slot)
    return Operands(ptr, *(np.delete(a, k) for a in columns))


def changed(operands: Operands, k: int | Rows, **new: Any) -> Operands:
    """`operands` with the rank, buffer or slot of the k-th (or several) replaced."""
    columns = {name: getattr(operands, name).copy() for name in ("rank", "buffer", "slot")}
    for name, value in new.items():
        columns[name][k] = value
    return Operands(operands.ptr, **columns)
