"""calibrate: measures launches of known work, interleaved, and finds what a unit of work costs.

The cost of a launch is taken to be (cost-model §5)

    launch + wake · [several cores] + (entry · blocks + α · steps + moved / block
                                       + combined / reduce) / cores at work

where a step is one primitive and micro-batch, `moved` the bytes that its thread block copies
(a reduction of k sources into d destinations moves (k + d) / 2 times its bytes) and `combined`
the bytes of all sources but the first. On a host, whose blocks take turns, everything counts that
a core does; on a GPU, whose blocks run at once, what the longest chain of primitives does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[import-untyped]

from hccc.runtime.measure.perf import Session

F8 = NDArray[np.float64]
DECILE = 0.1  # a launch's time is the lower decile of its samples: others disturb, none help
FEWEST = 8  # samples of each case, however long they take
BURST_S = 1e-3  # launches of a case that follow each other, so that caches are warm as in use
FASTEST = 1e6  # GB/s of what no launch shows to take time
ROUNDS, PASSES = 20, 3  # of the robust fit


@dataclass(frozen=True, slots=True)
class Work:
    """What one launch does: see the module. `size`: bytes of a rank's buffer."""

    size: int
    cores: int
    blocks: int
    steps: float
    moved: float
    combined: float


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
    reduce: GB/s at which a thread block copies and combines, at most FASTEST.
    """

    launch: float
    wake: float
    entry: float
    alpha: float
    block: float
    reduce: float

    def overhead(self, w: Work) -> float:
        """µs of a launch that do not depend on bytes."""
        each = (self.entry * w.blocks + self.alpha * w.steps) / w.cores
        return self.launch + self.wake * (w.cores > 1) + each

    def bytes(self, w: Work) -> float:
        """µs that the bytes of a launch take."""
        return (w.moved / self.block + w.combined / self.reduce) * 1e-3 / w.cores

    def error(self, cases: Sequence[Case]) -> float:
        """How far launches lie from what this says, as a part, in the median."""
        said = [self.overhead(c.work) + self.bytes(c.work) for c in cases]
        return float(np.median([abs(x / c.time - 1) for x, c in zip(said, cases, strict=True)]))


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
    """A launch that warms up, and some that count."""
    first = case.session.run(1)
    for _ in range(int(np.clip(BURST_S / max(first, 1e-9), 1, 10))):
        case.samples.append(case.session.run(1) * 1e6)


def fit(cases: Sequence[Case], small: int) -> Found:
    """The costs that explain the cases best: those of up to `small` bytes give what does not
    depend on bytes, the others the rest. Relative errors count, far outliers little."""
    few = [case for case in cases if case.work.size <= small]
    many = [case for case in cases if case.work.size > small]
    found = Found(0, 0, 0, 0, FASTEST, FASTEST)
    for _ in range(PASSES):
        fixed = _least(
            [(1, w.cores > 1, w.blocks / w.cores, w.steps / w.cores) for w in _works(few)],
            [case.time - found.bytes(case.work) for case in few],
            [case.time for case in few],
        )
        launch, wake, entry, alpha = fixed
        found = Found(launch, wake, entry, alpha, found.block, found.reduce)
        per_byte = _least(
            [(w.moved / w.cores, w.combined / w.cores) for w in _works(many)],
            [case.time - found.overhead(case.work) for case in many],
            [case.time for case in many],
        )
        block, reduce = (1e-3 / max(x, 1e-3 / FASTEST) for x in per_byte)
        found = Found(launch, wake, entry, alpha, block, reduce)
    return found


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
