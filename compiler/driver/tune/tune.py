"""tune: of several structures of one collective, which to run with what, for the sizes asked.

Every structure is tried at a few sizes (`Tuner.probe`), which tells who makes them what to make
next. Then those that are far from the best at all of them are dropped, and the search goes through
all sizes, each from where the last ended (`Tuner.finish`). What it found at any size is a candidate
for all sizes, and the matrix of their times decides (`choose`): one candidate for all sizes, and a
few kernels of which each size takes the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hccc.base.diagnostics import fail
from hccc.driver.tune import choose
from hccc.driver.tune.search import Time, descend, exhaustive
from hccc.driver.tune.setting import Setting, Space, applied, space
from hccc.driver.tune.timing import Timing
from hccc.ir.arrays import I8
from hccc.ir.digest import digest
from hccc.ir.plan import Plan
from hccc.ir.text import size as size_text
from hccc.ir.topology import F8, Topology

FAR = 1.1  # times the best: a structure that is slower at every probe is dropped
PROBES = 3  # sizes
HOPELESS = 2.0  # times the best so far: a structure that begins slower is not searched there
FINER = 8  # times the instances of a call of what is fastest
BETWEEN = 4  # times a size: one for which only cuts are searched
MOST = {"fast": 1 << 15, "full": 1 << 20}  # instances of a simulated call
SEARCHED = {"fast": 1 << 18, "full": math.inf}  # instances of one size's search
LARGE = 16  # micro-batches of all primitives, the same of a plan that has more than MOST
CROWD = (
    128  # thread blocks of a channel, of all ranks: with so many an instance takes twice as long
)
KINDS = (False, True)  # calls out of place, in place


@dataclass(frozen=True, slots=True)
class Request:
    """What to tune for. sizes: bytes of calls, ascending; blocks: most thread blocks of a rank, all
    channels; channels: how many there must be, None for any; kernels: most of a catalogue; effort:
    "fast", or "full", which simulates calls at length and tries every Setting; enough: µs of a call
    that need not be beaten."""

    sizes: tuple[int, ...]
    blocks: int
    channels: int | None = None
    kernels: int = 1
    effort: str = "fast"
    enough: float = 0.0


class Range(NamedTuple):
    """Calls of one kind from `begin` bytes on, up to the next Range, and the candidate for them."""

    in_place: bool
    begin: int
    candidate: int


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """What was weighed and chosen.

    plans: structures, each of which may be run with any Setting; names: of each, for people; sizes:
    bytes, ascending; candidates: (structure, Setting); times: f8[KINDS, candidates, sizes] µs;
    probes: sizes, and probed: f8[structures, probes] µs of the best Setting at each; instances:
    primitives times micro-batches that were simulated. one: the candidate for all sizes; ranges:
    those of a catalogue, by kind and ascending, each kind's first from 0 bytes.
    """

    plans: tuple[Plan, ...]
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    candidates: tuple[tuple[int, Setting], ...]
    times: F8
    probes: tuple[int, ...]
    probed: F8
    instances: int
    one: int
    ranges: tuple[Range, ...]

    def plan(self, candidate: int) -> Plan:
        """The Plan of a candidate."""
        at, setting = self.candidates[candidate]
        return applied(self.plans[at], setting)

    def alone(self) -> Tuned:
        """The same with the one candidate for all sizes."""
        kinds = dict.fromkeys(one.in_place for one in self.ranges)
        return replace(self, ranges=tuple(Range(kind, 0, self.one) for kind in kinds))

    def kernels(self) -> list[tuple[int, int]]:
        """(structure, channels) of each kernel that ranges use, in order of sizes."""
        return list(dict.fromkeys(self.kernel(r.candidate) for r in self.ranges))

    def kernel(self, candidate: int) -> tuple[int, int]:
        """(structure, channels) of a candidate."""
        at, setting = self.candidates[candidate]
        return at, setting.channels


@dataclass(slots=True)
class Tuner:
    """Tries structures one after the other on one cluster."""

    topology: Topology
    request: Request
    _names: list[str] = field(default_factory=list)
    _searches: list[_Search] = field(default_factory=list)
    _by_digest: dict[bytes, _Search] = field(default_factory=dict)
    _probed: list[list[float]] = field(default_factory=list)

    @property
    def probes(self) -> tuple[int, ...]:
        """The sizes at which every structure is tried."""
        return spread(self.request.sizes)

    def probe(self, name: str, plan: Plan) -> float:
        """Tries a structure; the mean of log(µs) of the best at each probe, inf where it hangs,
        or is far slower than another."""
        search = self._by_digest.setdefault(
            digest(plan), _Search(plan, self.topology, self.request)
        )
        if search in self._searches:  # what nobody can tell from an earlier one
            found = self._probed[self._searches.index(search)]
        else:
            found = [self._probe(search, i, size) for i, size in enumerate(self.probes)]
        self._names.append(name)
        self._searches.append(search)
        self._probed.append(found)
        return sum(map(math.log, found)) / len(found)

    def _probe(self, search: _Search, probe: int, size: int) -> float:
        """µs of the best of a structure at a probe, its search begun with what suits the best
        structure so far."""
        if not self._probed:
            return search(size)[1]
        k = min(range(len(self._probed)), key=lambda k: self._probed[k][probe])
        least, best = self._probed[k][probe], self._searches[k]
        return search(size, HOPELESS * least, best.found.get(size))[1]

    def finish(self) -> Tuned:
        """Weighs what was tried for all sizes."""
        probed, sizes = np.array(self._probed), self.request.sizes
        near = (probed <= FAR * probed.min(0)).any(1)
        alone, first = len(sizes) == 1, int(probed[:, 0].argmin())
        found: dict[tuple[int, Setting], None] = {}
        for k in np.flatnonzero(near).tolist():
            if self._searches.index(self._searches[k]) < k:
                continue
            for size in sizes:
                again = alone and k != first  # of one size only the best is searched once more
                search = self._searches[k]
                setting, took = search.again(size) if again else search(size)
                if alone and k == first:
                    setting, took = search.finer(size)
                if np.isfinite(took):
                    found[k, setting] = None
        if not found:
            message = f"no call of {size_text(sizes[0])} can be simulated: it is cut too often"
            raise fail("E410", message, help="smaller --sizes, more --channels, or --tune off")
        candidates = tuple(found)
        kernel, regret = _kernels(candidates), self._regret(candidates, self._times(found, sizes))
        few = choose.kernels(regret, _numbered(kernel), self.request.kernels)
        one, chosen = candidates[choose.one(regret)], [list(dict.fromkeys(kernel))[k] for k in few]
        sizes, more = self._between(chosen, one[1])
        kept = [c for c, k in zip(candidates, kernel, strict=True) if k in chosen or c == one]
        candidates = tuple(dict.fromkeys([*kept, *more]))
        kernel, times = _kernels(candidates), self._times(candidates, sizes)
        regret = self._regret(candidates, times)
        few = [list(dict.fromkeys(kernel)).index(k) for k in chosen]
        assigned = choose.assigned(regret, _numbered(kernel), few)
        ranges = self._ranges(sizes, candidates, times, assigned)
        return Tuned(
            tuple(search.plan for search in self._searches),
            tuple(self._names),
            sizes,
            candidates,
            times,
            self.probes,
            probed,
            sum(search.instances for search in set(self._searches)),
            candidates.index(one),
            ranges,
        )

    def _plan(self, structure: int) -> Plan:
        return self._searches[structure].plan

    def _between(
        self, kernels: Sequence[tuple[int, int]], start: Setting
    ) -> tuple[tuple[int, ...], list[tuple[int, Setting]]]:
        """All sizes and those between, and what suits each with the kernels chosen: how calls are
        cut costs no kernel."""
        asked, found = self.request.sizes, list[tuple[int, Setting]]()
        if max(len(search.plan) for search in self._searches) > MOST[self.request.effort]:
            return asked, found
        between = {BETWEEN * size for size, end in pairwise(asked) if BETWEEN * size < end}
        sizes = tuple(sorted({*asked, *between}))
        for k, channels in kernels:
            last = start._replace(channels=channels)
            for size in sizes:
                last, took = self._searches[k].cut(size, last)
                if np.isfinite(took):
                    found.append((k, last))
        return sizes, found

    def _regret(self, candidates: Sequence[tuple[int, Setting]], times: F8) -> F8:
        blocks = [self._plan(k).blocks_per_rank // self._plan(k).channels for k, _ in candidates]
        sms = np.array(blocks) * [setting.channels for _, setting in candidates]
        return choose.regrets(times, sms)

    def _times(self, candidates: Iterable[tuple[int, Setting]], sizes: tuple[int, ...]) -> F8:
        """f8[KINDS, candidates, sizes] µs. What is far from the best out of place is not simulated
        in place too, but taken to be as far from it there; nor is the only one, if it is large."""
        out = np.array([[self._time(c, size, None) for size in sizes] for c in candidates])
        near = out <= FAR * out.min(0)
        near &= len(out) > 1 or not any(search.large for search in self._searches)
        times = np.stack([out, out])
        for kind, in_place in enumerate(KINDS):
            for i, candidate in enumerate(candidates):
                if in_place not in self._plan(candidate[0]).modes:
                    times[kind, i] = np.inf
                elif in_place != self._plan(candidate[0]).modes[0]:
                    for s in np.flatnonzero(near[i]).tolist():
                        times[kind, i, s] = self._time(candidate, sizes[s], in_place)
        return times

    def _time(self, candidate: tuple[int, Setting], size: int, in_place: bool | None) -> float:
        return self._searches[candidate[0]].timing.time(size, candidate[1], in_place)

    def _ranges(
        self,
        sizes: tuple[int, ...],
        candidates: Sequence[tuple[int, Setting]],
        times: F8,
        assigned: I8,
    ) -> tuple[Range, ...]:
        """The ranges in which each size has the candidate that it was assigned."""
        found = list[Range]()
        for kind, in_place in enumerate(KINDS):
            if np.isinf(times[kind]).all():
                continue
            begin, last = 0, int(assigned[kind, 0])
            for s in range(1, len(sizes)):
                now = int(assigned[kind, s])
                if now != last:
                    found.append(Range(in_place, begin, last))
                    pair = candidates[last], candidates[now]
                    begin, last = self._border(pair, sizes[s - 1], sizes[s], in_place), now
            found.append(Range(in_place, begin, last))
        return tuple(found)

    def _border(
        self, pair: tuple[tuple[int, Setting], ...], small: int, large: int, in_place: bool
    ) -> int:
        """From which size on, doubling `small`, the second of two candidates is as fast."""
        size = 2 * small
        while size < large:
            before, after = (self._time(one, size, in_place) for one in pair)
            if after <= before:
                return size
            size *= 2
        return large


def _kernels(candidates: Iterable[tuple[int, Setting]]) -> list[tuple[int, int]]:
    """(structure, channels) of each."""
    return [(k, setting.channels) for k, setting in candidates]


def spread(sizes: Sequence[int]) -> tuple[int, ...]:
    """At most PROBES of `sizes`, the first and the last among them."""
    return tuple(sizes[round(i)] for i in np.unique(np.linspace(0, len(sizes) - 1, PROBES)))


def _numbered(keys: Sequence[tuple[int, int]]) -> I8:
    """The number of each key, from 0 in order of first appearance: i8[keys]."""
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return np.array([number[key] for key in keys], np.int64)


class _Search:
    """The best Setting of one structure, size after size, each begun where the last ended."""

    def __init__(self, plan: Plan, topology: Topology, request: Request) -> None:
        self.plan, self._effort, self._enough = plan, request.effort, request.enough
        crowded = 1.0 if request.effort == "full" else CROWD / (CROWD + int(plan.n_tb.sum()))
        self.timing = Timing(plan, topology, MOST[request.effort])
        self._limit = SEARCHED[request.effort] * crowded
        self._space: Space = space(plan, request.blocks, request.channels)
        self._starts = [self._space.middle(), self._space.fine()]
        self.large = len(plan) > MOST[request.effort]
        if self.large:
            self._limit, self._starts = LARGE * len(plan), [self._space.most()]
        self._last: Setting | None = None
        self._each = int(plan.n_tb.max(initial=1))
        self.found: dict[int, tuple[Setting, int]] = {}  # by size; and blocks of all channels

    @property
    def instances(self) -> int:
        return self.timing.instances

    def cut(self, size: int, start: Setting) -> tuple[Setting, float]:
        """The best with the channels of `start`."""
        space = self._space._replace(channels=(start.channels,))
        with self.timing.limited(self._limit):
            return descend(space, self._time(size), start)

    def __call__(
        self, size: int, limit: float = math.inf, like: tuple[Setting, int] | None = None
    ) -> tuple[Setting, float]:
        """The best for `size`; inf where calls take more than `limit` µs wherever it begins. like:
        what suits another structure, and its thread blocks."""
        time = self._time(size)
        if self._effort == "full":
            return exhaustive(self._space, time)
        starts = self._starts if self._last is None else [self._last, self._space.middle()]
        if like is not None:
            starts = [self._space.nearest(like[0], like[1] / self._each)]
        coarse = self._space.coarsest()
        with self.timing.limited(self._limit):
            known = [(coarse, time(coarse, math.inf))] if self.large else []  # more may be too much
            if not known and all(math.isinf(time(start, limit)) for start in starts):
                return starts[0], math.inf
            for start in starts:
                if min((took for _, took in known), default=math.inf) > self._enough:
                    known.append(descend(self._space, time, start, self._enough))
        found = min(known, key=lambda pair: pair[1])
        self._last = found[0]
        self.found[size] = found[0], found[0].channels * self._each
        return found

    def again(self, size: int) -> tuple[Setting, float]:
        """What the last search for `size` found."""
        setting = self.found[size][0] if size in self.found else self._starts[0]
        return setting, self.timing.time(size, setting)

    def finer(self, size: int) -> tuple[Setting, float]:
        """As `again`, and what is near it but could not be simulated before: it is cut too
        finely."""
        self.timing.most *= FINER
        with self.timing.limited(FINER * self._limit):
            return descend(self._space, self._time(size), self.again(size)[0], self._enough)

    def _time(self, size: int) -> Time:
        return lambda setting, limit: self.timing.time(size, setting, limit=limit)
