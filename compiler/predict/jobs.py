"""jobs: what a Job takes on a cluster: each vendor's model for its calls, routes for the borders.

Every rank has two lanes. In one the calls of its vendor's library follow each other; in the other
copies over the border start as soon as their data are there, and share what their routes share. A
call is cut into micro-batches, as many as make it fastest: each goes through all steps, and steps
of different ones overlap where data and lanes allow. All ranks keep one order, which is free of
deadlock.

Not modelled: that calls of a library over several nodes and copies over the border share NICs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hccc.base.diagnostics import fail
from hccc.base.shown import brief, frame, preformatted
from hccc.driver.facts import Facts
from hccc.ir.arrays import I8
from hccc.ir.collective import Collective, OpType
from hccc.ir.job import NOBODY, Job, JobOp
from hccc.ir.job_order import order, touched
from hccc.ir.topology import BYTES_PER_US, F8, Topology
from hccc.ir.uneven import check_uneven, skewed
from hccc.network.part import part_of
from hccc.network.routes import routes
from hccc.network.vendor_clusters import divisions
from hccc.predict.nccl.machine import is_known
from hccc.predict.nccl.machine import of as machine_of
from hccc.predict.nccl.model import predict
from hccc.predict.simulation import Sizes
from hccc.synth.builtin.hetccl import OPS as HETCCL_OPS
from hccc.synth.builtin.hetccl import hetccl

MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
_TYPICAL = 16 << 20  # bytes of a call, where nobody says
_LEAST_BATCHED = 1 << 12  # bytes of a call that may be cut
MOST_TASKS = 1 << 13  # of a simulation: steps times micro-batches


@dataclass(frozen=True, slots=True)
class JobTask:
    """One step of one micro-batch: µs from begin to end."""

    step: int
    batch: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class JobRun:
    """A simulated call: bytes as nccl-tests counts them, µs, micro-batches. library, border: µs
    that the lanes of each vendor cluster are busy: its library's calls, what it sends; one: µs with
    a single micro-batch."""

    size: int
    time: float
    batches: int
    one: float
    library: tuple[float, ...]
    border: tuple[float, ...]
    tasks: tuple[JobTask, ...]

    @property
    def algbw(self) -> float:
        """GB/s, as nccl-tests has it."""
        return self.size / self.time / 1000


class JobMachine:
    """A Job on a Topology: the models of its libraries, and the routes over its borders."""

    def __init__(self, job: Job, t: Topology) -> None:
        self.job, self.topology = job, t
        v = job.clusters
        self._owners = v.owners()
        self._shares = np.diff([float(x) for x in v.cuts()])
        parts = [part_of(t, np.array(v.members(c))) for c in range(len(v))]
        self._machines = [machine_of(part) if len(part) > 1 else None for part in parts]
        self.guessed = [not all(map(is_known, part.devices)) for part in parts]
        self._times: dict[tuple[int, OpType, int], float] = {}
        self._hops: dict[tuple[bytes, bytes], tuple[F8, F8, list[I8], list[F8]]] = {}

    def run(self, size: int, lengths: I8 | None = None) -> JobRun:
        """Simulates a call with each number of micro-batches, and returns the fastest. lengths:
        bytes of each block; None: all have those of the largest."""
        c = self.job.collective
        blocks = np.full(c.blocks, size / c.most_blocks()) if lengths is None else lengths
        parts = np.repeat(blocks / c.chunks_per_block, c.chunks_per_block)
        counts = [k for k in MICRO_BATCHES if k == 1 or len(self.job) * k <= MOST_TASKS]
        runs = [self._run(size, k, parts / k) for k in counts]
        best = min(runs, key=lambda run: run.time)
        return JobRun(
            size, best.time, best.batches, runs[0].time, best.library, best.border, best.tasks
        )

    def _run(self, size: int, batches: int, parts: F8) -> JobRun:
        """Simulates a call; parts: bytes of each in a micro-batch."""
        took = [self._call(i, parts) for i in range(len(self.job))]
        state = _Lanes(self, parts)
        for task in order(self.job, batches):
            state.do(task.step, task.batch, took[task.step])
        launch = float(self.topology.launch[:, 0].max())
        time = launch + max((task.end for task in state.tasks), default=0.0)
        busy = tuple(state.library.tolist()), tuple(state.border.tolist())
        return JobRun(size, time, batches, time, *busy, tuple(state.tasks))

    def ranks(self, i: int) -> list[int]:
        """Returns the ranks whose library lane a step takes."""
        op, src, _, _, sender, receiver, _ = self.job.steps[i].tolist()
        if op == JobOp.SEND:
            return [sender, receiver]
        return self.job.clusters.members(src)

    def _call(self, i: int, parts: F8) -> float:
        """Returns the µs of a step's calls of the library, for parts of so many bytes."""
        op, src, _, number, sender, receiver, _ = self.job.steps[i].tolist()
        machine, part = self._machines[src], float(parts[number])
        if machine is None or op >= JobOp.C2C_CPY:
            return 0.0
        kind, root = JobOp(op), max(sender, receiver)
        if kind in (JobOp.GATHER, JobOp.SCATTER, JobOp.SEND):
            return self._time(src, OpType.SENDRECV, part)
        if kind is JobOp.ALLGATHER:
            return self._gathered(src, number, parts)
        reduces = kind is JobOp.REDUCE
        if root != NOBODY:
            return self._time(src, OpType.REDUCE if reduces else OpType.BROADCAST, part)
        shares = self._border_shares(src)
        if len(shares) == machine.ranks and max(shares) == min(shares):
            # Every rank has an equal piece: the library has a call for that.
            return self._time(src, OpType.REDUCESCATTER if reduces else OpType.ALLGATHER, part)
        one = OpType.REDUCE if reduces else OpType.BROADCAST
        return sum(self._time(src, one, part * share) for share in shares)

    def _gathered(self, c: int, number: int, parts: F8) -> float:
        """Returns the µs of an Allgather of part `number` of each block, as `schedule.cpp` makes
        it: all as long as the longest, or a Broadcast of each where that is too much."""
        per = self.job.collective.chunks_per_block
        own = [float(parts[r * per + number]) for r in self.job.clusters.members(c)]
        if len(own) * max(own) <= 2 * sum(own):
            return self._time(c, OpType.ALLGATHER, max(own) * len(own))
        return sum(self._time(c, OpType.BROADCAST, one) for one in own if one)

    def _time(self, c: int, op: OpType, size: float) -> float:
        """Returns the µs of a call of `size` bytes of the library of vendor cluster c."""
        key, machine = (c, op, max(1, round(size))), self._machines[c]
        if key not in self._times and machine is not None:
            self._times[key] = predict(machine, op, [key[2]])[0].time_us
        return self._times[key]

    def _border_shares(self, c: int) -> list[float]:
        v = self.job.clusters
        weight = v.weight[v.borders.ptr[c] : v.borders.ptr[c + 1]]
        return [float(x) / float(weight.sum()) for x in weight]

    def hops(self, i: int) -> tuple[F8, F8, list[I8], list[F8]]:
        """Returns the copies of a step over a border: each one's share of the part, α in µs, its
        resources, and µs a byte for each of these, then for the whole route."""
        _, src, dst, _, sender, receiver, _ = self.job.steps[i].tolist()
        a = self._owners[src] if sender == NOBODY else np.full_like(self._owners[src], sender)
        b = self._owners[dst] if receiver == NOBODY else np.full_like(self._owners[dst], receiver)
        key = a.tobytes(), b.tobytes()
        if key not in self._hops:
            pairs, at = np.unique(np.stack([a, b]), axis=1, return_inverse=True)
            share = np.bincount(at.reshape(-1), weights=self._shares).astype(np.float64)
            found = routes(self.topology, pairs[0].astype(np.int32), pairs[1].astype(np.int32))
            used = [found.uses.index[x:y] for x, y in pairwise(found.uses.ptr.tolist())]
            cost = [1 / (found.capacity[u] * BYTES_PER_US) for u in used]
            whole = 1 / (found.bandwidth * BYTES_PER_US)
            names = [found.resource[u] for u in used]
            self._hops[key] = (
                share,
                found.alpha,
                names,
                [np.append(one, w) for one, w in zip(cost, whole, strict=True)],
            )
        return self._hops[key]

    def reduce_cost(self, i: int) -> float:
        """Returns the µs a byte of a step's reduction at the border."""
        if self.job.steps["op"][i] != JobOp.C2C_RED:
            return 0.0
        border = self.job.clusters.border(int(self.job.steps["dst"][i]))
        t = self.topology
        rate = min(t.devices[int(d)].reduce for d in t.device[border])
        return 1 / (rate * BYTES_PER_US)


class _Lanes:
    """The times at which places are written, lanes and links free; done so far."""

    def __init__(self, machine: JobMachine, parts: F8) -> None:
        n = len(machine.job.clusters)
        self._machine, self._parts = machine, parts
        self._written: dict[tuple[int, int, int], float] = {}
        self._lane = [0.0] * machine.job.clusters.n_ranks
        self._free: dict[int, float] = {}
        self.library, self.border = np.zeros(n), np.zeros(n)
        self.tasks: list[JobTask] = []

    def do(self, i: int, batch: int, took: float) -> None:
        """Does one step of one micro-batch."""
        m = self._machine
        reads, writes = touched(m.job, i)
        ready = max((self._written.get((*x, batch), 0.0) for x in (*reads, *writes)), default=0.0)
        if m.job.steps["op"][i] >= JobOp.C2C_CPY:
            begin, end = self._hop(i, ready)
            self.border[m.job.steps["src"][i]] += end - begin
        else:
            ranks = m.ranks(i)
            begin = max(ready, *(self._lane[r] for r in ranks))
            end = begin + took
            for r in ranks:
                self._lane[r] = end
            self.library[m.job.steps["src"][i]] += took
        self._written |= {(*place, batch): end for place in writes}
        self.tasks.append(JobTask(i, batch, begin, end))

    def _hop(self, i: int, ready: float) -> tuple[float, float]:
        first, last = np.inf, ready
        shares, alpha, resources, costs = self._machine.hops(i)
        reduced = self._machine.reduce_cost(i)
        part = float(self._parts[self._machine.job.steps["part"][i]])
        for share, wait, used, cost in zip(shares, alpha, resources, costs, strict=True):
            size = float(share) * part
            begin = max([ready, *(self._free.get(int(r), 0.0) for r in used)])
            for r, per_byte in zip(used.tolist(), cost[:-1].tolist(), strict=True):
                self._free[r] = begin + size * per_byte
            end = begin + float(wait) + size * (float(cost[-1]) + reduced)
            first, last = min(first, begin), max(last, end)
        return min(first, last), last


@dataclass(frozen=True, slots=True)
class JobSimulation:
    """Simulated calls of a Job, one for each size."""

    job: Job
    cluster: str
    runs: tuple[JobRun, ...]
    guessed: tuple[int, ...]

    def __repr__(self) -> str:
        sizes = f"{len(self.runs)} size{'s' * (len(self.runs) != 1)}"
        return brief(
            self, f"{self.job.name}: {self.job.collective.title}, on {self.cluster}, {sizes}"
        )

    def _repr_html_(self) -> str:
        return preformatted(self.text())

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[JobRun]:
        return iter(self.runs)

    def records(self) -> list[dict[str, object]]:
        """Returns a record for each size: name, size (bytes), time (µs), algbw and busbw (GB/s),
        micro_batches, and of the busiest lanes the µs of library and border."""
        factor = self.job.collective.bus_factor()
        return [
            {
                "name": self.job.name,
                "size": run.size,
                "time": run.time,
                "algbw": run.algbw,
                "busbw": run.algbw * factor,
                "micro_batches": run.batches,
                "library": max(run.library),
                "border": max(run.border),
            }
            for run in self.runs
        ]

    def to_frame(self) -> Any:
        """Returns `records` as a DataFrame of pandas. Raises UserError E477 where there is none."""
        return frame(self.records())

    def facts(self) -> Facts:
        """Returns all figures, for JSON."""
        c = self.job.collective
        return {
            "job": self.job.name,
            "collective": c.name,
            "ranks": c.n_ranks,
            "cluster": self.cluster,
            "vendor_clusters": self.job.clusters.texts(),
            "results": [
                {
                    "size": run.size,
                    "time": run.time,
                    "algbw": run.algbw,
                    "busbw": run.algbw * c.bus_factor(),
                    "micro_batches": run.batches,
                    "time_of_one": run.one,
                    "library": run.library,
                    "border": run.border,
                }
                for run in self.runs
            ],
        }

    def text(self) -> str:
        """Writes the table."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        c = self.job.collective
        yield f"# {self.job.name}: {c.title}, a job, simulated on {self.cluster}"
        yield from (f"# vendor cluster {k}: {x}" for k, x in enumerate(self.job.clusters.texts()))
        for k in self.guessed:
            yield f"# estimate: the library of vendor cluster {k} is taken for NCCL's model"
        yield "#"
        for head in _HEAD:
            yield ("#" + _LINE.format(*head)[1:]).rstrip()
        for run in self.runs:
            busy = f"{max(run.library):.2f}", f"{max(run.border):.2f}"
            figures = (f"{x:.2f}" for x in (run.time, run.algbw, run.algbw * c.bus_factor()))
            yield _LINE.format(run.size, *figures, run.batches, *busy)


_HEAD = (
    ("size", "time", "algbw", "busbw", "batches", "library", "border"),
    ("(B)", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)"),
)
_LINE = "{:>13}  {:>11}  {:>7}  {:>7}  {:>7}  {:>11}  {:>11}"


def lengths_of(c: Collective, size: int, skew: str) -> I8 | None:
    """Returns the bytes of each block of a call whose longest block is that of `size` bytes; None
    where no skew is asked for."""
    return skewed(c, size // c.most_blocks(), skew) if skew else None


def simulate_job(
    job: Job, t: Topology, sizes: Sizes | Sequence[int], skew: str = ""
) -> JobSimulation:
    """Simulates a call of each size. skew: how the lengths of an uneven collective's blocks are
    drawn.

    Raises:
        UserError: E415 for 0 bytes, and for a skew of blocks that are all alike.
    """
    if skew:
        check_uneven(job.collective, "--skew")
    each = sizes.all() if isinstance(sizes, Sizes) else list(sizes)
    if min(each, default=1) < 1:
        raise fail("E415", "a call of 0 bytes takes a library no time", help="a larger -b")
    machine = JobMachine(job, t)
    guessed = tuple(k for k, yes in enumerate(machine.guessed) if yes)
    runs = (machine.run(size, lengths_of(job.collective, size, skew)) for size in each)
    return JobSimulation(job, t.name, tuple(runs), guessed)


def micro_batches(job: Job, t: Topology, most: int) -> list[tuple[int, int]]:
    """Returns in how many micro-batches calls are fastest: for those of so many bytes or more, in
    steps of four times as many, up to `most`."""
    machine, size, found = JobMachine(job, t), _LEAST_BATCHED, [(0, 1)]
    while size <= most:
        count = machine.run(size).batches
        if count != found[-1][1]:
            found.append((size, count))
        size *= 4
    return found


def fastest(jobs: Sequence[Job], t: Topology, size: int = _TYPICAL) -> tuple[Job, JobRun]:
    """Returns the job whose calls of `size` bytes are fastest, and such a call."""
    runs = [(job, JobMachine(job, t).run(size)) for job in jobs]
    return min(runs, key=lambda run: run[1].time)


def hetccl_of(t: Topology, c: Collective, size: int) -> tuple[Job, JobRun] | None:
    """Returns HetCCL's job of a collective for calls of `size` bytes; None where all ranks have one
    vendor, or there is no such job."""
    several = divisions(t)
    if len({vendor for v in several for vendor in v.vendors}) < 2 or c.op not in HETCCL_OPS:
        return None
    return fastest([hetccl(v, c.op, c.root) for v in several], t, max(1, size))
