"""Plan → the interpreter that `interpreter.h` describes, with the plan as its op table.

The translation unit is the generated one (same constants, launch bounds, neighbours and entry
points) with its straight-line functions replaced by one loop over the table, so the launchers of
`hccc.runtime` take it as they take a generated kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hccc.base.render import render
from hccc.emit.directory import headers
from hccc.emit.kernels import wrap
from hccc.emit.kernels.canonical import canonical
from hccc.emit.kernels.dispatch import DispatchCase
from hccc.emit.kernels.view import FunctionView, TableView, view
from hccc.emit.targets import TARGETS, Target
from hccc.ir.arrays import I8, places_among
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Operands

HEADER = Path(__file__).with_name("interpreter.h")
SHARED_WORDS = 8192  # 32 KiB: two resident blocks and their data fit an SM many times over
_INCLUDE = '#include "hccc/device.h"\n'

OpKind = tuple[str, int, int]  # mode, sources, destinations: what a body is compiled for
Words = list[int]


@dataclass(frozen=True, slots=True)
class OpTable:
    """A plan as words: `start[rank * blocks + tb]` is where a thread block's ops begin."""

    kinds: tuple[OpKind, ...]
    words: tuple[int, ...]
    start: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Returns the words of the longest program."""
        return int(np.diff(self.start).max(initial=0))


def op_table(plan: Plan) -> OpTable:
    """Returns the table of a plan, in the order in which generated code lists operands and
    flags."""
    plan = canonical(plan)
    kinds: dict[OpKind, int] = {}
    words: Words = []
    start: Words = []
    blocks, queue = max(1, int(plan.n_tb.max())), places_among(plan.queues.dst)
    first = np.concatenate([[0], np.cumsum(plan.n_tb)])
    for rank in range(plan.n_ranks):
        for tb in range(blocks):
            start.append(len(words))
            if tb < plan.n_tb[rank]:
                block = int(first[rank]) + tb
                for row in range(int(plan.tb_ptr[block]), int(plan.tb_ptr[block + 1])):
                    words += _op(plan, row, kinds, queue)
    return OpTable(tuple(kinds), tuple(words), (*start, len(words)))


def _op(plan: Plan, row: int, kinds: dict[OpKind, int], queue: I8) -> Words:
    sources, targets = _span(plan.src.ptr, row), _span(plan.dst.ptr, row)
    waits, posts = _span(plan.waits.ptr, row), _span(plan.posts.ptr, row)
    kind = (_mode(plan, row, len(sources)), len(sources), len(targets))
    chunk = int(plan.chunk[row]) % plan.collective.chunks_per_block
    words = [kinds.setdefault(kind, len(kinds)), chunk, len(waits), len(posts)]
    for at in sources:
        words += _operand(plan, plan.src, at, queue, receives=True)
    for at in targets:
        words += _operand(plan, plan.dst, at, queue, receives=False)
    words += [int(plan.waits.index[i]) for i in waits]
    return words + [int(x) for i in posts for x in (plan.posts.rank[i], plan.posts.flag[i])]


def _operand(plan: Plan, operands: Operands, at: int, queue: I8, *, receives: bool) -> Words:
    rank, slot = int(operands.rank[at]), int(operands.slot[at])
    q = plan.queues
    if operands.buffer[at] != Buffer.QUEUE:
        return [int(operands.buffer[at]), rank, slot] + [0] * (5 if len(q) else 0)
    ends = [q.data_flag, q.src, q.credit_flag] if receives else [q.credit_flag, q.dst, q.data_flag]
    numbers = [q.dst[rank], queue[rank], slot, q.length[rank], *(end[rank] for end in ends)]
    return [int(Buffer.QUEUE), *map(int, numbers)]


def _mode(plan: Plan, row: int, sources: int) -> str:
    flags = ["HCCC_REDUCE" if sources > 1 else "HCCC_COPY"]
    flags += ["HCCC_FINAL"] if plan.final[row] else []
    guard = Guard(int(plan.guard[row]))
    flags += [] if guard is Guard.ALWAYS else [f"HCCC_IF_{guard.name}"]
    return " | ".join(flags)


def _span(ptr: I8, row: int) -> range:
    return range(int(ptr[row]), int(ptr[row + 1]))


def source(plan: Plan, target: Target) -> str:
    """Writes the interpreter's translation unit for one target.

    Raises:
        ValueError: a thread block's program does not fit into shared memory.
    """
    table = op_table(plan)
    if table.longest > SHARED_WORDS:
        raise ValueError(f"{plan.name}: {table.longest} words in a program, {SHARED_WORDS} fit")
    made = view(plan, target)
    name = f"{made.name}_interpret"
    blocks = max(1, int(plan.n_tb.max()))
    text = render(
        "kernel.jinja",
        replace(
            made,
            constants=(*made.constants, ("HCCC_OP_WORDS", max(1, table.longest))),
            tables=(
                *(t for t in made.tables if _used(t, made.neighbours)),
                _table("hccc_ops", table.words),
                _table("hccc_op_start", table.start),
            ),
            functions=(_function(name, table.kinds),),
            cases=(DispatchCase(tuple(range(blocks)), (f"return {name}(b);",)),),
        ),
    )
    if text.count(_INCLUDE) != 1:
        raise ValueError("the kernel template no longer includes hccc/device.h once")
    return text.replace(_INCLUDE, f'{_INCLUDE}#include "{HEADER.name}"\n')


def _used(table: TableView, neighbours: object) -> bool:
    """Returns whether the list of neighbours reads a table: the straight-line functions are
    gone."""
    return f"{table.declaration.split()[-1].partition('[')[0]}[" in repr(neighbours)


def _table(name: str, values: Sequence[int]) -> TableView:
    numbers = list(values) or [0]
    lines = wrap.table(numbers, 4)
    return TableView(f"int {name}[{len(numbers)}]", tuple(lines))


def _function(name: str, kinds: Sequence[OpKind]) -> FunctionView:
    lines = [
        "  const hccc_listing ops = hccc_fetch(b, hccc_ops, hccc_op_start);",
        "  HCCC_WINDOWS(b) {",
        "    int prim = 0;",
        "    for (const int* op = ops.begin; op != ops.end; ++prim) {",
        "      switch (op[HCCC_OP_KIND]) {",
    ]
    for number, (mode, k, d) in enumerate(kinds):
        lines.append(f"        case {number}:")
        lines.append(f"          op = hccc_step<{mode}, {k}, {d}>(b, prim, op);")
        lines.append("          break;")
    lines += ["      }", "    }", "  }"]
    comment = "Every thread block: its ops, one after the other."
    return FunctionView(name, "hccc_block& b", comment, tuple(lines))


def files(plan: Plan, targets: Sequence[Target] = TARGETS) -> dict[str, str]:
    """Returns the files of a directory that builds as a generated one does: name → text."""
    made = {f"{plan.name}{target.suffix}": source(plan, target) for target in targets}
    made |= {f"hccc/{name}": body for name, body in headers()}
    return made | {HEADER.name: HEADER.read_text(encoding="utf-8")}


def write(folder: Path, made: dict[str, str]) -> None:
    """Writes `files` into a new folder."""
    for name, text in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
