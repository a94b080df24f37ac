"""synthesize: the best Programs for a collective on a cluster, by simulated time.

Candidates are schedules that the engines of `synth` search, and built-in algorithms. Those whose
estimate says that they cannot win are not compiled; the rest are compiled, tuned and simulated.

For several sizes candidates are made once. Those of least estimate at any size are compiled once,
for all sizes that want them. Few of them are chosen, so that every size has one that is about as
fast there as the best (`tune/choose`, SyCCL §5).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import groupby
from math import inf, isfinite

import numpy as np

from hccc.base.diagnostics import UserError
from hccc.base.interruptible import LateError, Stopped, anytime, interruptible
from hccc.base.progress import within
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.driver.structures import MOST_TRIED
from hccc.driver.tune import choose
from hccc.driver.tune.setting import most_blocks
from hccc.driver.tune.sizes import parsed
from hccc.driver.tune.tune import spread
from hccc.ir.arrays import I8
from hccc.ir.collective import OpType
from hccc.ir.demand import Demand
from hccc.ir.sketch import Allotment
from hccc.ir.topology import Topology
from hccc.passes.verify import verify
from hccc.synth.bounds.block_bound import block_bound
from hccc.synth.bounds.estimate import estimate
from hccc.synth.candidates import (
    ENOUGH,
    Candidate,
    SynthRequest,
    candidates,
    given_up,
    none_serves,
    request,
)
from hccc.synth.shortlist import enough, hardly_faster, in_order, shortlist
from hccc.synth.synthesis import ChosenProgram, SizeResult, SizesSynthesis, Synthesis, slug

SIZES = "1K..4G"
_Simulated = tuple[str, dict[int, Candidate]]  # a candidate's name, and the candidate at each size


def synthesize(
    t: Topology,
    op: OpType | Demand,
    size: int,
    *,
    root: int = 0,
    method: str = "auto",
    seed: int = 0,
    time_limit: float = 60.0,
    seconds: float | None = None,
    options: Options | None = None,
    allotment: Allotment | None = None,
    unpruned: Collection[str] = (),
) -> Synthesis:
    """Makes the best Program of `op` on `t` for calls of `size` bytes; at Ctrl-C or after `seconds`
    the best of the candidates that were simulated by then, one at the least.

    method: "auto" (all but repair and cegis), or one of `methods`; time_limit: seconds that a
    solver may take; seconds: of it all, None: as long as it takes; options: how candidates are
    compiled; op: also a demand of one's own; allotment: sketches of one's own, weighed as method
    "sketch"; unpruned: prunings of sketches to do without.

    Raises:
        UserError: E451 there is no such method, or nothing serves `op` on this cluster.
        KeyboardInterrupt: Ctrl-C before one was simulated.
    """
    begin, until = time.perf_counter(), _until(seconds)
    r = request(
        t,
        op,
        size,
        root=root,
        method=method,
        seed=seed,
        time_limit=time_limit,
        allotment=allotment,
        unpruned=unpruned,
    )
    found = candidates(r)
    listed, bound, how = shortlist(found), r.limits.at(size).time, options or Options()

    def simulate(done: list[_Simulated]) -> None:
        least = inf
        for number, candidate in enumerate(listed, 1):
            if hardly_faster(candidate, least, bound):
                continue
            _in_time(done, until)
            with within(f"Simulating {candidate.name} ({number} of {len(listed)})"):
                timed = _simulated(candidate, t, [size], how, bound / ENOUGH)
            done.append((candidate.name, timed))
            least = min(least, done[-1][1][size].time or inf)
            if enough(candidate) * least <= bound:
                return

    done, stopped = anytime(simulate, _any_time, until)
    blocks = how.max_sms or most_blocks(t)
    at = _results(r, blocks, [size], [found], [listed], done, stopped)
    best = at[0].best
    assert best.program is not None
    chosen = ChosenProgram(best.name, best.program, ((size, size),))
    return Synthesis(t, seed, at, (chosen,), (0,), *_ended(begin, stopped, found))


def synthesize_sizes(
    t: Topology,
    op: OpType | Demand,
    sizes: str = SIZES,
    *,
    root: int = 0,
    method: str = "auto",
    seed: int = 0,
    time_limit: float = 60.0,
    seconds: float | None = None,
    options: Options | None = None,
    allotment: Allotment | None = None,
    unpruned: Collection[str] = (),
) -> SizesSynthesis:
    """Makes the best Programs of `op` on `t` for calls of `sizes`, at most `options.plans`; at
    Ctrl-C or after `seconds`, the best of the candidates that were simulated by then.

    sizes: a range such as `1K..4G`, of which some are compared (`tune/sizes`). Otherwise as
    `synthesize`.

    Raises:
        UserError: E410 for no range; what `synthesize` raises.
        KeyboardInterrupt: Ctrl-C before one was simulated.
    """
    begin, until = time.perf_counter(), _until(seconds)
    how, each = options or Options(), parsed(sizes)
    r = request(
        t,
        op,
        each[0],
        root=root,
        method=method,
        seed=seed,
        time_limit=time_limit,
        allotment=allotment,
        unpruned=unpruned,
        largest=each[-1],
    )
    found = candidates(r)
    if max(len(candidate.program) for candidate in found if candidate.program) > MOST_TRIED:
        each = spread(each)  # all that tuning tries of a large one
    estimated = interruptible(lambda: [_estimated(found, t, size) for size in each])()
    listed = [shortlist(at_size) for at_size in estimated]
    wanted = _wanted_sizes(listed, each, how.plans)

    def simulate(done: list[_Simulated]) -> None:
        for number, (candidate, at_sizes) in enumerate(wanted, 1):
            _in_time(done, until)
            with within(f"Simulating {candidate.name} ({number} of {len(wanted)})"):
                done.append((candidate.name, _simulated(candidate, t, at_sizes, how)))

    done, stopped = anytime(simulate, _any_time, until)
    blocks = how.max_sms or most_blocks(t)
    at = _results(r, blocks, each, estimated, listed, done, stopped)
    chosen, choice = _chosen(at, how.plans)
    return SizesSynthesis(t, seed, at, chosen, choice, *_ended(begin, stopped, found))


def _simulated(
    candidate: Candidate, t: Topology, sizes: Sequence[int], options: Options, enough: float = 0.0
) -> dict[int, Candidate]:
    """Returns the candidate with its time at each of `sizes`, ascending, in the structure that
    tuning finds best there. enough: µs that need not be beaten, of one size."""
    assert candidate.program is not None
    low, high = max(1, sizes[0]), max(1, sizes[-1])
    several = low < high
    how = replace(
        options,
        prove=False,
        sizes=f"{low}..{high}" if several else str(low),
        plans=options.plans if several else 2,
    )
    try:
        made = driver.compile_program(verify(candidate.program), how, t, enough=enough)
    except UserError as error:
        return {size: replace(candidate, refused=error.problem.message) for size in sizes}
    assert made.tuned is not None
    times = made.tuned.times[int(not made.plan.out_of_place)].min(0)
    took = dict(zip(made.tuned.sizes, times.tolist(), strict=True))
    return {size: _timed(candidate, took[max(1, size)]) for size in sizes}


def _timed(candidate: Candidate, took: float) -> Candidate:
    """Returns the candidate with its time, or refused where that is infinite."""
    if isfinite(took):
        return replace(candidate, time=took, refused="")
    return replace(candidate, refused="cut too often")


def _any_time(done: Sequence[_Simulated]) -> bool:
    """Tells whether any candidate has a time."""
    return any(candidate.time is not None for _, at in done for candidate in at.values())


def _until(seconds: float | None) -> float | None:
    """Returns when so many seconds are over, of the monotonic clock."""
    return None if seconds is None else time.monotonic() + seconds


def _in_time(done: Sequence[_Simulated], until: float | None) -> None:
    """Raises LateError where the time is over and a candidate has been simulated."""
    if until is not None and time.monotonic() >= until and _any_time(done):
        raise LateError


def _ended(
    begin: float, stopped: Stopped | None, found: Sequence[Candidate]
) -> tuple[float, bool, bool]:
    """Returns the seconds that it took, and whether Ctrl-C or the time ended it."""
    took, interrupted = time.perf_counter() - begin, stopped is Stopped.INTERRUPTED
    return took, interrupted or given_up(found), stopped is Stopped.LATE


def _results(
    r: SynthRequest,
    blocks: int,
    sizes: Sequence[int],
    found: Sequence[Sequence[Candidate]],
    listed: Sequence[Sequence[Candidate]],
    done: Sequence[_Simulated],
    stopped: Stopped | None,
) -> tuple[SizeResult, ...]:
    """Returns the candidates of every size in order. blocks: thread blocks of a rank at most;
    found, listed: all, and those to simulate.

    Raises:
        UserError: E451 none has a time.
    """
    results = list[SizeResult]()
    for size, all_of_them, short in zip(sizes, found, listed, strict=True):
        guess = {candidate.name: candidate.estimate for candidate in all_of_them}
        timed = {name: replace(at[size], estimate=guess[name]) for name, at in done if size in at}
        bound = r.limits.at(size)
        order = in_order(all_of_them, short, timed, bound.time, stopped)
        least = block_bound(r.topology, r.op, r.root, size, blocks)
        results.append(SizeResult(size, tuple(order), bound, blocks, least))
    if not _any_time(done):
        raise none_serves(r.op, results[0].weighed)
    return tuple(results)


def _estimated(found: Sequence[Candidate], t: Topology, size: int) -> list[Candidate]:
    """Returns the candidates with their estimates at one size."""
    return [replace(c, estimate=estimate(c.program, t, size)) if c.program else c for c in found]


def _wanted_sizes(
    listed: Sequence[Sequence[Candidate]], sizes: Sequence[int], plans: int
) -> list[tuple[Candidate, list[int]]]:
    """Returns the candidates to compile, those for most sizes first, and the sizes of each: from
    the first to the last that lists it, or all where one Program must do."""
    at = dict[str, list[int]]()
    for k, short in enumerate(listed):
        for candidate in short:
            at.setdefault(candidate.name, []).append(k)
    first = {c.name: c for short in reversed(listed) for c in reversed(short)}
    pairs = [
        (first[name], list(sizes if plans == 1 else sizes[ks[0] : ks[-1] + 1]))
        for name, ks in at.items()
    ]
    return sorted(pairs, key=lambda pair: -len(pair[1]))


def _chosen(
    at: Sequence[SizeResult], most: int
) -> tuple[tuple[ChosenProgram, ...], tuple[int, ...]]:
    """Chooses at most `most` Programs, and which of them each size has."""
    timed = [c for result in at for c in result.weighed if c.time is not None]
    names = list(dict.fromkeys(c.name for c in timed))
    times = np.full((1, len(names), len(at)), np.inf)
    for k, result in enumerate(at):
        for candidate in result.weighed:
            if candidate.time is not None:
                times[0, names.index(candidate.name), k] = candidate.time
    alike = np.ones(len(names), np.int64)
    regret, number = choose.regrets(times, alike), np.arange(len(names))
    kept = choose.kernels(regret, number, most)
    row: I8 = choose.assigned(regret, number, kept)[0]
    used = list(dict.fromkeys(row.tolist()))
    programs = {c.name: c.program for c in timed}
    sizes = [result.size for result in at]
    chosen = list[ChosenProgram]()
    for k, name in ((k, names[k]) for k in used):
        program = programs[name]
        assert program is not None
        named = replace(program, name=slug(name, "_"))
        chosen.append(ChosenProgram(name, named, _spans(row == k, sizes)))
    return tuple(chosen), tuple(used.index(k) for k in row.tolist())


def _spans(mine: np.ndarray, sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Returns the first and last of each run of `sizes` where `mine`, b1[sizes], holds."""
    found = list[tuple[int, int]]()
    for held, run in groupby(range(len(sizes)), key=lambda k: bool(mine[k])):
        ks = list(run)
        if held:
            found.append((sizes[ks[0]], sizes[ks[-1]]))
    return tuple(found)
