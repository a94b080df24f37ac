"""sum_orders: the order of a sum, for each element of a result, of one or several Plans.

A symbolic run, like that of `proofs/result`: over the same locations, in an order that the Plan
allows. The value of a location is a *sum*, a node of one tree for all: a rank's own piece, or two
values added. Equal sums are one node, so that orders are compared as numbers. As a + b is b + a in
every bit, which of two comes first makes no other order. (Two exceptions, in the signs of zeros of
min and max and in the bits of NaNs, are of docs/guide/02-what-is-proved.md.)

What one primitive adds is kept in the Plan's `accumulate` and rounded once, so a sum within a
primitive is another one than a sum of two primitives' values; with `Accumulate.SAME` they are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hccc.analysis.execution_order import execution_order
from hccc.analysis.locations import Locations, locate
from hccc.analysis.waits import enforced
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, U1
from hccc.ir.plan import Plan

OPEN, STORED, DIVIDED = range(3)
_SEEDS = 40503, 2654435  # of hashes that fit 64 bits


class Sums(NamedTuple):
    """The sums of n ranks: node i < n is the piece of rank i, another adds nodes `left` and
    `right`, in the order in which that was first done.

    kind: u1[m]: OPEN until its primitive adds more and has not rounded it, STORED, DIVIDED by a
    primitive that adds nothing (left is right). left, right: i4[m]. table: i4[2^k], the node of
    each hash or -1; used: i4[1], the number of nodes.
    """

    kind: U1
    left: I4
    right: I4
    table: I4
    used: I4


class SumEnds(NamedTuple):
    """The sums that a Plan leaves in its receive slots. plan: its number; rank, chunk, node:
    i4[slots], by rank."""

    plan: int
    in_place: bool
    rank: I4
    chunk: I4
    node: I4


class SumGroup(NamedTuple):
    """The chunks that are summed alike at the same ranks. node: how; chunks, ranks: ascending."""

    node: int
    chunks: tuple[int, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SumOrders:
    """The sums of several Plans of one collective, and for each Plan and kind of call its ends."""

    n_ranks: int
    sums: Sums
    ends: tuple[SumEnds, ...]

    def text(self, node: int, most: int = 1 << 62) -> str:
        """Writes a sum as `r3 + (r2 + (r0 + r1))`: a primitive's own sum without parentheses, to
        be read from left to right. Cut after `most` characters."""
        found, length = list[str](), 0
        for part in self._parts(node):
            if length + len(part) > most:
                return "".join(found).rstrip(" (") + " …"
            found.append(part)
            length += len(part)
        return "".join(found)

    def _parts(self, node: int) -> Iterator[str]:
        todo: list[int | str] = [node]
        while todo:
            item = todo.pop()
            if isinstance(item, str) or item < self.n_ranks:
                yield item if isinstance(item, str) else f"r{item}"
                continue
            for k, operand in enumerate(self._operands(item)):
                plain = operand < self.n_ranks
                todo += [" + "] * (k > 0) + ([operand] if plain else [")", operand, "("])

    def _operands(self, node: int) -> Iterator[int]:
        """Yields the operands of a stored sum, the last first."""
        kind, left, right, *_ = self.sums
        if kind[node] != DIVIDED:
            yield int(right[node])
        node = int(left[node])
        while kind[node] == OPEN and node >= self.n_ranks:
            yield int(right[node])
            node = int(left[node])
        yield node

    def groups(self, ends: SumEnds) -> list[SumGroup]:
        """Groups the receive slots of a Plan by order, rank and chunk; those of low chunks first.
        O(slots log slots)."""
        order = np.lexsort((ends.rank, ends.chunk, ends.node))
        rank, chunk, node = (a[order] for a in (ends.rank, ends.chunk, ends.node))
        begin = np.flatnonzero(np.diff(chunk, prepend=-1) | np.diff(node, prepend=-1))
        found: dict[tuple[int, bytes], list[int]] = {}
        for a, b in zip(begin, [*begin[1:], len(rank)], strict=True):
            found.setdefault((int(node[a]), rank[a:b].tobytes()), []).append(int(chunk[a]))
        made = [
            SumGroup(key, tuple(chunks), tuple(np.frombuffer(ranks, np.int32).tolist()))
            for (key, ranks), chunks in found.items()
        ]
        return sorted(made, key=lambda one: (one.chunks, one.ranks))


@njit
def _node(sums: Sums, kind: int, a: int, b: int) -> int:
    """Returns the node of a sum, a new one if there is none yet."""
    low, high = int(min(a, b)), int(max(a, b))
    at = low * _SEEDS[0] + high * _SEEDS[1] + kind
    at ^= at >> 15
    at &= len(sums.table) - 1
    while sums.table[at] >= 0:
        i = sums.table[at]
        same = min(sums.left[i], sums.right[i]) == low and max(sums.left[i], sums.right[i]) == high
        if same and sums.kind[i] == kind:
            return int(i)
        at = (at + 1) & (len(sums.table) - 1)
    i = sums.used[0]
    sums.table[at], sums.used[0] = i, i + 1
    sums.kind[i], sums.left[i], sums.right[i] = kind, a, b
    return int(i)


@njit
def _run(order: I4, where: Locations, final: U1, rounds: bool, sums: Sums) -> I4:
    """Returns the sum in each location at the end: i4[L], -1 for nothing. rounds: after each two
    values."""
    value = np.where(where.start >= 0, where.start_rank, -1).astype(np.int32)
    for i in order:
        if not where.active[i]:
            continue
        begin, end = where.src_ptr[i], where.src_ptr[i + 1]
        x = value[where.src[begin]]
        for k in range(begin + 1, end):
            kind = STORED if rounds or k == end - 1 else OPEN
            x = _node(sums, kind, x, value[where.src[k]])
        if final[i] and end == begin + 1:
            x = _node(sums, DIVIDED, x, x)
        for at in where.dst[where.dst_ptr[i] : where.dst_ptr[i + 1]]:
            value[at] = x
    return value


def sum_orders(plans: Sequence[Plan]) -> SumOrders:
    """Finds the order of every sum of proved plans of one collective, which reduces and says where
    its results are (`Plan.averages`). O(operands + locations)."""
    n = plans[0].n_ranks
    most = n + sum(len(p.modes) * (len(p.src.rank) - len(p) + int(p.final.sum())) for p in plans)
    table = np.full(1 << int(2 * most).bit_length(), -1, np.int32)
    kind, left, right = np.full(most, STORED, np.uint8), *np.full((2, most), -1, np.int32)
    sums = Sums(kind, left, right, table, np.array([n], np.int32))
    ends = [_ends(k, plan, kind, sums) for k, plan in enumerate(plans) for kind in plan.modes]
    return SumOrders(n, sums, tuple(ends))


def _ends(number: int, plan: Plan, in_place: bool, sums: Sums) -> SumEnds:
    """Runs a Plan; its new sums go to `sums`."""
    c, where = plan.collective, locate(plan, in_place=in_place)
    order = execution_order(plan, enforced(plan))
    value = _run(order, where, plan.final, plan.accumulate.rounds, sums)
    at = np.flatnonzero(where.want >= 0)  # rank by rank, as locations are
    slots = [c.output_blocks(rank) * c.chunks_per_block for rank in range(plan.n_ranks)]
    rank = np.repeat(np.arange(plan.n_ranks, dtype=np.int32), slots)
    return SumEnds(number, in_place, rank, where.want[at], value[at])
