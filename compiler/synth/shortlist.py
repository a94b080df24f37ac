"""shortlist: the candidates of a synthesis to compile and simulate, and the order of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from hccc.base.interruptible import Stopped
from hccc.synth.candidates import ENOUGH, Candidate

COMPILED = 6  # candidates of a size, those of least estimate
ALIKE = 4  # of one method, where there are others: their estimates hardly differ
FAR = 2.0  # times the least estimate above which a candidate is not compiled
CROWDED = 1.05  # factor of greedy's estimates: many peers a rank are slower than estimates say
LARGE = 1 << 17  # transfers of a program that takes seconds to compile and to simulate
LARGE_ENOUGH = 0.9  # as ENOUGH, of a large program
PEER = 0.005  # part of the estimate of a large program, for each peer of a rank: transfers that
# peers send at once are late all together, and relays stand still until then
NEAR = 0.9  # part of the bound: from there on estimates tell which candidate is slower
SMALL = 1 << 9  # transfers of a program that is simulated in tenths of a second
GAIN, SMALL_GAIN = 0.03, 0.01  # part of the time that an estimate must promise to save
UNTRIED = {
    Stopped.INTERRUPTED: "interrupted before it was simulated",
    Stopped.LATE: "not simulated: the time was over",
}
HARDLY = "not simulated: by its estimate hardly faster than another"
UNNEEDED = "not simulated: another is near the bound"


def shortlist(pool: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates to compile: at most COMPILED, by estimate; of one method more than
    ALIKE only where there are not enough others."""
    order = sorted((c for c in pool if c.program), key=_expected)
    count, first, more = Counter[str](), list[Candidate](), list[Candidate]()
    for candidate in order:
        if candidate.estimate <= FAR * order[0].estimate:
            method = candidate.name.split(",")[0]
            (first if count[method] < ALIKE else more).append(candidate)
            count[method] += 1
    return [*first, *more][:COMPILED]


def _expected(candidate: Candidate) -> float:
    """Returns the estimate, raised for ranks with many peers, which it does not count."""
    if candidate.program is None or len(candidate.program) <= LARGE:
        return candidate.estimate * (CROWDED if candidate.searched else 1.0)
    rows = candidate.program.transfers
    n = candidate.program.collective.n_ranks
    pairs = np.unique(rows["src"].astype(np.int64) * n + rows["dst"])
    return candidate.estimate * (1 + PEER * int(np.bincount(pairs // n).max()))


def enough(candidate: Candidate) -> float:
    """Returns the part of the bound at which a candidate spares simulating the others."""
    assert candidate.program is not None
    return ENOUGH if len(candidate.program) <= LARGE else LARGE_ENOUGH


def hardly_faster(candidate: Candidate, least: float, bound: float) -> bool:
    """Tells whether simulating a candidate is not worth its time, where another takes `least` µs
    and none less than `bound`."""
    assert candidate.program is not None
    gain = SMALL_GAIN if len(candidate.program) <= SMALL else GAIN
    return bound >= NEAR * least and candidate.estimate >= (1 - gain) * least


def in_order(
    pool: Sequence[Candidate],
    listed: Sequence[Candidate],
    simulated: dict[str, Candidate],
    bound: float,
    stopped: Stopped | None,
) -> list[Candidate]:
    """Returns all candidates: those with a simulated time, by time, then the others, by estimate.

    listed: the candidates to simulate; simulated: those that were simulated, by name; bound: µs;
    stopped: what kept the others from it.
    """
    least = min((c.time for c in simulated.values() if c.time is not None), default=inf)
    left = {c.name for c in listed} - simulated.keys()

    def final(candidate: Candidate) -> Candidate:
        if candidate.name not in left:
            return simulated.get(candidate.name, candidate)
        if stopped:
            return replace(candidate, refused=UNTRIED[stopped])
        needless = HARDLY if hardly_faster(candidate, least, bound) else UNNEEDED
        return replace(candidate, refused=needless)

    all_of_them = [final(c) for c in sorted(pool, key=lambda c: c.estimate)]
    timed = sorted((c for c in all_of_them if c.time is not None), key=lambda c: c.time or 0.0)
    return [*timed, *(c for c in all_of_them if c.time is None)]
