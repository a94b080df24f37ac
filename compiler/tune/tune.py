"""tune: of several structures of one collective, which to run with what, for the sizes asked.

Every structure is tried at a few sizes (`Tuner.probe`), which tells who makes them what to make
next. Then those that are far from the best at all of them are dropped, and the search goes through
all sizes, each from where the last ended (`Tuner.finish`). What it found at any size is a candidate
for all sizes, and the matrix of their times decides (`choose`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.plan import Plan
from hccc.ir.topology import F8, Topology
from hccc.tune import choose
from hccc.tune.search import descend, exhaustive
from hccc.tune.setting import Setting, Space, applied, space
from hccc.tune.timing import Timing

FAR = 1.1  # times the best: a structure that is slower at every probe is dropped
PROBES = 3  # sizes
MOST = {"fast": 1 << 15, "full": 1 << 20}  # instances of a simulated call


@dataclass(frozen=True, slots=True)
class Request:
    """What to tune for. sizes: bytes of calls, ascending; blocks: most thread blocks of a rank, all
    channels; channels: how many there must be, None for any; effort: "fast", or "full", which
    simulates calls at length and tries every Setting."""

    sizes: tuple[int, ...]
    blocks: int
    channels: int | None = None
    effort: str = "fast"


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """What was weighed. plans: structures, each of which may be run with any Setting; names: of
    each, for people; sizes: bytes, ascending; candidates: (structure, Setting); times:
    f8[candidates, sizes] µs; probes: sizes, and probed: f8[structures, probes] µs of the best
    Setting at each; instances: primitives times micro-batches that were simulated."""

    plans: tuple[Plan, ...]
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    candidates: tuple[tuple[int, Setting], ...]
    times: F8
    probes: tuple[int, ...]
    probed: F8
    instances: int

    def one(self) -> int:
        """The candidate for all sizes."""
        return choose.one(self.times)

    def ranges(self, most: int) -> I8:
        """The candidate for each size, in at most `most` runs: i8[sizes]."""
        return choose.ranges(self.times, most)

    def plan(self, candidate: int) -> Plan:
        """The Plan of a candidate."""
        at, setting = self.candidates[candidate]
        return applied(self.plans[at], setting)


@dataclass(slots=True)
class Tuner:
    """Tries structures one after the other on one cluster."""

    topology: Topology
    request: Request
    _names: list[str] = field(default_factory=list)
    _searches: list[_Search] = field(default_factory=list)
    _probed: list[list[float]] = field(default_factory=list)

    @property
    def probes(self) -> tuple[int, ...]:
        """The sizes at which every structure is tried."""
        sizes = self.request.sizes
        return tuple(sizes[round(i)] for i in np.unique(np.linspace(0, len(sizes) - 1, PROBES)))

    def probe(self, name: str, plan: Plan) -> float:
        """Tries a structure; the mean of log(µs) of the best at each probe, inf where it hangs."""
        search = _Search(plan, self.topology, self.request)
        found = [search(size)[1] for size in self.probes]
        self._names.append(name)
        self._searches.append(search)
        self._probed.append(found)
        return sum(map(math.log, found)) / len(found)

    def finish(self) -> Tuned:
        """Weighs what was tried for all sizes."""
        probed, sizes = np.array(self._probed), self.request.sizes
        kept = np.flatnonzero((probed <= FAR * probed.min(0)).any(1)).tolist()
        found: dict[tuple[int, Setting], None] = {}
        for k in kept:
            for size in sizes:
                setting, took = self._searches[k](size)
                if np.isfinite(took):
                    found[k, setting] = None
        times = [[self._searches[k].time(size, s) for size in sizes] for k, s in found]
        return Tuned(
            tuple(search.plan for search in self._searches), tuple(self._names), sizes,
            tuple(found), np.array(times), self.probes, probed,
            sum(search.instances for search in self._searches),
        )  # fmt: skip


class _Search:
    """The best Setting of one structure, size after size, each begun where the last ended."""

    def __init__(self, plan: Plan, topology: Topology, request: Request) -> None:
        self.plan, self._exhaustive = plan, request.effort == "full"
        self._timing = Timing(plan, topology, not plan.out_of_place, MOST[request.effort])
        self._space: Space = space(plan, request.blocks, request.channels)
        self._starts = [self._space.middle(), self._space.fine()]
        self._last: Setting | None = None

    @property
    def instances(self) -> int:
        return self._timing.instances

    def time(self, size: int, setting: Setting) -> float:
        return self._timing.time(size, setting)

    def __call__(self, size: int) -> tuple[Setting, float]:
        def time(setting: Setting) -> float:
            return self._timing.time(size, setting)

        if self._exhaustive:
            return exhaustive(self._space, time)
        starts: Sequence[Setting] = [*([self._last] if self._last else []), *self._starts]
        found = min((descend(self._space, time, s) for s in starts), key=lambda pair: pair[1])
        self._last = found[0]
        return found
