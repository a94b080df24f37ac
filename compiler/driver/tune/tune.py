"""tune: which of several structures of one collective to run with which setting, for some sizes.

Every structure is tried at a few sizes (`Tuner.probe`), and the caller decides by the result which
structure to make next. Then structures that are far from the best at all of these sizes are
dropped, and the search goes through all sizes, each from the end of the previous (`Tuner.finish`).
Every setting found at any size is a candidate for all sizes, and the matrix of their times decides
(`choose`): one candidate for all sizes, and a few kernels of which each size takes the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, pairwise
from typing import NamedTuple

import numpy as np

from hccc.base.diagnostics import fail
from hccc.base.interruptible import at_once
from hccc.base.progress import far
from hccc.driver.tune import choose
from hccc.driver.tune.kept import KeptCalls
from hccc.driver.tune.search import Time, descend, exhaustive
from hccc.driver.tune.setting import Setting, Space, applied, space
from hccc.driver.tune.timing import BEHIND, CallTiming
from hccc.ir.arrays import B1, I8
from hccc.ir.digest import digest
from hccc.ir.plan import Plan
from hccc.ir.text import size as size_text
from hccc.ir.topology import F8, Topology

FAR = 1.1  # times the best time: a structure slower than this at every probe is dropped
PROBES = 3  # sizes
HOPELESS = 2.0  # times the best so far: a structure whose starts are slower is not searched there
FINER = 8  # times the instances of a call, for the last search of the best structure
BETWEEN = 4  # times a size: the next size in between
MOST = {"fast": 1 << 15, "full": 1 << 20}  # instances of a simulated call
SEARCHED = {"fast": 1 << 18, "full": math.inf}  # instances of one size's search
LARGE = 16  # micro-batches of one size's search, for a plan of more than MOST primitives
# Thread blocks of a channel, of all ranks: with this many, simulating an instance takes twice as
# long, so a search has half as many instances.
CROWD = 128
KINDS = (False, True)  # calls out of place, in place


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """The request for tuning. sizes: bytes of calls, ascending; blocks: most thread blocks of a
    rank, all channels; channels: a required number, None for any; kernels: most of a catalogue;
    effort: "fast", or "full", which simulates calls at length and tries every Setting; enough: µs
    of a call that need not be beaten."""

    sizes: tuple[int, ...]
    blocks: int
    channels: int | None = None
    kernels: int = 1
    effort: str = "fast"
    enough: float = 0.0


class TuneCandidate(NamedTuple):
    """A structure, by its number, with a setting."""

    structure: int
    setting: Setting

    @property
    def kernel(self) -> tuple[int, int]:
        """(structure, channels): candidates of one kernel differ only in how calls are cut."""
        return self.structure, self.setting.channels


class TunedRange(NamedTuple):
    """Calls of one kind from `begin` bytes on, up to the next range, and the candidate for them."""

    in_place: bool
    begin: int
    candidate: int


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """The candidates and choices of tuning.

    plans: structures, each of which may be run with any Setting; names: of each, for people; sizes:
    bytes, ascending; candidates: (structure, Setting); times: f8[KINDS, candidates, sizes] µs;
    probes: sizes, and probed: f8[structures, probes] µs of the best Setting at each; instances:
    simulated primitives times micro-batches. best: the candidate for all sizes; ranges: those of a
    catalogue, by kind and ascending, each kind's first from 0 bytes.
    """

    plans: tuple[Plan, ...]
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    candidates: tuple[TuneCandidate, ...]
    times: F8
    probes: tuple[int, ...]
    probed: F8
    instances: int
    best: int
    ranges: tuple[TunedRange, ...]

    def plan(self, candidate: int) -> Plan:
        """Returns the Plan of a candidate."""
        structure, setting = self.candidates[candidate]
        return applied(self.plans[structure], setting)

    def alone(self) -> Tuned:
        """Returns the result with only the best candidate, for all sizes."""
        kinds = dict.fromkeys(r.in_place for r in self.ranges)
        return replace(self, ranges=tuple(TunedRange(kind, 0, self.best) for kind in kinds))

    def kernels(self) -> list[tuple[int, int]]:
        """Returns (structure, channels) of each kernel that ranges use, in order of sizes."""
        return list(dict.fromkeys(self.kernel(r.candidate) for r in self.ranges))

    def kernel(self, candidate: int) -> tuple[int, int]:
        """Returns (structure, channels) of a candidate."""
        return self.candidates[candidate].kernel


@dataclass(slots=True)
class Tuner:
    """Tries structures one after the other on one cluster."""

    topology: Topology
    request: TuneRequest
    _names: list[str] = field(default_factory=list)
    _searches: list[_Search] = field(default_factory=list)
    _by_digest: dict[bytes, _Search] = field(default_factory=dict)
    _probed: list[list[float]] = field(default_factory=list)

    @property
    def probes(self) -> tuple[int, ...]:
        """The sizes at which every structure is tried."""
        return spread(self.request.sizes)

    def probe(
        self, name: str, plan: Plan, *, afresh: bool = False, best: float = math.inf
    ) -> float:
        """Tries a structure. Returns the mean of log(µs) of its best Settings at the probes, inf if
        it hangs or is far slower than another.

        afresh: whether Settings that suit the others say nothing of what suits it; best: a mean
        that it should beat: if it cannot, calls that take long to simulate are given up.
        """
        search = self._by_digest.setdefault(
            digest(plan), _Search(plan, self.topology, self.request)
        )
        if search in self._searches:  # it does the same as an earlier structure
            found = self._probed[self._searches.index(search)]
        else:
            found = list[float]()
            for size in self.probes:
                search.timing.worth = self._worth(found, best)
                found.append(self._probe(search, len(found), size, afresh))
            search.timing.worth = math.inf
        self._names.append(name)
        self._searches.append(search)
        self._probed.append(found)
        return sum(map(math.log, found)) / len(found)

    def _worth(self, found: Sequence[float], best: float) -> float:
        """Returns the µs at the last probe, with `found` before it, up to which a structure has a
        better mean than `best` or is near another; inf at other probes."""
        if len(found) < len(self.probes) - 1 or not self._probed:
            return math.inf
        *before, least = (min(of_probe) for of_probe in zip(*self._probed, strict=True))
        mean = len(self.probes) * best - sum(map(math.log, found))
        worth = math.exp(mean) if mean < math.log(least) else math.inf
        near = any(us <= FAR * known for us, known in zip(found, before, strict=True))
        return worth if near else max(worth, FAR * least)

    def _probe(self, search: _Search, probe: int, size: int, afresh: bool) -> float:
        """Returns the µs of the best Setting of a structure at a probe; its search starts from the
        Setting of the best structure so far, unless afresh."""
        if not self._probed:
            return search(size)[1]
        k = min(range(len(self._probed)), key=lambda k: self._probed[k][probe])
        least, best = self._probed[k][probe], self._searches[k]
        like = None if afresh else best.found.get(size)
        return search(size, HOPELESS * least, like, least)[1]

    def finish(self) -> Tuned:
        """Searches all sizes with the structures near the best, and chooses.

        First the best candidate for all sizes and the kernels are chosen, by the requested sizes.
        Then, with sizes in between, each size is assigned a candidate of the chosen kernels.
        """
        probed, sizes = np.array(self._probed), self.request.sizes
        candidates = self._candidates(probed)
        regret = self._regret(candidates, self._times(candidates, sizes))
        number, kernels = _numbered(candidates)
        best = candidates[choose.best_for_all(regret)]
        chosen = [kernels[k] for k in choose.kernels(regret, number, self.request.kernels)]
        sizes, between = self._between(chosen, best.setting)
        kept = [c for c in candidates if c.kernel in chosen or c == best]
        candidates = tuple(dict.fromkeys([*kept, *between]))
        times = self._times(candidates, sizes)
        number, kernels = _numbered(candidates)
        regret = self._regret(candidates, times)
        assigned = choose.assigned(regret, number, [kernels.index(kernel) for kernel in chosen])
        ranges = self._ranges(sizes, candidates, times, assigned)  # simulates calls, too
        for search in set(self._searches):
            if search.timing.kept is not None:
                search.timing.kept.save()
        return Tuned(
            tuple(search.plan for search in self._searches),
            tuple(self._names),
            sizes,
            candidates,
            times,
            self.probes,
            probed,
            sum(search.instances for search in set(self._searches)),
            candidates.index(best),
            ranges,
        )

    def _candidates(self, probed: F8) -> tuple[TuneCandidate, ...]:
        """Searches all sizes with the structures that are near the best at any probe, or are of
        packets, which serve few of them.

        probed: f8[structures, probes] µs. Of a single size only the best structure is searched
        once more, with finer cuts.

        Raises:
            UserError: E410 no call can be simulated.
        """
        sizes = self.request.sizes
        near = (probed <= FAR * probed.min(0)).any(1)
        near |= [bool(s.plan.max_bytes) for s in self._searches]  # packets may be best in between
        behind = (probed > probed.min(0)).all(1)
        self._shorten(behind)
        alone, first = len(sizes) == 1, int(probed[:, 0].argmin())
        counted = count(1)

        def searched(k: int) -> list[TuneCandidate]:
            search, found = self._searches[k], list[TuneCandidate]()
            for size in sizes:
                if not alone:
                    setting, took = search(size, best=0.0 if behind[k] else math.inf)
                elif k == first:
                    search(size)
                    setting, took = search.finer(size)
                else:
                    setting, took = search.again(size)
                if np.isfinite(took):
                    found.append(TuneCandidate(k, setting))
                far(next(counted), len(sizes) * len(searches))
            return found

        # A plan that is the same as that of an earlier structure is not searched again.
        found_first = self._searches.index
        once = [k for k, search in enumerate(self._searches) if found_first(search) == k]
        # What took long at the probes begins first, so that cores end together.
        searches = sorted(
            (k for k in once if near[k]), key=lambda k: -self._searches[k].timing.rates
        )
        of_each = dict(zip(searches, at_once(searched, searches), strict=True))
        if not any(of_each.values()):
            message = f"no call of {size_text(sizes[0])} can be simulated: it is cut too often"
            raise fail("E410", message, help="smaller --sizes, more --channels, or --tune off")
        return tuple(dict.fromkeys(chain.from_iterable(of_each[k] for k in sorted(of_each))))

    def _shorten(self, behind: B1) -> None:
        """Has calls given up of structures that are slower than another at every probe: calls that
        take longer to simulate than any of the other structures, and than BEHIND."""
        others = [self._searches[k].timing.longest for k in np.flatnonzero(~behind)]
        for k in np.flatnonzero(behind):
            if not self._searches[k].large:
                self._searches[k].timing.most_rates = max(BEHIND, *others)

    def _plan(self, structure: int) -> Plan:
        return self._searches[structure].plan

    def _between(
        self, kernels: Sequence[tuple[int, int]], start: Setting
    ) -> tuple[tuple[int, ...], list[TuneCandidate]]:
        """Returns the requested sizes with sizes between them, and the best Setting of the chosen
        kernels at each: a kernel can cut calls of each size differently."""
        asked = self.request.sizes
        if max(len(search.plan) for search in self._searches) > MOST[self.request.effort]:
            return asked, []
        between = {BETWEEN * size for size, end in pairwise(asked) if BETWEEN * size < end}
        sizes = tuple(sorted({*asked, *between}))

        def cut(k: int) -> list[TuneCandidate]:
            found = list[TuneCandidate]()
            for channels in (channels for structure, channels in kernels if structure == k):
                last = start._replace(channels=channels)
                for size in sizes:
                    last, took = self._searches[k].cut(size, last)
                    if np.isfinite(took):
                        found.append(TuneCandidate(k, last))
            return found

        structures = list(dict.fromkeys(k for k, _ in kernels))
        return sizes, list(chain.from_iterable(at_once(cut, structures)))

    def _regret(self, candidates: Sequence[TuneCandidate], times: F8) -> F8:
        plans = [self._plan(c.structure) for c in candidates]
        blocks = [plan.blocks_per_rank // plan.channels for plan in plans]
        sms = np.array(blocks) * [c.setting.channels for c in candidates]
        return choose.regrets(times, sms)

    def _times(self, candidates: Sequence[TuneCandidate], sizes: tuple[int, ...]) -> F8:
        """Returns the times of candidates: f8[KINDS, candidates, sizes] µs.

        In-place calls are only simulated for candidates near the best out of place; others, and a
        single large candidate, are assumed to be as far from the best there.
        """
        asked = [(c, size, None) for c in candidates for size in sizes]
        out = self._each_time(asked).reshape(-1, len(sizes))
        near = out <= FAR * out.min(0)
        near &= len(out) > 1 or not any(search.large for search in self._searches)
        times, more = np.stack([out, out]), list[tuple[int, int, int]]()
        for kind, in_place in enumerate(KINDS):
            for i, candidate in enumerate(candidates):
                if in_place not in self._plan(candidate.structure).modes:
                    times[kind, i] = np.inf
                elif in_place != self._plan(candidate.structure).modes[0]:
                    more += [(kind, i, s) for s in np.flatnonzero(near[i]).tolist()]
        took = self._each_time([(candidates[i], sizes[s], KINDS[kind]) for kind, i, s in more])
        for at, us in zip(more, took, strict=True):
            times[at] = us
        return times

    def _each_time(self, calls: Sequence[tuple[TuneCandidate, int, bool | None]]) -> F8:
        """Returns the `_time` of each call, f8[calls] µs; simulates several structures at once."""
        of_structure: dict[int, list[int]] = {}
        for i, (candidate, _, _) in enumerate(calls):
            of_structure.setdefault(candidate.structure, []).append(i)
        groups, times, counted = list(of_structure.values()), np.empty(len(calls)), count(1)

        def timed(group: Sequence[int]) -> list[float]:
            found = list[float]()
            for i in group:
                found.append(self._time(*calls[i]))
                far(next(counted), len(calls))
            return found

        took = at_once(timed, groups)
        for group, us in zip(groups, took, strict=True):
            times[group] = us
        return times

    def _time(self, candidate: TuneCandidate, size: int, in_place: bool | None) -> float:
        timing = self._searches[candidate.structure].timing
        return timing.time(size, candidate.setting, in_place)

    def _ranges(
        self,
        sizes: tuple[int, ...],
        candidates: Sequence[TuneCandidate],
        times: F8,
        assigned: I8,
    ) -> tuple[TunedRange, ...]:
        """Returns the ranges in which each size has the candidate that it was assigned."""
        found = list[TunedRange]()
        for kind, in_place in enumerate(KINDS):
            if np.isinf(times[kind]).all():
                continue
            begin, last = 0, int(assigned[kind, 0])
            for s in range(1, len(sizes)):
                now = int(assigned[kind, s])
                if now != last:
                    found.append(TunedRange(in_place, begin, last))
                    pair = candidates[last], candidates[now]
                    begin, last = self._border(pair, sizes[s - 1], sizes[s], in_place), now
            found.append(TunedRange(in_place, begin, last))
        return tuple(found)

    def _border(
        self, pair: tuple[TuneCandidate, TuneCandidate], small: int, large: int, in_place: bool
    ) -> int:
        """Returns the size, doubling `small`, from which on the second of two candidates is as
        fast."""
        most = self._plan(pair[0].structure).max_bytes or large
        large, size = min(large, most), 2 * small
        while size < large:
            before, after = (self._time(candidate, size, in_place) for candidate in pair)
            if after <= before:
                return size
            size *= 2
        return large


def spread(sizes: Sequence[int]) -> tuple[int, ...]:
    """Returns at most PROBES of `sizes`, the first and the last among them."""
    return tuple(sizes[round(i)] for i in np.unique(np.linspace(0, len(sizes) - 1, PROBES)))


def _numbered(candidates: Iterable[TuneCandidate]) -> tuple[I8, list[tuple[int, int]]]:
    """Returns the number of each candidate's kernel, i8[candidates], and the kernels by number."""
    number: dict[tuple[int, int], int] = {}
    found = [number.setdefault(c.kernel, len(number)) for c in candidates]
    return np.array(found, np.int64), list(number)


class _Search:
    """Finds the best Setting of one structure, size after size, each from the end of the previous
    search."""

    def __init__(self, plan: Plan, topology: Topology, request: TuneRequest) -> None:
        self.plan, self._effort, self._enough = plan, request.effort, request.enough
        crowded = 1.0 if request.effort == "full" else CROWD / (CROWD + int(plan.n_tb.sum()))
        kept = KeptCalls(plan, topology)
        self.timing = CallTiming(plan, topology, MOST[request.effort], kept)
        self._limit = SEARCHED[request.effort] * crowded
        self._space: Space = space(plan, request.blocks, request.channels)
        self._starts = [self._space.middle(), self._space.fine()]
        self.large = len(plan) > MOST[request.effort]
        if self.large:
            self._limit, self._starts = LARGE * len(plan), [self._space.all_channels()]
        self._last: Setting | None = None
        self._each = int(plan.n_tb.max(initial=1))
        self.found: dict[int, tuple[Setting, int]] = {}  # by size: setting, blocks of all channels

    @property
    def instances(self) -> int:
        return self.timing.instances

    def cut(self, size: int, start: Setting) -> tuple[Setting, float]:
        """Finds the best Setting with the channels of `start`."""
        space = self._space._replace(channels=(start.channels,))
        with self.timing.limited(self._limit):
            return descend(space, self._time(size), start)

    def __call__(
        self,
        size: int,
        limit: float = math.inf,
        like: tuple[Setting, int] | None = None,
        best: float = math.inf,
    ) -> tuple[Setting, float]:
        """Finds the best Setting for `size`; inf if calls take more than `limit` µs from every
        start.

        like: the Setting of another structure, and its thread blocks; best: µs of another
        structure: one that is slower from every start is searched for as long as BEHIND says.
        """
        time = self._time(size)
        if self._effort == "full":
            return exhaustive(self._space, time)
        starts = self._starts if self._last is None else [self._last, self._space.middle()]
        if like is not None:
            starts = [self._space.nearest(like[0], like[1] / self._each)]
        coarse, begun = self._space.coarsest(), self.timing.rates
        with self.timing.limited(self._limit):
            # The coarsest setting first: a large plan may not get further.
            known = [(coarse, time(coarse, math.inf))] if self.large else []
            if not known:
                first = self._first(starts, time, limit)
                if math.isinf(first):
                    return starts[0], math.inf
                if first > best:
                    self.timing.stop_at(begun + BEHIND)
            for start in starts:
                if min((took for _, took in known), default=math.inf) > self._enough:
                    known.append(descend(self._space, time, start, self._enough))
        found = min(known, key=lambda pair: pair[1])
        self._last = found[0]
        self.found[size] = found[0], found[0].channels * self._each
        return found

    def _first(self, starts: Sequence[Setting], time: Time, limit: float) -> float:
        """Returns the µs of the first start that takes no more than `limit`; inf if none does."""
        took = (time(start, limit) for start in starts)
        return next(filter(math.isfinite, took), math.inf)

    def again(self, size: int) -> tuple[Setting, float]:
        """Returns the Setting that the last search for `size` found."""
        setting = self.found[size][0] if size in self.found else self._starts[0]
        return setting, self.timing.time(size, setting)

    def finer(self, size: int) -> tuple[Setting, float]:
        """Searches on from `again` with finer cuts, which take longer to simulate."""
        self.timing.max_instances *= FINER
        with self.timing.limited(FINER * self._limit):
            return descend(self._space, self._time(size), self.again(size)[0], self._enough)

    def _time(self, size: int) -> Time:
        return lambda setting, limit: self.timing.time(size, setting, limit=limit)
