"""calibrate: measures launches of known work, interleaved, and fits the cost of a unit of work.

The cost of a launch is taken to be (cost-model §5)

    launch + wake · [several cores] + (entry · blocks + α · steps + copied / block
                                       + combined / reduce) / cores at work

where a step is one primitive and micro-batch, `copied` the bytes that its thread block reads and
writes, in copies (a byte read is `read` of a copy, a byte written the rest), and `combined` the
bytes of all sources but the first. On a host, whose blocks take turns, a core's whole work counts,
and `block` depends on how many bytes a launch touches; on a GPU, whose blocks run at once, only the
longest chain of primitives counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[import-untyped]

from hccc.base.progress import far
from hccc.ir.device import Cached, Device
from hccc.runtime.measure.perf import Session

F8 = NDArray[np.float64]
DECILE = 0.1  # a launch's time is the lower decile of its samples: others disturb, none help
FEWEST = 8  # samples of each case, however long they take
BURST_S = 1e-3  # launches of a case that follow each other, so that caches are warm as in use
FASTEST = 1e6  # GB/s of work that takes no measurable time
ROUNDS, PASSES = 20, 3  # of the robust fit
READS = tuple(i / 10 for i in range(1, 9))  # parts of a copy that a read may be, tried first
NEAR = (-0.04, -0.02, 0.0, 0.02, 0.04)  # steps from the best part so far, tried next


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one launch, in the terms of the module's formula. touched: bytes of memory."""

    touched: int
    cores: int
    blocks: int
    steps: float
    read: float
    written: float
    combined: float

    def copied(self, read: float) -> float:
        """Returns the bytes copied, counting a byte read as the part `read` of a copy."""
        return self.read * read + self.written * (1 - read)


@dataclass(slots=True, eq=False)
class LaunchCase:
    """One kind of launch, and the measured time of each launch in µs."""

    name: str
    work: Work
    session: Session
    samples: list[float] = field(default_factory=list)

    @property
    def time(self) -> float:
        """µs of a launch with little disturbance."""
        return float(np.quantile(self.samples, DECILE))

    @property
    def spread(self) -> float:
        """How far the median of the samples lies above `time`, relative to it."""
        return float(np.median(self.samples)) / self.time - 1


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """The cost of each unit of work.

    launch: µs of a launch; wake: µs more where more than one core takes part; entry: µs until a
    thread block starts; alpha: µs of one micro-batch of a primitive, whatever its size; block and
    reduce: GB/s at which a thread block copies and combines, at most FASTEST; read: the part of a
    copy that is its read; cache: GB/s of copies by bytes touched, where that makes a difference.
    """

    launch: float
    wake: float
    entry: float
    alpha: float
    block: float
    reduce: float
    read: float = 0.5
    cache: tuple[Cached, ...] = ()

    def overhead(self, w: Work) -> float:
        """Returns the µs of a launch that do not depend on bytes."""
        each = (self.entry * w.blocks + self.alpha * w.steps) / w.cores
        return self.launch + self.wake * (w.cores > 1) + each

    def bytes(self, w: Work) -> float:
        """Returns the µs that the bytes of a launch take."""
        block = Device(block=self.block, cache=self.cache).copies(w.touched).block
        return (w.copied(self.read) / block + w.combined / self.reduce) * 1e-3 / w.cores

    def error(self, cases: Sequence[LaunchCase]) -> float:
        """Returns the median relative error of the predicted launch times."""
        return float(np.median(self.errors(cases)))

    def errors(self, cases: Sequence[LaunchCase]) -> F8:
        """Returns the relative error of each predicted launch time: f8[len(cases)]."""
        predicted = np.array([self.overhead(c.work) + self.bytes(c.work) for c in cases])
        errors: F8 = np.abs(predicted / np.array([c.time for c in cases]) - 1)
        return errors


def measure(cases: Sequence[LaunchCase], seconds: float) -> int:
    """Launches all cases in turns for so many seconds; returns the number of rounds."""
    begin, rounds = time.perf_counter(), 0
    while (took := time.perf_counter() - begin) < seconds or rounds < FEWEST:
        far(int(min(took, seconds)), round(seconds))
        for case in cases:
            _burst(case)
        rounds += 1
    return rounds


def _burst(case: LaunchCase) -> None:
    """Samples a case: one launch to warm up, then some that count, more of them on several cores,
    as any core may be busy at times."""
    first = case.session.run(1)
    least = 3 if case.work.cores > 1 else 1
    for _ in range(int(np.clip(BURST_S / max(first, 1e-9), least, 10))):
        case.samples.append(case.session.run(1) * 1e6)


def fit(
    few: Sequence[LaunchCase], many: Sequence[LaunchCase], touched: Sequence[int] = ()
) -> UnitCosts:
    """Fits the costs that explain the cases best.

    Cases with few bytes give the costs that do not depend on bytes; cases with many bytes, on one
    core, give the others. Errors are relative, and outliers count little. touched: the sizes of
    `cache`, ascending; none: all memory is alike.
    """
    many = [case for case in many if case.work.cores <= 1]
    costs = UnitCosts(0, 0, 0, 0, FASTEST, FASTEST)
    for again in range(PASSES):
        fixed = _least(
            [(1, w.cores > 1, w.blocks / w.cores, w.steps / w.cores) for w in _works(few)],
            [case.time - costs.bytes(case.work) for case in few],
            [case.time for case in few],
        )
        launch, wake, entry, alpha = fixed
        costs = replace(costs, launch=launch, wake=wake, entry=entry, alpha=alpha)
        if touched:
            reads = [costs.read + more for more in NEAR] if again else READS
            tried = [_per_byte(costs, many, touched, read) for read in reads]
            costs = min(tried, key=lambda costs: costs.errors(many).mean())
        else:
            costs = _per_byte(costs, many, (), 0.5)
    return costs


def _per_byte(
    costs: UnitCosts, cases: Sequence[LaunchCase], touched: Sequence[int], read: float
) -> UnitCosts:
    """Returns `costs` with the rates that explain the one-core cases best.

    touched: gets a rate of copies for each size, fitted to the cases nearest to it. read: the part
    of a copy that is its read.
    """
    levels = np.log(touched or (1,))
    row = np.eye(len(levels))
    near = [int(np.argmin(np.abs(levels - np.log(w.touched)))) for w in _works(cases)]
    *copies, reduce = _least(
        [(*row[i] * w.copied(read), w.combined) for i, w in zip(near, _works(cases), strict=True)],
        [case.time - costs.overhead(case.work) for case in cases],
        [case.time for case in cases],
    )
    rates = [1e-3 / max(x, 1e-3 / FASTEST) for x in copies]
    cache = tuple(map(Cached, touched, rates))
    reduce = 1e-3 / max(reduce, 1e-3 / FASTEST)
    return replace(costs, block=rates[-1], reduce=reduce, read=read, cache=cache)


def together(costs: UnitCosts, many: Sequence[LaunchCase]) -> tuple[Cached, ...]:
    """Returns `costs.cache` with the rate at which all cores copy together.

    For each size this is the rate of the fastest launch on several cores at the nearest size, but
    at least one core's rate and at most one core's rate times the cores.
    """
    several = [case for case in many if case.work.cores > 1]
    levels = np.log([max(case.work.touched, 1) for case in several])
    cache = []
    for size, block, _ in costs.cache:
        all = 0.0
        if several:
            case = several[int(np.argmin(np.abs(levels - np.log(size))))]
            took = max(min(case.samples) - costs.overhead(case.work), 1e-9)
            copies = float(case.work.copied(costs.read)) / took * 1e-3
            all = min(max(copies, block), block * case.work.cores)
        cache.append(Cached(size, block, all))
    return tuple(cache)


def _works(cases: Sequence[LaunchCase]) -> list[Work]:
    return [case.work for case in cases]


def _least(
    rows: Sequence[Sequence[float]], times: Sequence[float], scale: Sequence[float]
) -> list[float]:
    """Solves rows · x ≈ times for x ≥ 0, with the least sum of |error| / scale.

    Iteratively reweighted least squares; a handful of unknowns.
    """
    weight = 1 / np.array(scale)
    a, b = np.array(rows, np.float64) * weight[:, None], np.array(times) * weight
    trust = np.ones(len(b))
    x = np.zeros(a.shape[1])
    for _ in range(ROUNDS):
        x, _ = nnls(a * trust[:, None], b * trust, maxiter=100)
        trust = 1 / np.sqrt(np.maximum(np.abs(a @ x - b), 1e-3))
    return [float(v) for v in x]
