"""classes: the primitives that are alike, and the thread blocks that therefore share one function.

The shape of a primitive is everything about it that is control and not a number: mode, buffers of
its operands, number of waits and posts. A thread block is the sequence of its primitives' shapes;
blocks with equal sequences form a Class, whatever their ranks. So the emitted text grows with the
number of patterns, and not with ranks times tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hccc.emit.kernels.forms import Axis, Grid
from hccc.emit.kernels.loops import repeats
from hccc.emit.kernels.network_parts import NetworkParts
from hccc.ir.arrays import B1, I4, I8, frozen, places
from hccc.ir.plan import Plan
from hccc.ir.primitives import Operands


@dataclass(frozen=True, slots=True, eq=False)
class Class:
    """Alike thread blocks: as many at every one of `ranks`.

    tbs: i4[ranks, k], the k thread blocks of each rank. The grid's axes are (node, local) or
    (rank), and then `tb` if all ranks have the same ones, else `turn`, 0..k-1. start:
    i8[grid.shape], the first primitive of each block; shapes: i4[L], the shape id of each of a
    block's primitives.
    """

    ranks: tuple[int, ...]
    tbs: I4
    grid: Grid
    start: I8
    shapes: I4

    @property
    def by_turn(self) -> bool:
        """Whether the function gets the block's number among the rank's alike blocks."""
        return self.grid.axes[-1].name == "turn" and self.tbs.shape[1] > 1


def shape_ids(plan: Plan, network: NetworkParts) -> I4:
    """Returns a number for each primitive, equal for primitives of equal shape: i4[P]. O(P log
    P)."""
    counts = (plan.src.counts(), plan.dst.counts(), plan.waits.counts(), plan.posts.counts())
    key: I8 = (plan.final.astype(np.int64) * 2 + network.rows) * 4 + plan.guard
    from_all, to_all = plan.at_all_ranks()
    key = key * 4 + 2 * from_all + to_all
    for column in counts:
        key = _compact(key) * np.int64(int(column.max(initial=0)) + 1) + column
    away = (network.messages[0], network.messages[1] | network.puts)
    for operands, carried in zip((plan.src, plan.dst), away, strict=True):
        key = _with_buffers(_compact(key), operands, carried)
    return frozen(_compact(key), np.int32)


def _compact(key: I8) -> I8:
    return np.unique(key, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _with_buffers(key: I8, operands: Operands, network: B1) -> I8:
    """Refines `key` by the buffer of every operand, one operand position at a time, and by whether
    the network carries it."""
    kind = operands.buffer + 8 * network.astype(np.int64)
    counts = operands.counts()
    for k in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > k)
        refined = key[rows] * 16 + kind[operands.ptr[:-1][rows] + k]
        key = key.copy()
        key[rows] = key.max(initial=0) + 1 + _compact(refined)
        key = _compact(key)
    return key


def classes(plan: Plan, network: NetworkParts) -> list[Class]:
    """Returns the classes of all thread blocks, in order of their first thread block and rank."""
    ids = shape_ids(plan, network)
    rank = plan.block_rank()
    tb = places(plan.n_tb)
    alike: dict[bytes, list[int]] = defaultdict(list)
    for block, (a, b) in enumerate(zip(plan.tb_ptr[:-1], plan.tb_ptr[1:], strict=True)):
        alike[ids[a:b].tobytes()].append(block)
    found = []
    for blocks in alike.values():
        by_rank: dict[int, list[int]] = defaultdict(list)
        for block in blocks:
            by_rank[int(rank[block])].append(block)
        as_many: dict[int, list[int]] = defaultdict(list)
        for r, own in by_rank.items():
            as_many[len(own)].append(r)
        for ranks in as_many.values():
            rows = np.array([by_rank[r] for r in ranks])
            found.append(_class(plan, ids, tuple(ranks), rows, tb[rows]))
    return sorted(found, key=lambda c: (int(c.tbs.min()), c.ranks, c.tbs.tobytes()))


def calls_in_line(alike: Sequence[Class]) -> int:
    """Returns the number of calls in the classes' straight-line text with loops, before any cut."""
    return sum(repeat.period for one in alike for repeat in repeats(one.shapes))


def _class(plan: Plan, ids: I4, ranks: tuple[int, ...], blocks: I8, tbs: I8) -> Class:
    """Builds a class. blocks, tbs: i8[ranks, k]."""
    axes, gpus = rank_axes(ranks, plan)
    same = bool(np.all(tbs == tbs[0]))
    last = Axis("tb", tbs[0]) if same else Axis("turn", np.arange(tbs.shape[1]))
    grid = Grid((*axes, last), gpus)
    a, b = plan.tb_ptr[blocks[0, 0]], plan.tb_ptr[blocks[0, 0] + 1]
    start = plan.tb_ptr[:-1][blocks].reshape(grid.shape)
    return Class(ranks, frozen(tbs, np.int32), grid, start, ids[a:b])


def rank_axes(ranks: tuple[int, ...], plan: Plan) -> tuple[tuple[Axis, ...], int]:
    """Returns the axes (node, local) if the ranks are several local ids of several nodes, else
    (rank)."""
    gpus, r = plan.gpus_per_node, np.array(ranks)
    if 1 < gpus < plan.n_ranks and plan.n_ranks % gpus == 0:
        nodes, locals_ = np.unique(r // gpus), np.unique(r % gpus)
        if len(nodes) > 1 and len(locals_) > 1 and len(nodes) * len(locals_) == len(r):
            return (Axis("node", nodes), Axis("local", locals_)), gpus
    return (Axis("rank", r),), 0
