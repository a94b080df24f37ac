"""rows: the thread blocks that a timeline shows: ranks whose timelines are alike are shown once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I8, starts
from hccc.pictures.primitive_text import PrimitiveText
from hccc.sim.simulate import Run

STEP = 1.2345e-4  # of the whole time: what times may differ by and count as the same
EACH = 24  # rows: so many show every rank, alike or not


@dataclass(frozen=True, slots=True)
class RankRows:
    """The rows of one rank.

    `alike`: the other ranks that it stands for; `blocks`: its thread blocks that have a row,
    numbered over all ranks; `hidden`: the number of its blocks without one.
    """

    rank: int
    alike: tuple[int, ...]
    blocks: range
    hidden: int


@dataclass(frozen=True, slots=True)
class ShownRanks:
    """The ranks to show, ascending; `left_out`: ranks like none of them; `idle`: those without
    thread blocks."""

    shown: tuple[RankRows, ...]
    left_out: tuple[int, ...]
    idle: tuple[int, ...]


def shown_ranks(run: Run, texts: PrimitiveText, critical: I8, most: int) -> ShownRanks:
    """Returns the ranks that `most` rows have room for. O(primitives).

    These are all ranks if their blocks are few (EACH); else one of each kind, the kinds with most
    of the critical path first.
    """
    plan = run.machine.plan
    ends = starts(plan.n_tb).tolist()
    weight = np.bincount(texts.rank[critical // run.batches], minlength=plan.n_ranks)
    whole = ends[-1] <= min(most, EACH)
    groups = [[r] for r in range(plan.n_ranks)] if whole else _alike(run, texts)
    groups = [g for g in groups if ends[g[0]] < ends[g[0] + 1]]
    groups.sort(key=lambda g: (-int(weight[g].max()), g[0]))
    shown: list[RankRows] = []
    left_out: list[int] = []
    room = most
    for group in groups:
        rank = group[int(np.argmax(weight[group]))]
        first, stop = ends[rank], ends[rank + 1]
        if stop - first > room and shown:
            left_out += group
            continue
        kept = min(stop - first, room)
        room -= kept
        others = tuple(r for r in group if r != rank)
        shown.append(RankRows(rank, others, range(first, first + kept), stop - first - kept))
    idle = tuple(r for r in range(plan.n_ranks) if ends[r] == ends[r + 1])
    return ShownRanks(tuple(sorted(shown, key=lambda s: s.rank)), tuple(sorted(left_out)), idle)


def _alike(run: Run, texts: PrimitiveText) -> list[list[int]]:
    """Returns groups of ranks whose blocks do the same kinds of work at the same times."""
    plan = run.machine.plan
    step = max(run.time * STEP, 1e-12)
    first = run.begin.reshape(-1, run.batches)[:, 0]
    columns = [texts.kind, *(np.rint(x / step) for x in (first, run.primitive_end))]
    table = np.stack(columns, 1).astype(np.int64)
    found: dict[tuple[bytes, bytes], list[int]] = {}
    start = 0
    for rank in range(plan.n_ranks):
        stop = start + int(plan.n_tb[rank])
        begin, end = int(plan.tb_ptr[start]), int(plan.tb_ptr[stop])
        key = np.diff(plan.tb_ptr[start : stop + 1]).tobytes(), table[begin:end].tobytes()
        found.setdefault(key, []).append(rank)
        start = stop
    return list(found.values())
