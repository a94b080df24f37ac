"""weighed: candidates of a synthesis: which of them to compile, and in what order they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from hccc.ir.program import Program
from hccc.synth.greedy.searched import Searched

COMPILED = 6  # candidates of a size, those of least estimate
ALIKE = 4  # of one method, where there are others: their estimates hardly differ
CROWDED = 1.05  # times the estimate of what greedy makes: many peers a rank are slower than it says
FAR = 2.0  # times the least estimate: not compiled
LARGE = 1 << 17  # transfers of a program that takes seconds to compile and to simulate
LARGE_ENOUGH = 0.9  # as ENOUGH, of a large program
PEER = 0.005  # of the estimate of a large program, for each peer of a rank: what they send at once
# is late all together, and what passes it on stands still until then
ENOUGH = 0.98  # of the bound: no other candidate is simulated
NEAR = 0.9  # of the bound: from there on estimates tell who is slower
SMALL = 1 << 9  # transfers of a program that is simulated in tenths of a second
GAIN, SMALL_GAIN = 0.03, 0.01  # that an estimate must promise for it to be simulated
INTERRUPTED = "interrupted before it was simulated"
HARDLY = "not simulated: by its estimate hardly faster than another"
UNNEEDED = "not simulated: another is near the bound"


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """A candidate. estimate, time: µs, time None where it was not simulated; refused: why it is
    none, or was not compiled; searched: how its schedule was found, None of a built-in."""

    name: str
    program: Program | None
    estimate: float
    time: float | None = None
    refused: str = ""
    searched: Searched | None = None


def weighed_facts(one: Weighed) -> dict[str, object]:
    """A candidate, for JSON; times in µs, None where there are none."""
    return {
        "name": one.name,
        "time": one.time,
        "refused": one.refused or None,
        "estimate": one.estimate if one.program else None,
    }


def nearest(found: Sequence[Weighed]) -> list[Weighed]:
    """The candidates to compile: at most COMPILED, by estimate; of one method more than ALIKE only
    where there are not enough others."""
    order = sorted((one for one in found if one.program), key=_expected)
    count, first, more = Counter[str](), list[Weighed](), list[Weighed]()
    for one in order:
        if one.estimate <= FAR * order[0].estimate:
            method = one.name.split(",")[0]
            (first if count[method] < ALIKE else more).append(one)
            count[method] += 1
    return [*first, *more][:COMPILED]


def _expected(one: Weighed) -> float:
    """The estimate, and what it does not know of ranks with many peers."""
    if one.program is None or len(one.program) <= LARGE:
        return one.estimate * (CROWDED if one.searched else 1.0)
    rows = one.program.transfers
    n = one.program.collective.n_ranks
    pairs = np.unique(rows["src"].astype(np.int64) * n + rows["dst"])
    return one.estimate * (1 + PEER * int(np.bincount(pairs // n).max()))


def enough(one: Weighed) -> float:
    """Of the bound, how much of it spares simulating others."""
    assert one.program is not None
    return ENOUGH if len(one.program) <= LARGE else LARGE_ENOUGH


def hardly_faster(one: Weighed, least: float, bound: float) -> bool:
    """Whether a candidate need not be simulated, where another takes `least` µs and none less than
    `bound`: it can hardly gain what simulating it costs."""
    assert one.program is not None
    gain = SMALL_GAIN if len(one.program) <= SMALL else GAIN
    return bound >= NEAR * least and one.estimate >= (1 - gain) * least


def in_order(
    found: Sequence[Weighed],
    near: Sequence[Weighed],
    done: dict[str, Weighed],
    bound: float,
    stopped: bool = True,
) -> list[Weighed]:
    """All candidates: those that were simulated, by time, then the others, by estimate.

    near: those that were to be simulated; done: those that were, by name; bound: µs; stopped:
    whether others were not as Ctrl-C ended it.
    """
    least = min((one.time for one in done.values() if one.time is not None), default=inf)
    left = {one.name for one in near} - done.keys()

    def told(one: Weighed) -> Weighed:
        if one.name not in left:
            return done.get(one.name, one)
        if stopped:
            return replace(one, refused=INTERRUPTED)
        return replace(one, refused=HARDLY if hardly_faster(one, least, bound) else UNNEEDED)

    each = [told(one) for one in sorted(found, key=lambda one: one.estimate)]
    timed = sorted((one for one in each if one.time is not None), key=lambda one: one.time or 0.0)
    return [*timed, *(one for one in each if one.time is None)]
