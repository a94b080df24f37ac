"""expand: makes of a Job the Program of the transfers that its steps amount to.

A part becomes as many chunks as any border cuts it into pieces (`VendorClusters.cuts`), and a step
the transfers of one step between ranks: where a library reduces to a rank, every other rank reduces
into it. Cuts are shares of a part, so the Program is that of every message size: a smaller part
only has empty pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import Source, Span
from hccc.ir.arrays import I8
from hccc.ir.collective import Collective
from hccc.ir.job import NOBODY, Job, JobOp, VendorClusters
from hccc.ir.program import TRANSFER, Op, Program

Rows = NDArray[np.int64]  # [n, 3]: source, destination, piece


@dataclass(frozen=True, slots=True)
class _StepOrigin:
    """The places of a Program's transfers: those of the steps of the Job it comes from."""

    job: Job
    steps: I8

    @property
    def source(self) -> Source | None:
        """The text of the Job."""
        header = self.header("")
        return header.source if header else None

    def place(self, transfer: int) -> tuple[Span | None, dict[str, int]]:
        """Returns the place of the transfer's step."""
        return self.job.span(int(self.steps[transfer])), {}

    def header(self, _: str) -> Span | None:
        """Returns the place of the header."""
        return self.job.origin.line(0) if self.job.origin else None


def expand(job: Job) -> Program:
    """Returns the Program of a sound Job; a transfer's step is the number of the Job's step.

    O(transfers), and a template for each kind of step.
    """
    v, c = job.clusters, job.collective
    owners = v.owners()
    pieces = owners.shape[1]
    names = ["op", "src", "dst", "sender", "receiver"]
    keys = np.stack([job.steps[name] for name in names], axis=1).reshape(len(job), len(names))
    kinds, kind = np.unique(keys, axis=0, return_inverse=True)
    templates = [_template(v, owners, c.chunks_per_block, *row) for row in kinds.tolist()]
    ptr = np.cumsum([0, *map(len, templates)])
    count = np.diff(ptr)[kind.reshape(-1)] if len(job) else np.zeros(0, np.int64)
    step = np.repeat(np.arange(len(job)), count)
    begin = np.repeat(np.cumsum(count) - count, count)
    row = ptr[kind.reshape(-1)[step]] + np.arange(len(step)) - begin
    rows = np.concatenate([*templates, np.zeros((0, 3), np.int64)])[row]
    table = np.zeros(len(step), TRANSFER)
    table["src"], table["dst"], table["step"] = rows[:, 0], rows[:, 1], step
    table["chunk"] = job.steps["part"][step].astype(np.int64) * pieces + rows[:, 2]
    table["line"] = job.steps["line"][step]
    table["op"] = np.where(
        np.isin(job.steps["op"][step], [JobOp.REDUCE, JobOp.C2C_RED]), Op.RRC, Op.RECV
    )
    whole = Collective(c.op, c.n_ranks, c.n_chunks * pieces, c.root, c.uneven)
    return Program(job.name, whole, 1, 16, 1, 1, table, _StepOrigin(job, step))


def _template(
    v: VendorClusters, owners: I8, per: int, op: int, src: int, dst: int, sender: int, receiver: int
) -> Rows:
    """Returns the transfers of a step of part 0; `per` parts are a block."""
    every, ranks = np.arange(owners.shape[1]), np.array(v.members(src))
    own, other = owners[src], owners[dst]
    match JobOp(op):
        case JobOp.REDUCE:
            to = own if receiver == NOBODY else np.full_like(own, receiver)
            rows = _crossed(ranks, every)[:, [0, 0, 1]]
            rows[:, 1] = to[rows[:, 2]]
        case JobOp.BROADCAST:
            start = own if sender == NOBODY else np.full_like(own, sender)
            rows = _crossed(ranks, every)[:, [0, 0, 1]]
            rows[:, 0] = start[rows[:, 2]]
        case JobOp.ALLGATHER:
            pairs = _crossed(ranks, ranks)
            which = _crossed(np.arange(len(pairs)), every)
            rows = np.column_stack([pairs[which[:, 0]], which[:, 1]])
            rows[:, 2] += rows[:, 0] * per * len(every)
        case JobOp.GATHER:
            rows = _columns(own, receiver, every)
        case JobOp.SCATTER:
            rows = _columns(sender, own, every)
        case JobOp.SEND:
            rows = _columns(sender, receiver, every)
        case JobOp.C2C_CPY | JobOp.C2C_RED:
            source = own if sender == NOBODY else sender
            rows = _columns(source, other if receiver == NOBODY else receiver, every)
    moving: Rows = rows[rows[:, 0] != rows[:, 1]]
    return moving


def _columns(source: I8 | int, destination: I8 | int, piece: I8) -> Rows:
    return np.stack(np.broadcast_arrays(source, destination, piece), axis=1).astype(np.int64)


def _crossed(a: I8, b: I8) -> Rows:
    """Returns every pair of an entry of `a` and one of `b`."""
    return np.stack([np.repeat(a, len(b)), np.tile(b, len(a))], axis=1).astype(np.int64)
