"""job_reference: jobs in plain Python, random vendor clusters, what each step does to elements.

It shares no code with `expand`: borders are cut here in whole elements of one size, and every step
is done on places of memory, input and working memory, of which none is read before it is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from hccc.ir.collective import Collective, OpType
from hccc.ir.job import Job, JobOp, VendorClusters, vendor_clusters

Value = dict[int, int]  # an element: 1 for each rank whose input is in it


@st.composite
def clusters(draw: st.DrawFn) -> VendorClusters:
    """Draws 1 to 4 vendor clusters of 1 to 5 ranks, numbered anyhow, with borders and weights."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    ranks = draw(st.permutations(range(sum(sizes))))
    rows = []
    for c, size in enumerate(sizes):
        mine, ranks = ranks[:size], ranks[size:]
        border = draw(st.lists(st.sampled_from(mine), min_size=1, unique=True))
        weight = [draw(st.integers(1, 3)) for _ in border]
        rows.append((f"v{c}", list(mine), border, weight))
    return vendor_clusters(rows)


@dataclass
class Memory:
    """What every rank has of every element of every part; sent: elements over each border."""

    job: Job
    n: int
    held: dict[tuple[int, int], list[Value | None]] = field(default_factory=dict)
    sent: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        c = self.job.collective
        for r in range(c.n_ranks):
            for part in range(c.n_chunks):
                has = starts(c, r, part)
                self.held[r, part] = [{r: 1} if has else None for _ in range(self.n)]

    def run(self) -> None:
        """Does all steps, one after another."""
        for step in self.job.steps.tolist():
            self._step(*step[:-1])

    def _step(self, op: int, src: int, dst: int, part: int, sender: int, receiver: int) -> None:
        v, kind = self.job.clusters, JobOp(op)
        if kind is JobOp.ALLGATHER:
            for r in v.members(src):
                for to in v.members(src):
                    block = r * self.job.collective.chunks_per_block + part
                    self._move(r, to, block, range(self.n), kind)
            return
        for i in range(self.n):
            own, other = (_owner(v, c, i, self.n) for c in (src, dst))
            near = own if sender < 0 else sender
            far = other if receiver < 0 else receiver
            every = [r for r in v.members(src)]
            pairs = {
                JobOp.REDUCE: [(r, far) for r in every],
                JobOp.BROADCAST: [(near, r) for r in every],
            }.get(kind, [(near, far)])
            for a, b in pairs:
                self._move(a, b, part, range(i, i + 1), kind)
            if kind.crosses:
                self.sent[src, dst] = self.sent.get((src, dst), 0) + 1

    def _move(self, a: int, b: int, part: int, elements: range, kind: JobOp) -> None:
        if a == b:
            return
        for i in elements:
            value = self.held[a, part][i]
            assert value is not None, f"rank {a} reads part {part} before it is written"
            new = dict(value)
            if kind.reduces:
                there = self.held[b, part][i]
                assert there is not None, f"rank {b} reduces into nothing of part {part}"
                assert not {*value} & {*there}, f"rank {b} adds of part {part} what is in it"
                new = value | there
            self.held[b, part][i] = new

    def right(self) -> bool:
        """Tells whether every rank has what the collective wants there."""
        c = self.job.collective
        for r in range(c.n_ranks):
            for part in range(c.n_chunks):
                want = {s: 1 for s in range(c.n_ranks) if starts(c, s, part)}
                if ends(c, r, part) and any(v != want for v in self.held[r, part]):
                    return False
        return True


def _owner(v: VendorClusters, c: int, i: int, n: int) -> int:
    """Finds the border rank that has element i of n: cumulative weights, rounded down."""
    begin, end = int(v.borders.ptr[c]), int(v.borders.ptr[c + 1])
    weight = v.weight[begin:end].tolist()
    total, before = sum(weight), 0
    for rank, w in zip(v.border(c), weight, strict=True):
        before += w
        if i < n * before // total:
            return rank
    raise AssertionError("no border rank has it")


def _block(c: Collective, part: int) -> int:
    return part // c.chunks_per_block


def starts(c: Collective, r: int, part: int) -> bool:
    """Tells whether a rank has an input of a part, from the table in `ir/collective`."""
    block = _block(c, part)
    match c.op:
        case OpType.ALLREDUCE | OpType.REDUCE | OpType.REDUCESCATTER:
            return True
        case OpType.BROADCAST | OpType.SCATTER:
            return r == c.root
        case OpType.ALLTOALL:
            return r == block // c.n_ranks
        case _:
            return r == block


def ends(c: Collective, r: int, part: int) -> bool:
    """Tells whether a rank must end with a part."""
    block = _block(c, part)
    match c.op:
        case OpType.ALLREDUCE | OpType.ALLGATHER | OpType.BROADCAST:
            return True
        case OpType.REDUCE | OpType.GATHER:
            return r == c.root
        case OpType.ALLTOALL:
            return r == block % c.n_ranks
        case OpType.SENDRECV:
            return r == (block + 1) % c.n_ranks
        case _:
            return r == block


def is_right(job: Job, n: int) -> bool:
    """Tells whether a job does its collective, of n elements of each part."""
    memory = Memory(job, n)
    try:
        memory.run()
    except AssertionError:
        return False
    return memory.right()
