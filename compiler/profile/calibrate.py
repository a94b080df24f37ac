"""calibrate: measures launches of known work, interleaved, and finds what a unit of work costs.

The cost of a launch is taken to be (cost-model §5)

    launch + wake · [several cores] + (entry · blocks + α · steps + copied / block
                                       + combined / reduce) / cores at work

where a step is one primitive and micro-batch, `copied` what its thread block reads and writes, in
copies (a byte that is read is `read` of a copy, one that is written the rest), and `combined` the
bytes of all sources but the first. On a host, whose blocks take turns, everything counts that a
core does, and `block` depends on how many bytes a launch touches; on a GPU, whose blocks run at
once, what the longest chain of primitives does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[import-untyped]

from hccc.ir.device import Cached, Device
from hccc.runtime.measure.perf import Session

F8 = NDArray[np.float64]
DECILE = 0.1  # a launch's time is the lower decile of its samples: others disturb, none help
FEWEST = 8  # samples of each case, however long they take
BURST_S = 1e-3  # launches of a case that follow each other, so that caches are warm as in use
FASTEST = 1e6  # GB/s of what no launch shows to take time
ROUNDS, PASSES = 20, 3  # of the robust fit
READS = tuple(i / 10 for i in range(1, 9))  # parts of a copy that a read may be, and how far from
NEAR = (-0.04, -0.02, 0.0, 0.02, 0.04)  # the last one found the next are looked for


@dataclass(frozen=True, slots=True)
class Work:
    """What one launch does: see the module; bytes. touched: of memory."""

    touched: int
    cores: int
    blocks: int
    steps: float
    read: float
    written: float
    combined: float

    def copied(self, read: float) -> float:
        """Copies of a byte, where a read is so much of one."""
        return self.read * read + self.written * (1 - read)


@dataclass(slots=True, eq=False)
class Case:
    """One kind of launch, and the µs of each that was measured."""

    name: str
    work: Work
    session: Session
    samples: list[float] = field(default_factory=list)

    @property
    def time(self) -> float:
        """µs of a launch that little disturbed."""
        return float(np.quantile(self.samples, DECILE))

    @property
    def spread(self) -> float:
        """How far the median of the samples lies above `time`, as a part of it."""
        return float(np.median(self.samples)) / self.time - 1


@dataclass(frozen=True, slots=True)
class Found:
    """What each unit of work costs.

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
        """µs of a launch that do not depend on bytes."""
        each = (self.entry * w.blocks + self.alpha * w.steps) / w.cores
        return self.launch + self.wake * (w.cores > 1) + each

    def bytes(self, w: Work) -> float:
        """µs that the bytes of a launch take."""
        block = Device(block=self.block, cache=self.cache).copies(w.touched).block
        return (w.copied(self.read) / block + w.combined / self.reduce) * 1e-3 / w.cores

    def error(self, cases: Sequence[Case]) -> float:
        """How far launches lie from what this says, as a part, in the median."""
        return float(np.median(self.errors(cases)))

    def errors(self, cases: Sequence[Case]) -> F8:
        """The same of each launch: f8[len(cases)]."""
        said = np.array([self.overhead(c.work) + self.bytes(c.work) for c in cases])
        found: F8 = np.abs(said / np.array([c.time for c in cases]) - 1)
        return found


def measure(
    cases: Sequence[Case], seconds: float, on_round: Callable[[int], None] = lambda _: None
) -> int:
    """Launches all cases in turns for so many seconds; how many rounds there were."""
    end, rounds = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or rounds < FEWEST:
        for case in cases:
            _burst(case)
        rounds += 1
        on_round(rounds)
    return rounds


def _burst(case: Case) -> None:
    """A launch that warms up, and some that count: more on several cores, one of which may be busy
    at any time."""
    first = case.session.run(1)
    least = 3 if case.work.cores > 1 else 1
    for _ in range(int(np.clip(BURST_S / max(first, 1e-9), least, 10))):
        case.samples.append(case.session.run(1) * 1e6)


def fit(few: Sequence[Case], many: Sequence[Case], touched: Sequence[int] = ()) -> Found:
    """The costs that explain the cases best: those of few bytes give what does not depend on bytes,
    those of many, on one core, the rest. Relative errors count, far outliers little. touched: the
    sizes that `cache` is wanted for, ascending; none: memory is all alike.
    """
    many = [case for case in many if case.work.cores <= 1]
    found = Found(0, 0, 0, 0, FASTEST, FASTEST)
    for again in range(PASSES):
        fixed = _least(
            [(1, w.cores > 1, w.blocks / w.cores, w.steps / w.cores) for w in _works(few)],
            [case.time - found.bytes(case.work) for case in few],
            [case.time for case in few],
        )
        launch, wake, entry, alpha = fixed
        found = replace(found, launch=launch, wake=wake, entry=entry, alpha=alpha)
        if touched:
            reads = [found.read + more for more in NEAR] if again else READS
            tried = [_per_byte(found, many, touched, read) for read in reads]
            found = min(tried, key=lambda one: one.errors(many).mean())
        else:
            found = _per_byte(found, many, (), 0.5)
    return found


def _per_byte(found: Found, cases: Sequence[Case], touched: Sequence[int], read: float) -> Found:
    """`found` with the rates that explain cases on one core best, where a read is so much of a
    copy: a rate of copies for each size of `touched`, which hold for the cases next to it."""
    levels = np.log(touched or (1,))
    row = np.eye(len(levels))
    near = [int(np.argmin(np.abs(levels - np.log(w.touched)))) for w in _works(cases)]
    *copies, reduce = _least(
        [(*row[i] * w.copied(read), w.combined) for i, w in zip(near, _works(cases), strict=True)],
        [case.time - found.overhead(case.work) for case in cases],
        [case.time for case in cases],
    )
    rates = [1e-3 / max(x, 1e-3 / FASTEST) for x in copies]
    cache = tuple(map(Cached, touched, rates))
    reduce = 1e-3 / max(reduce, 1e-3 / FASTEST)
    return replace(found, block=rates[-1], reduce=reduce, read=read, cache=cache)


def together(found: Found, many: Sequence[Case]) -> tuple[Cached, ...]:
    """`found.cache` with what all cores copy together, at least what one does and at most as many
    times that as there are cores: of each size, the fastest launch on several cores next to it."""
    several = [case for case in many if case.work.cores > 1]
    levels = np.log([max(case.work.touched, 1) for case in several])
    made = []
    for size, block, _ in found.cache:
        all = 0.0
        if several:
            case = several[int(np.argmin(np.abs(levels - np.log(size))))]
            took = max(min(case.samples) - found.overhead(case.work), 1e-9)
            copies = float(case.work.copied(found.read)) / took * 1e-3
            all = min(max(copies, block), block * case.work.cores)
        made.append(Cached(size, block, all))
    return tuple(made)


def _works(cases: Sequence[Case]) -> list[Work]:
    return [case.work for case in cases]


def _least(
    rows: Sequence[Sequence[float]], times: Sequence[float], scale: Sequence[float]
) -> list[float]:
    """x ≥ 0 with rows · x ≈ times: the least sum of |error| / scale.

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
