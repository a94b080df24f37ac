"""grid: a Pipeline as a table: the transfer that uses each resource in each sub-pipeline.

Rows are resources (a link, a NIC out or in, a switch), columns sub-pipelines. Rows with copies and
reductions in the same columns are alike. Of a large Pipeline the resources of one class (inside
nodes or between them; a link, a port out or a port in) are one row, several sub-pipelines one
column, and a cell counts transfers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir import text
from hccc.ir.arrays import I8
from hccc.ir.hashing import GOLDEN, mixed
from hccc.ir.pipeline import Pipeline
from hccc.ir.program import Op


@dataclass(frozen=True, slots=True, eq=False)
class ResourceRow:
    """One resource, and how many are alike, itself counted. sub, chunk, op, task: i8[cells] by
    ascending sub-pipeline."""

    name: str
    alike: int
    sub: I8
    chunk: I8
    op: I8
    task: I8


@dataclass(frozen=True, slots=True, eq=False)
class ResourceGrid:
    """`rows`: a row of each kind; `total`: resources in use; `busy`: cells taken."""

    rows: tuple[ResourceRow, ...]
    total: int
    busy: int


@dataclass(frozen=True, slots=True, eq=False)
class ClassRow:
    """The resources of one class. copies, reductions: i8[columns], transfers that use one."""

    name: str
    resources: int
    copies: I8
    reductions: I8


@dataclass(frozen=True, slots=True, eq=False)
class ClassGrid:
    """`rows`: the classes that occur; column c has the sub-pipelines bounds[c] to bounds[c + 1];
    total, busy: as in ResourceGrid."""

    rows: tuple[ClassRow, ...]
    bounds: I8
    total: int
    busy: int


ROLES = ("out of a rank", "into a rank", "of its own")
_CLASSES = (
    ("ports out, inside nodes", "NICs out"),
    ("ports in, inside nodes", "NICs in"),
    ("links inside nodes", "links between nodes"),
)  # by role, then by whether anything that uses it crosses nodes


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Every use of a resource: i8[m] each, by resource and sub-pipeline; role: of ROLES. first:
    i8[resources + 1]."""

    task: I8
    sub: I8
    role: I8
    first: I8


def grid(pipeline: Pipeline, one_by_one: int) -> ResourceGrid:
    """Returns the table; alike rows are put together if there are more than `one_by_one`.

    O(tasks log tasks), whole arrays at a time.
    """
    cells = _cells(pipeline)
    total = len(cells.first) - 1
    if total <= one_by_one:
        groups = [np.array([r]) for r in range(total)]
    else:
        groups = _alike(pipeline, cells)
    rows = [_row(pipeline, cells, group) for group in groups]
    rows.sort(key=lambda row: (int(row.sub[0]), -len(row.sub)) if total > one_by_one else (0, 0))
    return ResourceGrid(tuple(rows), total, len(cells.task))


def class_grid(pipeline: Pipeline, most: int) -> ClassGrid:
    """Returns the table by classes of resources, in at most `most` columns of equally many
    sub-pipelines (the last may have fewer).

    O(tasks log tasks), whole arrays at a time.
    """
    cells = _cells(pipeline)
    each = -(-pipeline.n_sub // most)
    bounds = np.minimum(np.arange(-(-pipeline.n_sub // each) + 1) * each, pipeline.n_sub)
    t, node = pipeline.dag.program.transfers, pipeline.dag.topology.node
    crosses = node[t["src"]] != node[t["dst"]]
    far = np.maximum.reduceat(crosses[cells.task], cells.first[:-1])
    of_resource = cells.role[cells.first[:-1]] * 2 + far
    of_cell = np.repeat(of_resource, np.diff(cells.first))
    reduces = t["op"][cells.task] == Op.RRC
    rows = []
    for i in np.unique(of_resource).tolist():
        mine = of_cell == i
        copies, reductions = (
            np.bincount(cells.sub[mine & op] // each, minlength=len(bounds) - 1)
            for op in (~reduces, reduces)
        )
        name = _CLASSES[i // 2][i % 2]
        rows.append(ClassRow(name, int((of_resource == i).sum()), copies, reductions))
    return ClassGrid(tuple(rows), bounds, len(of_resource), len(cells.task))


def _cells(pipeline: Pipeline) -> _Cells:
    dag, order = pipeline.dag, pipeline.order
    sub, tx, rx = pipeline.sub_of_position(), dag.tx[order], dag.rx[order]
    apart = tx != rx
    resource = np.concatenate([tx, rx[apart]]).astype(np.int64)
    task = np.concatenate([order, order[apart]])
    role = np.concatenate([np.where(apart, 0, 2), np.ones(int(apart.sum()), np.int64)])
    subs = np.concatenate([sub, sub[apart]])
    by = np.lexsort((subs, resource))
    first = np.flatnonzero(np.r_[len(by) > 0, np.diff(resource[by]) != 0, True][: len(by) + 1])
    return _Cells(task[by], subs[by], role[by], first)


def _alike(pipeline: Pipeline, cells: _Cells) -> list[I8]:
    """Returns groups of resources with the same columns and operations, by first occurrence.

    Rows are compared by two sums of 64 random bits a cell, that is by 128 bits.
    """
    op = pipeline.dag.program.transfers["op"][cells.task]
    key = (cells.sub.astype(np.uint64) * np.uint64(4) + op.astype(np.uint64)) * np.uint64(2)
    sums = [np.add.reduceat(mixed((key + np.uint64(i)) * GOLDEN), cells.first[:-1]) for i in (0, 1)]
    _, first, which = np.unique(np.stack(sums, 1), axis=0, return_index=True, return_inverse=True)
    members = np.split(
        np.argsort(which.ravel(), kind="stable"), np.cumsum(np.bincount(which.ravel()))
    )
    return [members[i] for i in np.argsort(first, kind="stable")]


def _row(pipeline: Pipeline, cells: _Cells, group: I8) -> ResourceRow:
    at = slice(int(cells.first[group[0]]), int(cells.first[group[0] + 1]))
    task = cells.task[at]
    t = pipeline.dag.program.transfers[task]
    return ResourceRow(
        _name(pipeline, cells, int(group[0])),
        len(group),
        cells.sub[at],
        t["chunk"].astype(np.int64),
        t["op"].astype(np.int64),
        task,
    )


def _name(pipeline: Pipeline, cells: _Cells, resource: int) -> str:
    """Returns a resource's name by its users: `0 → 1`, `ranks 0, 1 out`."""
    at = slice(int(cells.first[resource]), int(cells.first[resource + 1]))
    t = pipeline.dag.program.transfers[cells.task[at]]
    src, dst = np.unique(t["src"]).tolist(), np.unique(t["dst"]).tolist()
    role = int(cells.role[at].max())
    if role == 0:
        return f"{text.named('rank', src, 3)} out"
    if role == 1:
        return f"{text.named('rank', dst, 3)} in"
    return f"{text.runs(src, 3)} → {text.runs(dst, 3)}"
