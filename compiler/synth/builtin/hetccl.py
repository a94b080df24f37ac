"""hetccl: HetCCL's breakdown of the collectives over vendor clusters (PKU; Algorithm 1, Table 7).

Every part crosses each border once: reductions and copies go around a ring of the vendor clusters,
what has one reader goes there directly. Where Table 7 and what is optimal differ, the steps are
what is optimal (docs/jobs.md): where the last step is a reduction with neutral elements, it is a
send; a rank that is a border rank itself sends and receives its own blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from hccc.ir.collective import PROGRAMMABLE, Collective, OpType, block_count
from hccc.ir.job import JOB_STEP, NOBODY, Job, JobOp, VendorClusters

OPS = tuple(op for op in PROGRAMMABLE if op is not OpType.SENDRECV)
Row = tuple[int, ...]


def hetccl(v: VendorClusters, op: OpType, root: int = 0, uneven: bool = False) -> Job:
    """Returns the Job of `op` over vendor clusters; uneven: every block has a length of its own.
    O(steps): at most C² for each block."""
    n = v.n_ranks
    per = len(v) if op is OpType.ALLREDUCE else 1
    c = Collective(op, n, block_count(op, n) * per, root, uneven)
    rows = [(*row, 0) for row in _STEPS[op](_StepMaker(v), c)]
    steps = (
        np.array(rows, np.int32).reshape(-1, len(JOB_STEP.names or ())).view(JOB_STEP).reshape(-1)
    )
    return Job(f"hetccl_{c.name.lower()}", c, v, steps)


class _StepMaker:
    """Makes rows of steps over vendor clusters."""

    def __init__(self, v: VendorClusters) -> None:
        self.all = range(len(v))
        self._of = v.of_ranks().tolist()
        self._border = set(v.borders.index.tolist())

    def of(self, rank: int) -> int:
        """Returns the vendor cluster of a rank."""
        return int(self._of[rank])

    def end(self, rank: int) -> int:
        """Returns a border rank itself, NOBODY of another."""
        return rank if rank in self._border else NOBODY

    def ring(self, first: int) -> list[int]:
        """Returns all vendor clusters, from `first` on."""
        return [(first + k) % len(self.all) for k in self.all]

    def home(self, op: JobOp, c: int, part: int, sender: int = NOBODY, to: int = NOBODY) -> Row:
        """Returns a step within vendor cluster `c`."""
        return int(op), c, c, part, sender, to

    def along(self, op: JobOp, ring: list[int], part: int) -> Iterator[Row]:
        """Yields a step from each vendor cluster of a ring to the next."""
        for a, b in pairwise(ring):
            yield int(op), a, b, part, NOBODY, NOBODY

    def one(self, source: int, target: int, part: int, *, root_ends: int) -> Iterator[Row]:
        """Yields the steps of a part from one rank to one other.

        root_ends: a rank whose parts are spread over all border ranks; NOBODY for none.
        """
        a, b = self.of(source), self.of(target)
        if a == b:
            if source != target:
                yield self.home(JobOp.SEND, a, part, source, target)
            return
        sender = NOBODY if source == root_ends else self.end(source)
        receiver = NOBODY if target == root_ends else self.end(target)
        if sender == NOBODY:
            yield self.home(JobOp.SCATTER, a, part, sender=source)
        yield int(JobOp.C2C_CPY), a, b, part, sender, receiver
        if receiver == NOBODY:
            yield self.home(JobOp.GATHER, b, part, to=target)


def _allreduce(r: _StepMaker, c: Collective) -> Iterator[Row]:
    for part in range(c.n_chunks):
        yield from (r.home(JobOp.REDUCE, x, part) for x in r.all)
    for part in range(c.n_chunks):
        yield from r.along(JobOp.C2C_RED, r.ring(part + 1), part)
    for part in range(c.n_chunks):
        yield from r.along(JobOp.C2C_CPY, r.ring(part), part)
    for part in range(c.n_chunks):
        yield from (r.home(JobOp.BROADCAST, x, part) for x in r.all)


def _reducescatter(r: _StepMaker, c: Collective) -> Iterator[Row]:
    for part in range(c.n_chunks):
        yield from (r.home(JobOp.REDUCE, x, part) for x in r.all)
    for part in range(c.n_chunks):
        yield from r.along(JobOp.C2C_RED, r.ring(r.of(part) + 1), part)
    for part in range(c.n_chunks):
        yield r.home(JobOp.GATHER, r.of(part), part, to=part)


def _reduce(r: _StepMaker, c: Collective) -> Iterator[Row]:
    yield from (r.home(JobOp.REDUCE, x, 0) for x in r.all)
    yield from r.along(JobOp.C2C_RED, r.ring(r.of(c.root) + 1), 0)
    yield r.home(JobOp.GATHER, r.of(c.root), 0, to=c.root)


def _broadcast(r: _StepMaker, c: Collective) -> Iterator[Row]:
    home = r.of(c.root)
    yield r.home(JobOp.BROADCAST, home, 0, sender=c.root)
    yield from r.along(JobOp.C2C_CPY, r.ring(home), 0)
    yield from (r.home(JobOp.BROADCAST, x, 0) for x in r.ring(home)[1:])


def _allgather(r: _StepMaker, c: Collective) -> Iterator[Row]:
    yield from (r.home(JobOp.ALLGATHER, x, 0) for x in r.all)
    for hop in range(len(r.all) - 1):  # all blocks one hop on, before any goes two
        for part in range(c.n_chunks):
            a, b = r.ring(r.of(part))[hop : hop + 2]
            yield int(JobOp.C2C_CPY), a, b, part, NOBODY, NOBODY
        for part in range(c.n_chunks):
            yield r.home(JobOp.BROADCAST, r.ring(r.of(part))[hop + 1], part)


def _gather(r: _StepMaker, c: Collective) -> Iterator[Row]:
    for part in range(c.n_chunks):
        yield from r.one(part, c.root, part, root_ends=c.root)


def _scatter(r: _StepMaker, c: Collective) -> Iterator[Row]:
    for part in range(c.n_chunks):
        yield from r.one(c.root, part, part, root_ends=c.root)


def _alltoall(r: _StepMaker, c: Collective) -> Iterator[Row]:
    for part in range(c.n_chunks):
        yield from r.one(part // c.n_ranks, part % c.n_ranks, part, root_ends=NOBODY)


_STEPS: dict[OpType, Callable[[_StepMaker, Collective], Iterator[Row]]] = {
    OpType.ALLREDUCE: _allreduce,
    OpType.REDUCESCATTER: _reducescatter,
    OpType.REDUCE: _reduce,
    OpType.BROADCAST: _broadcast,
    OpType.ALLGATHER: _allgather,
    OpType.GATHER: _gather,
    OpType.SCATTER: _scatter,
    OpType.ALLTOALL: _alltoall,
}
