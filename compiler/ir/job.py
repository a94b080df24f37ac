"""Job: ordered steps over vendor clusters, each the ranks that one vendor's library serves.

Printed, a Job is the second form of the transfer language (docs/jobs.md):

    def HetCCLJob(AlgoName="pair", OpType="Allreduce", nParts=2):
        homColl(0, reduce, part(0))
        c2cRed(0, 1, part(0))

A part is what a chunk is of a Program: the same ids, the same places in user buffers
(`ir/collective`). Wherever a part lies on the borders of a vendor cluster, it is cut there by the
weights of its border ranks, in whole elements. A step sees what all steps before it have written.

| step                       | moves                                                              |
|----------------------------|--------------------------------------------------------------------|
| `homColl(c, reduce, p)`    | the sum over c's ranks, each piece to its border rank, or to `root` |
| `homColl(c, broadcast, p)` | each piece from its border rank, or all from `root`, to c's ranks   |
| `homColl(c, gather, p)`    | each piece from its border rank to `root`                          |
| `homColl(c, scatter, p)`   | from `root` each piece to its border rank                          |
| `homColl(c, allgather, j)` | part j of the block of each of c's ranks to all of them            |
| `homColl(c, send, p)`      | from rank `src` to rank `dst`                                      |
| `c2cCpy(c, d, p)`          | each piece from c's border to d's; from rank `src`, to rank `dst`  |
| `c2cRed(c, d, p)`          | the same, reduced into what is there                               |

Invariants (1 to 4: `check`)
1. Every rank is in one vendor cluster; border ranks are of theirs, one at least, in weights of 1
   and more.
2. Each step names vendor clusters and a part that are there, c2c steps two of them; a root, src or
   dst is a rank of its vendor cluster, in c2c steps a border rank.
3. gather and scatter have a root, send both ends, allgather and c2cRed none; only a collective that
   reduces has reduce and c2cRed.
4. The collective and the name are as in a Program.
5. After `verify_job`: the result holds at every rank, and no part crosses a border for nothing.

Source: HetCCL (PKU and BAAI) §4.2, Algorithm 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import Span
from hccc.base.shown import brief
from hccc.ir.arrays import I4, Csr, frozen
from hccc.ir.collective import Collective, block_count
from hccc.ir.limits import MAX_CHUNKS, MAX_RANKS
from hccc.ir.names import IDENTIFIER, objection
from hccc.ir.text import runs

MAX_WEIGHT = 1 << 20
JOB_STEP = np.dtype(
    [(name, "i4") for name in ("op", "src", "dst", "part", "sender", "receiver", "line")]
)
NOBODY = -1


class JobOp(IntEnum):
    """What a step does; the last two between vendor clusters."""

    REDUCE = 0
    BROADCAST = 1
    GATHER = 2
    SCATTER = 3
    ALLGATHER = 4
    SEND = 5
    C2C_CPY = 6
    C2C_RED = 7

    @property
    def crosses(self) -> bool:
        """Whether it is a step between two vendor clusters."""
        return self >= JobOp.C2C_CPY

    @property
    def reduces(self) -> bool:
        """Whether it combines."""
        return self in (JobOp.REDUCE, JobOp.C2C_RED)


HOM_OPS = tuple(op for op in JobOp if not op.crosses)
# The ends that a step must name, and those that it may name besides: (sender, receiver).
NEEDS = {
    JobOp.GATHER: (False, True),
    JobOp.SCATTER: (True, False),
    JobOp.SEND: (True, True),
}
MAY = {
    JobOp.REDUCE: (False, True),
    JobOp.BROADCAST: (True, False),
    JobOp.C2C_CPY: (True, True),
    **NEEDS,
}


@dataclass(frozen=True, slots=True, eq=False)
class VendorClusters:
    """The vendor clusters of a job: C rows.

    vendors: of each; ranks: in the order of the library's own ranks; borders: the ranks that have
    the links to others; weight: i4[len(borders.index)], the share of each border rank.
    """

    vendors: tuple[str, ...]
    ranks: Csr
    borders: Csr
    weight: I4

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", frozen(self.weight, np.int32))

    def __len__(self) -> int:
        return len(self.vendors)

    @property
    def n_ranks(self) -> int:
        """The number of ranks in all of them."""
        return len(self.ranks.index)

    def members(self, c: int) -> list[int]:
        """Returns the ranks of vendor cluster c."""
        return _row(self.ranks, c)

    def border(self, c: int) -> list[int]:
        """Returns the border ranks of vendor cluster c."""
        return _row(self.borders, c)

    def texts(self) -> list[str]:
        """Describes each for people: `nvidia, ranks 0-3, border 0, 2`."""
        named = [(runs(self.members(c)), runs(self.border(c))) for c in range(len(self))]
        return [
            f"{vendor}, ranks {ranks}, border {border}"
            for vendor, (ranks, border) in zip(self.vendors, named, strict=True)
        ]

    def of_ranks(self) -> I4:
        """Returns the vendor cluster of each rank: i4[n]."""
        of = np.empty(self.n_ranks, np.int32)
        of[self.ranks.index] = self.ranks.owner()
        return of

    def cuts(self) -> list[Fraction]:
        """Returns where any border cuts a part, from 0 to 1: a *piece* lies between two of them.

        Of a part of n elements the cut at x is at element floor(n · x).
        """
        return sorted({x for c in range(len(self)) for x in self._own_cuts(c)})

    def _own_cuts(self, c: int) -> list[Fraction]:
        weight = self.weight[self.borders.ptr[c] : self.borders.ptr[c + 1]]
        total = int(weight.sum())
        return [Fraction(int(x), total) for x in np.cumsum([0, *weight.tolist()])]

    def owners(self) -> I4:
        """Returns the border rank of each vendor cluster that has each piece: i4[C, pieces]."""
        cuts = self.cuts()
        own = np.empty((len(self), len(cuts) - 1), np.int32)
        for c in range(len(self)):
            mine = self._own_cuts(c)
            own[c] = [self.border(c)[bisect_right(mine, cut) - 1] for cut in cuts[:-1]]
        return own


def _row(rows: Csr, c: int) -> list[int]:
    found: list[int] = rows.index[rows.ptr[c] : rows.ptr[c + 1]].tolist()
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One algorithm over vendor clusters. steps: JOB_STEP[n]."""

    name: str
    collective: Collective
    clusters: VendorClusters
    steps: NDArray[Any]
    origin: JobOrigin | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", frozen(self.steps, JOB_STEP))

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        where = f"{len(self.clusters)} vendor clusters, {len(self):,} steps"
        return brief(self, f"{self.name}: {self.collective.title}, {where}")

    def describe(self, i: int) -> str:
        """Describes step i as its text: `c2cCpy(0, 1, part(2))`."""
        return step_text(self.steps[i].tolist())

    def span(self, i: int) -> Span | None:
        """Returns the span where step `i` was written."""
        return self.origin.line(int(self.steps["line"][i])) if self.origin else None

    def crossings(self) -> NDArray[np.int64]:
        """Returns the parts that each vendor cluster sends to each other one: i8[C, C]."""
        found = np.zeros((len(self.clusters),) * 2, np.int64)
        hops = self.steps[self.steps["op"] >= JobOp.C2C_CPY]
        np.add.at(found, (hops["src"], hops["dst"]), 1)
        return found


@dataclass(frozen=True, slots=True)
class JobOrigin:
    """The places in a text of a job's steps by line, and of its header (line 0)."""

    spans: dict[int, Span]

    def line(self, number: int) -> Span | None:
        """Returns the place of the step at a line; of the header for line 0."""
        return self.spans.get(number)


def step_text(step: tuple[int, ...]) -> str:
    """Writes one row of JOB_STEP in the language."""
    op, src, dst, part, sender, receiver, _ = step
    if not 0 <= op < len(JobOp):
        return f"a step of kind {op}"
    kind = JobOp(op)
    ends: list[str] = []
    if kind in (JobOp.SEND, JobOp.C2C_CPY):
        named = (("src", sender), ("dst", receiver))
        ends = [f", {name}={rank}" for name, rank in named if rank != NOBODY]
    elif max(sender, receiver) != NOBODY:
        ends = [f", root={max(sender, receiver)}"]
    if kind.crosses:
        name = "c2cRed" if kind is JobOp.C2C_RED else "c2cCpy"
        return f"{name}({src}, {dst}, part({part}){''.join(ends)})"
    return f"homColl({src}, {kind.name.lower()}, part({part}){''.join(ends)})"


def lines(job: Job, *, says_clusters: bool = False) -> Iterator[str]:
    """Prints the Job in its language; parsing it with the same vendor clusters gives the same.
    says_clusters: the header says their number."""
    c = job.collective
    root = f", Root={c.root}" if c.rooted else ""
    over = f", nClusters={len(job.clusters)}" if says_clusters else ""
    yield (
        f'def HetCCLJob(AlgoName="{job.name}", OpType="{c.name}", nParts={c.chunks_per_block}'
        f"{over}{root}):"
    )
    for step in job.steps.tolist():
        yield f"    {step_text(step)}"


def same(a: Job, b: Job) -> bool:
    """Tells whether two Jobs mean the same (lines aside)."""
    columns = [name for name in JOB_STEP.names or () if name != "line"]
    x, y = a.clusters, b.clusters
    tables = ((x.ranks, y.ranks), (x.borders, y.borders))
    return (
        (a.name, a.collective, x.vendors) == (b.name, b.collective, y.vendors)
        and all(
            np.array_equal(m.ptr, n.ptr) and np.array_equal(m.index, n.index) for m, n in tables
        )
        and np.array_equal(x.weight, y.weight)
        and len(a) == len(b)
        and all(np.array_equal(a.steps[k], b.steps[k]) for k in columns)
    )


def check(job: Job) -> list[str]:
    """Lists the invariants that `job` breaks, in words; empty when it is sound. O(its size)."""
    found = list(_cluster_problems(job.clusters))
    if not found:
        found = list(_header_problems(job))
    return found or list(_step_problems(job))


def _cluster_problems(v: VendorClusters) -> Iterator[str]:
    n = v.n_ranks
    if not 1 <= n <= MAX_RANKS or len(v.ranks) != len(v) or len(v.borders) != len(v):
        yield f"{n:,} ranks in {len(v)} vendor clusters are none, too many, or not all listed"
        return
    if not np.array_equal(np.sort(v.ranks.index), np.arange(n)):
        yield f"the vendor clusters have not each of the {n} ranks once"
        return
    if (v.borders.counts() < 1).any() or (v.ranks.counts() < 1).any():
        yield "a vendor cluster has no rank, or no border rank"
    borders = v.borders.index
    if ((borders < 0) | (borders >= n)).any() or len(np.unique(borders)) != len(borders):
        yield "a border rank is no rank, or is named twice"
    elif (v.of_ranks()[borders] != v.borders.owner()).any():
        yield "a border rank is of another vendor cluster"
    if len(v.weight) != len(borders) or ((v.weight < 1) | (v.weight > MAX_WEIGHT)).any():
        yield f"weights are not one, 1 to {MAX_WEIGHT:,}, for each border rank"


def _header_problems(job: Job) -> Iterator[str]:
    c = job.collective
    if not IDENTIFIER.fullmatch(job.name) or objection(job.name):
        yield f"the name, {job.name[:64]!a}, cannot name kernels"
    if c.n_ranks != job.clusters.n_ranks:
        yield f"a collective of {c.n_ranks} ranks over vendor clusters of {job.clusters.n_ranks}"
    blocks = block_count(c.op, c.n_ranks)
    if not 1 <= c.n_chunks <= MAX_CHUNKS or c.n_chunks % blocks:
        yield f"{c.n_chunks:,} parts are no multiple of {blocks} up to {MAX_CHUNKS:,}"
    if not 0 <= c.root < c.n_ranks:
        yield f"the root, {c.root}, is no rank"


def _step_problems(job: Job) -> Iterator[str]:
    for i, why in step_problems(job):
        yield f"step {i}, {job.describe(i)}: {why}"
        return


def step_problems(job: Job) -> Iterator[tuple[int, str]]:
    """Yields the steps that break invariants 2 and 3, the first of each kind, and why."""
    s, c, v = job.steps, job.collective, job.clusters
    op = s["op"]
    known = (op >= 0) & (op < len(JobOp))
    if not known.all():
        yield int(np.argmin(known)), "there is no such step"
        return
    crosses = op >= JobOp.C2C_CPY
    limit = np.where(op == JobOp.ALLGATHER, c.chunks_per_block, c.n_chunks)
    combining = np.isin(op, [JobOp.REDUCE, JobOp.C2C_RED])
    of, border = v.of_ranks(), np.zeros(c.n_ranks, np.bool_)
    border[v.borders.index] = True
    wrong = {
        f"there are vendor clusters 0 to {len(v) - 1}": (
            (s["src"] < 0) | (s["src"] >= len(v)) | (s["dst"] < 0) | (s["dst"] >= len(v))
        ),
        "there is no such part": (s["part"] < 0) | (s["part"] >= limit),
        "it does not join two vendor clusters": crosses & (s["src"] == s["dst"]),
        "homColl is within one vendor cluster": ~crosses & (s["src"] != s["dst"]),
        f"{c.op.value} does not reduce": combining & (not c.reduces),
        "only Allgather has blocks of all ranks": (op == JobOp.ALLGATHER)
        & (c.op.value != "Allgather"),
        "a rank is named that is none": (s["sender"] < NOBODY)
        | (s["sender"] >= c.n_ranks)
        | (s["receiver"] < NOBODY)
        | (s["receiver"] >= c.n_ranks),
    }
    for k, name in enumerate(("sender", "receiver")):
        given = s[name] != NOBODY
        needs = np.isin(op, [one for one, ends in NEEDS.items() if ends[k]])
        may = np.isin(op, [one for one, ends in MAY.items() if ends[k]])
        inside = np.where(given, s[name], 0).clip(0, c.n_ranks - 1)
        wrong[f"it needs a {name}"] = needs & ~given
        wrong[f"it has no {name}"] = given & ~may
        wrong[f"its {name} is of another vendor cluster"] = given & (
            of[inside] != s[("src", "dst")[k]]
        )
        wrong[f"its {name} is no border rank"] = given & crosses & ~border[inside]
    wrong["a rank sends to itself"] = (op == JobOp.SEND) & (s["sender"] == s["receiver"])
    for why, rows in wrong.items():
        if rows.any():
            yield int(np.argmax(rows)), why


def vendor_clusters(
    rows: list[tuple[str, list[int], list[int], list[int]]],
) -> VendorClusters:
    """Makes vendor clusters of rows: vendor, ranks, border ranks, weights."""
    return VendorClusters(
        tuple(row[0] for row in rows),
        _csr([row[1] for row in rows]),
        _csr([row[2] for row in rows]),
        np.array([w for row in rows for w in row[3]], np.int64),
    )


def _csr(rows: list[list[int]]) -> Csr:
    ptr = np.cumsum([0, *map(len, rows)])
    return Csr(ptr, np.array([x for row in rows for x in row], np.int64))
