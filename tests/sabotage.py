"""sabotage: faults to plant in Primitives and Plans, one small change each.

In a test, a proof refuses the fault, or running the plan (`stepwise`) gives the right data all the
same. Nothing here checks that the result is well formed.
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
    """Returns `plan` with its rows in another order, each with its waits and posts; blocks stay."""
    order = np.asarray(rows)
    ptr, pick = entries(plan.posts.ptr, order)
    columns = {
        name: getattr(plan, name)[order] for name in ("chunk", "sub", "line", "final", "guard")
    }
    return replace(
        plan,
        **columns,
        src=plan.src.take(order),
        dst=plan.dst.take(order),
        waits=plan.waits.take(order),
        posts=Posts(ptr, plan.posts.rank[pick], plan.posts.flag[pick]),
    )


def swapped_rows(plan: Plan, a: int, b: int) -> Plan:
    """Returns `plan` with two primitives exchanged."""
    order = np.arange(len(plan))
    order[[a, b]] = order[[b, a]]
    return permuted(plan, order)


def without_edge(edges: Csr, k: int) -> Csr:
    """Returns `edges` (dependencies or waits) without their k-th entry."""
    ptr = edges.ptr.copy()
    ptr[int(edges.owner()[k]) + 1 :] -= 1
    return Csr(ptr, np.delete(edges.index, k))


def without_wait(plan: Plan, k: int) -> Plan:
    """Returns `plan` without its k-th wait."""
    return replace(plan, waits=without_edge(plan.waits, k))


def without_operand(operands: Operands, k: int) -> Operands:
    """Returns `operands` without the k-th; its row must have another."""
    ptr = operands.ptr.copy()
    ptr[int(operands.owner()[k]) + 1 :] -= 1
    columns = (operands.rank, operands.buffer, operands.slot)
    return Operands(ptr, *(np.delete(a, k) for a in columns))


def changed(operands: Operands, k: int | Rows, **new: Any) -> Operands:
    """Returns `operands` with the rank, buffer or slot of the k-th (or several) replaced."""
    columns = {name: getattr(operands, name).copy() for name in ("rank", "buffer", "slot")}
    for name, value in new.items():
        columns[name][k] = value
    return Operands(operands.ptr, **columns)
