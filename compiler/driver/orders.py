"""orders: what is said of the order of sums, and what `--deterministic` asks of it.

Which chunk of its block an element is in depends on the size of a call. So an element is summed in
one order for all sizes where all chunks of a block are summed alike: by every plan of the library,
in place and out of place, and for every rank that gets them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hccc.analysis.sum_orders import SumGroup, SumOrders, sum_orders
from hccc.base.diagnostics import fail
from hccc.base.interruptible import interruptible
from hccc.ir.arrays import I4
from hccc.ir.catalogue import Catalogue
from hccc.ir.choices import Accumulate, Bits
from hccc.ir.plan import Plan
from hccc.ir.ranks import named_runs

SHOWN = 4  # groups of a plan
SUM, NUMBERS = 64, 30  # characters of a sum, and of the chunks and the ranks of a group
_ALIKE = "sum all chunks alike, at one rank, and send the result to the others"
_REASONS = {  # and remedies
    "rank": ("two ranks get sums of two orders", _ALIKE),
    "chunk": ("the size of a call says in which chunk an element is", _ALIKE),
    "kind": ("calls in place and out of place differ", "give a program that sums alike in both"),
    "plan": ("the size of a call says which plan serves it", "--plans 1 makes one plan of all"),
}
_KINDS = {False: "out of place", True: "in place"}


@dataclass(frozen=True, slots=True)
class Varies:
    """The reason why an element has several orders; two of them; and what to do."""

    reason: str
    orders: str
    help: str


@dataclass(frozen=True, slots=True)
class DeclaredOrders:
    """The orders of all sums of a library. varies: how an element's order depends on the size of a
    call or on the rank; None where it does not."""

    catalogue: Catalogue
    orders: SumOrders
    varies: Varies | None

    def groups(self, plan: int) -> list[tuple[str, SumGroup]]:
        """Returns the groups of a plan's receive slots, each with the kind of call in which they
        are summed so: "" for all."""
        found = {e.in_place: self.orders.groups(e) for e in self.orders.ends if e.plan == plan}
        first, *others = found.values()
        if all(other == first for other in others):
            return [("", group) for group in first]
        return [(f", {_KINDS[kind]}", group) for kind, groups in found.items() for group in groups]

    def lines(self, plan: int, whole: bool) -> list[str]:
        """Writes a line for each group of a plan; if not `whole` a few lines, and short ones. None
        of one whose order a switch decides, which its sums say."""
        if self.catalogue.plans[plan].multicast is Bits.ANY:
            return []
        found = self.groups(plan)
        made = [self._line(*one, whole) for one in (found if whole else found[:SHOWN])]
        more = len(found) - len(made)
        return [*made, f"and {more:,} more: --orders prints all"] if more else made

    def _line(self, kind: str, group: SumGroup, whole: bool) -> str:
        n, most = self.orders.n_ranks, 1 << 62 if whole else NUMBERS
        ranks = "every rank" if len(group.ranks) == n > 1 else _numbers("rank", group.ranks, most)
        text = self.orders.text(group.node, 1 << 62 if whole else SUM)
        return f"{_numbers('chunk', group.chunks, most)} at {ranks}{kind}: {text}"

    def facts(self, whole: bool) -> dict[str, object]:
        """Returns the orders for programs: how many a plan has, and all if `whole`."""
        plans = [
            (plan.name, self.groups(k))
            for k, plan in enumerate(self.catalogue.plans)
            if plan.multicast is not Bits.ANY
        ]
        facts: dict[str, object] = {
            "orders": {name: len({group.node for _, group in found}) for name, found in plans},
            "one_order": self.varies is None,
        }
        if self.varies:
            facts["order_varies"] = f"{self.varies.reason}: {self.varies.orders}"
        if whole:
            facts["sums"] = {name: [self._facts(*one) for one in found] for name, found in plans}
        return facts

    def _facts(self, kind: str, group: SumGroup) -> dict[str, object]:
        calls = {"calls": kind.removeprefix(", ")} if kind else {}
        where = {"chunks": list(group.chunks), "ranks": list(group.ranks), **calls}
        return {**where, "sum": self.orders.text(group.node)}


def _numbers(noun: str, numbers: tuple[int, ...], most: int) -> str:
    text = ", ".join(named_runs("", numbers, 0))
    if len(text) > most:
        text = f"{text[:most].rpartition(',')[0]}, … ({len(numbers):,})"
    return f"{noun}{'s' * (len(numbers) > 1)} {text}"


@interruptible
def declared_orders(catalogue: Catalogue) -> DeclaredOrders | None:
    """Finds the orders of all sums of proved plans; None where nothing is summed, or a custom
    collective does not say where its sums end. O(operands + receive slots log receive slots)."""
    if not catalogue.collective.reduces:
        return None
    orders = sum_orders(catalogue.plans)
    return DeclaredOrders(catalogue, orders, _varies(catalogue.plans, orders))


def require_one_order(catalogue: Catalogue) -> None:
    """Holds a library to `--deterministic`.

    Raises:
        UserError: E322 an element's order depends on the size or on the rank.
    """
    if not catalogue.collective.reduces and any(plan.reduces for plan in catalogue.plans):
        message = f"{catalogue.name}: a custom collective does not say where its sums end"
        raise fail("E322", message, help="leave out --deterministic")
    found = declared_orders(catalogue)
    if found and found.varies:
        varies = found.varies
        message = f"{catalogue.name}: {varies.reason}: {varies.orders}"
        raise fail("E322", message, help=_remedy(catalogue) or varies.help)


class _Slots:
    """All receive slots of a library in columns: plan, kind (1: in place), rank, chunk, block,
    node: i4[n]."""

    def __init__(self, plans: Sequence[Plan], orders: SumOrders) -> None:
        counts = [len(ends.rank) for ends in orders.ends]
        self.plan = np.repeat([ends.plan for ends in orders.ends], counts)
        self.kind = np.repeat([int(ends.in_place) for ends in orders.ends], counts)
        self.rank = np.concatenate([ends.rank for ends in orders.ends])
        self.chunk = np.concatenate([ends.chunk for ends in orders.ends])
        self.node = np.concatenate([ends.node for ends in orders.ends])
        per = np.array([plan.collective.chunks_per_block for plan in plans])
        self.block = self.chunk // per[self.plan]

    def unlike(self, *alike: I4) -> tuple[int, int] | None:
        """Returns two slots of one block, with the same in the columns `alike`, that are not summed
        alike; None if there are none."""
        order = np.lexsort((*alike, self.block))
        key = np.stack([self.block, *alike])[:, order]
        begins = np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0))
        first = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
        differ = np.flatnonzero(self.node[order] != self.node[first])
        return (int(first[differ[0]]), int(order[differ[0]])) if len(differ) else None


def _unlike(plans: Sequence[Plan], orders: SumOrders) -> tuple[str, str] | None:
    """Finds two slots of one block that are summed in two orders: of one chunk at two ranks, else
    of two chunks, of two kinds of calls, of two plans. Returns which, and names the two orders."""
    s = _Slots(plans, orders)
    for why, alike in (
        ("rank", (s.chunk, s.kind, s.plan)),
        ("chunk", (s.kind, s.plan)),
        ("kind", (s.plan,)),
        ("plan", ()),
    ):
        if found := s.unlike(*alike):
            chunk = f"chunk {s.chunk[found[0]]}" if why == "rank" else "an element"
            first, second = (
                f"as {orders.text(int(s.node[i]), SUM)} {_where(why, s, plans, i)}" for i in found
            )
            return why, f"{chunk} is summed {first}, {second}"
    return None


def _where(why: str, s: _Slots, plans: Sequence[Plan], i: int) -> str:
    return {
        "rank": f"at rank {s.rank[i]}",
        "chunk": f"in chunk {s.chunk[i]}",
        "kind": _KINDS[bool(s.kind[i])],
        "plan": f"by {plans[s.plan[i]].name}",
    }[why]


def _varies(plans: Sequence[Plan], orders: SumOrders) -> Varies | None:
    """Tells how an element's order varies, and what to do."""
    if switched := [plan.name for plan in plans if plan.multicast is Bits.ANY]:
        orders_of = f"{switched[0]} has the switch add floats, in any order"
        return Varies("a call may give other bits each time", orders_of, "leave out --bits any")
    found = _unlike(plans, orders)
    if found is None:
        return None
    reason, help = _REASONS[found[0]]
    return Varies(reason, found[1], help)


def _remedy(catalogue: Catalogue) -> str | None:
    """Proposes `--accumulate same` where the orders differ only in rounding."""
    if any(plan.multicast is Bits.ANY for plan in catalogue.plans):
        return None
    rounded = [replace(plan, accumulate=Accumulate.SAME) for plan in catalogue.plans]
    if _unlike(rounded, sum_orders(rounded)) is not None:
        return None
    return "--accumulate same rounds every sum of two, and makes these orders one"
