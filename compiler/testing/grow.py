"""grow: correct programs by construction, from any source of choices.

Every chunk gets a spanning structure of its own: a tree of copies from its start to the ranks that
want it (with other ranks as relays), or a tree of reductions into one rank (some by way of a rank
that already gave its piece away) and a tree of copies from there. `Timetable` gives each transfer
the earliest step that the step rule (docs/transfer-language.md) allows, plus a drawn gap.

Choices come from `Choose`, a function of an inclusive upper bound; 0 is always the simplest choice,
so that shrinking leads to small, readable programs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hccc.ir.collective import Collective, OpType
from hccc.ir.program import TRANSFER, Op, Program

Choose = Callable[[int], int]  # an integer from 0 to the bound, 0 being the simplest
Row = tuple[int, int, int, int, int]  # src, dst, step, chunk, op
MAX_GAP = 2
MAX_RELAYS = 2
MAX_ORDER = 1 << 16  # program orders to choose from; 0 is chunk by chunk


@dataclass(slots=True)
class Timetable:
    """One chunk's transfers, and the last step each rank's copy was used in, by kind of use."""

    chunk: int
    choose: Choose
    gap: int  # the most idle steps before a transfer
    first: int  # no transfer before this step
    rows: list[Row] = field(default_factory=list)
    read: dict[int, int] = field(default_factory=dict)
    reduced: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)

    def copy(self, src: int, dst: int) -> None:
        """Adds a `recv` of the chunk at `dst`, after every use of it there."""
        step = self._step(src, self.read, self.reduced, self.written, dst)
        self.written[dst] = step
        self.rows.append((src, dst, step, self.chunk, Op.RECV))

    def reduce(self, src: int, dst: int) -> None:
        """Adds an `rrc` into `dst`: reductions into one place may share a step."""
        step = self._step(src, self.read, {}, self.written, dst)
        self.reduced[dst] = max(self.reduced.get(dst, -1), step)
        self.rows.append((src, dst, step, self.chunk, Op.RRC))

    def _step(
        self,
        src: int,
        read: dict[int, int],
        reduced: dict[int, int],
        written: dict[int, int],
        dst: int,
    ) -> int:
        last = max(self.reduced.get(src, -1), self.written.get(src, -1), self.first - 1)
        last = max(last, read.get(dst, -1), reduced.get(dst, -1), written.get(dst, -1))
        step = last + 1 + self.choose(self.gap)
        self.read[src] = max(self.read.get(src, -1), step)
        return step


def grow(
    c: Collective,
    choose: Choose,
    *,
    gpus_per_node: int = 0,
    nics_per_node: int = 0,
    channels: int = 1,
    extras: bool = True,
) -> Program:
    """Grows a correct program for `c`.

    extras: whether ranks that do not want a chunk may relay it, values may be delivered twice, and
    reductions may go by way of a third rank.
    """
    rows: list[Row] = []
    gap = choose(1) * MAX_GAP  # one choice for all, so that shrinking removes many at once
    extras = extras and choose(1) == 1
    order = choose(MAX_ORDER)
    for chunk in range(c.n_chunks):
        table = Timetable(chunk, choose, gap, choose(gap))
        grow_chunk(c, table, choose, extras)
        rows += table.rows
    if order:
        random.Random(order).shuffle(rows)
    gpus = gpus_per_node or c.n_ranks
    return program(c, rows, gpus, nics_per_node or gpus, channels)


def program(
    c: Collective, rows: list[Row], gpus_per_node: int, nics_per_node: int, channels: int = 1
) -> Program:
    """Returns the Program with `rows` in this program order."""
    table = np.zeros(len(rows), TRANSFER)
    for i, (src, dst, step, chunk, op) in enumerate(rows):
        table[i] = (src, dst, step, chunk, 0, op)
    table = table[np.argsort(table["step"], kind="stable")]
    return Program("random", c, channels, 16, gpus_per_node, nics_per_node, table)


def grow_chunk(c: Collective, table: Timetable, choose: Choose, extras: bool) -> None:
    """Adds all transfers of one chunk."""
    here = np.array([table.chunk])
    wanting = np.flatnonzero(c.wants(np.arange(c.n_ranks), here)).tolist()
    having = np.flatnonzero(c.holds(np.arange(c.n_ranks), here)).tolist()
    copies = c.demand is not None and not c.demand.sums[table.chunk // c.chunks_per_block]
    if copies or not c.reduces:
        lacking = [r for r in wanting if r not in having]
        _spread(c, table, having[choose(len(having) - 1)], lacking, choose, extras)
        return
    free = c.op in (OpType.ALLREDUCE, OpType.CUSTOM)
    root = having[choose(len(having) - 1)] if free else int(c.target_of(here)[0])
    _gather_pieces(table, root, having, choose, extras)
    _spread(c, table, root, wanting, choose, extras)


def _spread(
    c: Collective, table: Timetable, source: int, wanting: list[int], choose: Choose, extras: bool
) -> None:
    """Adds a tree of copies from `source` over all ranks that want the chunk, and some relays."""
    others = [r for r in range(c.n_ranks) if r != source and r not in wanting]
    relays = choose(min(MAX_RELAYS, len(others))) if extras else 0
    new = [others.pop(choose(len(others) - 1)) for _ in range(relays)]
    new += [r for r in wanting if r != source]
    holders = [source]
    for _ in range(len(new)):
        rank = new.pop(choose(len(new) - 1))
        table.copy(holders[choose(len(holders) - 1)], rank)
        holders.append(rank)
    if extras and len(holders) > 1 and choose(3) == 3:  # deliver something again
        dst = holders.pop(choose(len(holders) - 1))
        table.copy(holders[choose(len(holders) - 1)], dst)


def _gather_pieces(
    table: Timetable, root: int, having: list[int], choose: Choose, extras: bool
) -> None:
    """Adds a tree of reductions of every piece into `root`, which has one; children give before
    parents."""
    placed, parent = [root], dict[int, int]()
    left = [r for r in having if r != root]
    while left:
        rank = left.pop(choose(len(left) - 1))
        parent[rank] = placed[choose(len(placed) - 1)]
        placed.append(rank)
    gave: list[int] = []
    for rank in reversed(placed[1:]):
        via = _third(gave, choose) if extras else None
        if via is not None:
            table.copy(rank, via)
        table.reduce(rank if via is None else via, parent[rank])
        gave.append(rank)


def _third(gave: list[int], choose: Choose) -> int | None:
    """Chooses, sometimes, a rank whose own piece is already elsewhere, to pass a piece on."""
    return gave[choose(len(gave) - 1)] if gave and choose(5) == 5 else None
