"""times: when each transfer of a text runs, in a simulated call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.api.arguments import simulated
from hccc.base.sizes import size_of
from hccc.driver.inputs import ProgramInput
from hccc.driver.options import Options
from hccc.editors.subject import ReadText
from hccc.ir import text as words
from hccc.ir.arrays import I8
from hccc.ir.topology import F8
from hccc.pictures.primitive_text import primitive_text
from hccc.predict.jobs import simulate_job
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, Run, simulate


@dataclass(frozen=True, slots=True, eq=False)
class TransferTimes:
    """begin, end: of each transfer, µs from the beginning of the call, nan where it is part of
    another's work; cluster, size: in words."""

    begin: F8
    end: F8
    cluster: str
    size: str

    def text(self, row: int) -> str:
        """Describes when a transfer runs."""
        begin, end = float(self.begin[row]), float(self.end[row])
        known = np.isfinite(begin) and np.isfinite(end)
        return f"{words.number(begin)} to {words.number(end)}" if known else "with another"


_known: dict[object, TransferTimes] = {}


def times(subject: ReadText) -> TransferTimes:
    """Simulates one call of a program or a job, on the cluster that was named or else on common
    nodes of as many GPUs. Raises UserError for what cannot be simulated."""
    if subject.text not in _known:
        while len(_known) > 3:
            _known.pop(next(iter(_known)))
        _known[subject.text] = _of_job(subject) if subject.job else _of_program(subject)
    return _known[subject.text]


def _of_program(subject: ReadText) -> TransferTimes:
    size = size_of(subject.text.size)
    assert subject.program is not None
    given = ProgramInput(subject.program)
    compiled, where = simulated(given, subject.topology, Options(sizes=f"{size}..{size}"))
    plan = compiled.at(size, False).plan
    run = simulate(prepare(plan, where), Request(size))
    begin, end = _each(subject, run)
    return TransferTimes(begin, end, where.name, words.size(size))


def _each(subject: ReadText, run: Run) -> tuple[F8, F8]:
    """Returns begin and end of each transfer: of the primitives at one of its ends that move its
    chunk from or to the other. Where several do, one after the other, they are in its order."""
    assert subject.program is not None
    table, plan = subject.program.transfers, run.machine.plan
    texts = primitive_text(plan)
    found: dict[tuple[int, int, int], list[int]] = {}
    for p in range(len(plan)):
        here, chunk = int(texts.rank[p]), int(plan.chunk[p])
        for there in texts.sources.row(p).tolist():
            found.setdefault((there, here, chunk), []).append(p)
        for there in texts.targets.row(p).tolist():
            found.setdefault((here, there, chunk), []).append(p)
    begins = run.ready.reshape(-1, run.batches).min(1)
    ends = run.primitive_end
    begin, end = np.full(len(table), np.nan), np.full(len(table), np.nan)
    keys = [tuple(row) for row in np.stack([table[n] for n in ("src", "dst", "chunk")], 1).tolist()]
    rows: dict[tuple[int, ...], list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    for key, same in rows.items():
        some = sorted(found.get((key[0], key[1], key[2]), ()), key=lambda p: float(begins[p]))
        for k, row in enumerate(same):
            part = some[k * len(some) // len(same) : (k + 1) * len(some) // len(same)]
            if part:
                begin[row], end[row] = begins[part].min(), ends[part].max()
    return begin + run.launch, end + run.launch


def _of_job(subject: ReadText) -> TransferTimes:
    assert subject.job is not None and subject.topology is not None and subject.program is not None
    size = size_of(subject.text.size)
    run = simulate_job(subject.job, subject.topology, [size]).runs[0]
    step: I8 = subject.program.transfers["step"].astype(np.int64)
    begin = np.full(len(subject.job), np.inf)
    end = np.zeros(len(subject.job))
    for task in run.tasks:
        begin[task.step] = min(begin[task.step], task.begin)
        end[task.step] = max(end[task.step], task.end)
    launch = run.time - float(end.max(initial=0.0))
    cluster = subject.topology.name
    return TransferTimes(begin[step] + launch, end[step] + launch, cluster, words.size(size))
