"""Pipeline: the tasks of a Dag in sub-pipelines, in one total order (ResCCL §4.3, Alg. 1).

Invariants
1. Every task occurs once in `order`.
2. `order` is a linear extension of the Dag.
3. No two tasks of one sub-pipeline share a resource.

Printed: one sub-pipeline a line, `0: [0 → 1 chunk 3 rrc] …`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I4, I8, frozen
from hccc.ir.dag import Dag, task_text


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """order: i4[n] task ids; start: i8[k + 1]; sub-pipeline k is `order[start[k]:start[k + 1]]`."""

    dag: Dag
    order: I4
    start: I8

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", frozen(self.order, np.int32))
        object.__setattr__(self, "start", frozen(self.start, np.int64))

    @property
    def n_sub(self) -> int:
        """The number of sub-pipelines."""
        return len(self.start) - 1

    def sub_of_position(self) -> I4:
        """Returns the sub-pipeline of every position of `order`: i4[n]."""
        return np.repeat(np.arange(self.n_sub, dtype=np.int32), np.diff(self.start))


def lines(pipeline: Pipeline) -> Iterator[str]:
    """Prints the Pipeline, one sub-pipeline per line."""
    program = pipeline.dag.program
    yield f"# {program.name}: {len(pipeline.order)} tasks in {pipeline.n_sub} sub-pipelines"
    for k in range(pipeline.n_sub):
        tasks = pipeline.order[pipeline.start[k] : pipeline.start[k + 1]]
        yield f"{k}: " + " ".join(f"[{task_text(program, int(t))}]" for t in tasks)


def check(pipeline: Pipeline) -> list[str]:
    """Lists the invariants that `pipeline` breaks, in words; empty when it is sound. O(n log n)."""
    dag, order = pipeline.dag, pipeline.order
    if not np.array_equal(np.sort(order), np.arange(len(dag))):
        return ["a task is missing from the order, or occurs twice"]
    problems = []
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    if (position[dag.preds.index] >= position[dag.preds.owner()]).any():
        problems.append("a task comes before one that it depends on")
    sub = pipeline.sub_of_position()
    tx, rx = dag.tx[order], dag.rx[order]
    used = np.stack([np.concatenate([sub, sub[tx != rx]]), np.concatenate([tx, rx[tx != rx]])], 1)
    if len(np.unique(used, axis=0)) != len(used):
        problems.append("two tasks of a sub-pipeline share a resource")
    return problems
