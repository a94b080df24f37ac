"""Dag: the data dependencies of a Program's tasks and the resources each occupies.

Task i is row i of the Program's table. Two tasks depend on each other when they access the same
(rank, chunk) and one of them changes it: a read waits for the write before it, a write for the
reads (or, without any, the write) before it (ResCCL §3, §4.1). Reads of the send buffer are
waited for only where, in place, the write could overwrite it.

Invariants
1. Every predecessor of a task comes earlier in the table: the Dag is acyclic.
2. A predecessor accessed the same (rank, chunk), and it or its successor wrote it.
3. `initial[i] & 1`: task i reads its source's chunk as it was at the start (from the send
   buffer, ResCCL §4.2); `initial[i] & 2`: an rrc reduces into such a chunk.

Printed: `12: 0 → 1 chunk 3 rrc  link 4  after 3 7`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I4, U1, Csr, frozen
from hccc.ir.program import Op, Program
from hccc.ir.topology import Topology

SOURCE_INITIAL = 1
TARGET_INITIAL = 2


@dataclass(frozen=True, slots=True, eq=False)
class Dag:
    """`preds`: Csr[n tasks]; `initial`: u1[n]; `tx`, `rx`: i4[n], the two resources of `topology`
    that only one task of a sub-pipeline may use (`routes.resources`)."""

    program: Program
    preds: Csr
    initial: U1
    tx: I4
    rx: I4
    topology: Topology

    def __post_init__(self) -> None:
        object.__setattr__(self, "initial", frozen(self.initial, np.uint8))
        object.__setattr__(self, "tx", frozen(self.tx, np.int32))
        object.__setattr__(self, "rx", frozen(self.rx, np.int32))

    def __len__(self) -> int:
        return len(self.preds)


def task_text(p: Program, i: int) -> str:
    """Writes a task as `0 → 1 chunk 3 rrc`."""
    t = p.transfers[i]
    return f"{t['src']} → {t['dst']} chunk {t['chunk']} {Op(int(t['op'])).name.lower()}"


def lines(dag: Dag) -> Iterator[str]:
    """Prints the Dag, one task per line."""
    yield f"# {dag.program.name}: {len(dag)} tasks, {len(dag.preds.index)} dependencies"
    for i in range(len(dag)):
        tx, rx = int(dag.tx[i]), int(dag.rx[i])
        link = f"link {tx}" if tx == rx else f"nic {tx} → {rx}"
        after = " ".join(map(str, dag.preds.row(i).tolist()))
        yield f"{i}: {task_text(dag.program, i)}  {link}{f'  after {after}' if after else ''}"


def check(dag: Dag) -> list[str]:
    """Lists the invariants that `dag` breaks, in words; empty when it is sound. O(n +
    dependencies)."""
    t, row, pred = dag.program.transfers, dag.preds.owner(), dag.preds.index
    problems = []
    if (pred >= row).any():
        problems.append("a predecessor does not come earlier in the table")
    meets = t["dst"][pred] == t["src"][row]
    meets |= (t["dst"][pred] == t["dst"][row]) | (t["src"][pred] == t["dst"][row])
    if not (meets & (t["chunk"][pred] == t["chunk"][row])).all():
        problems.append("a predecessor did not access the same (rank, chunk), or neither wrote it")
    return problems
