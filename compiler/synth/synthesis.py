"""synthesis: the best Program for a collective on a cluster: candidates, weighed by simulated time.

Candidates are schedules that `synth` searches and its built-in algorithms. Those that an estimate
says cannot win are not compiled; the rest are, and the simulator decides. What it
returns is a Program like any other: verified, and proved when it is compiled.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

from hccc.base.diagnostics import UserError, fail
from hccc.base.interruptible import anytime, interruptible
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir.collective import ROOTED, OpType
from hccc.ir.program import Program, same
from hccc.ir.text import count as count_of
from hccc.ir.text import microseconds as us
from hccc.ir.topology import BYTES_PER_US, Topology
from hccc.lang.transfer import printer
from hccc.passes.verify import verify
from hccc.synth.bounds.bound import Bound, Limits
from hccc.synth.bounds.certificate import certificate
from hccc.synth.bounds.estimate import estimate
from hccc.synth.builtin import registry
from hccc.synth.common.collectives import BOTH
from hccc.synth.greedy.searched import METHODS, Searched, search, solve
from hccc.synth.paths import programs as paths
from hccc.synth.pods import composed
from hccc.synth.trees.programs import tree_programs
from hccc.synth.weighed import (
    ENOUGH,
    Weighed,
    enough,
    hardly_faster,
    in_order,
    nearest,
    weighed_facts,
)

LARGE_GREEDY = 1 << 17  # ranks²
LARGE_PACK = 40  # ranks
GREEDY = "greedy"
PACK = "pack"
ROUTED = "routed"
LONGEST = 48  # characters of a name that is made of a method's
UNSEARCHED = f"not searched: by estimate another comes within {1 - ENOUGH:.0%} of the bound"
OnPhase = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Synthesis:
    """What was found for one size. best: of `weighed`, which is in order of time and estimate;
    bound: what no schedule beats; seconds: it took; interrupted: Ctrl-C ended it early."""

    topology: Topology
    size: int
    seed: int
    best: Weighed
    weighed: tuple[Weighed, ...]
    bound: Bound
    seconds: float
    interrupted: bool = False

    @property
    def program(self) -> Program:
        """The best Program."""
        assert self.best.program is not None
        return self.best.program

    def share(self) -> float:
        """Of the bound that the best reaches, 0 to 1."""
        return self.bound.time / self.best.time if self.best.time else 0.0

    def file_name(self) -> str:
        """`allgather-ring-64M.rccl`."""
        return file_name(self.program, self.best.name, [(self.size, self.size)])

    def text(self, *, explain: bool = False) -> str:
        """What was chosen, how near it comes, and what was weighed. explain: also what a solver was
        asked, call by call."""
        return "\n".join([*self._lines(), *(self._iterations() if explain else [])])

    def _iterations(self) -> Iterator[str]:
        one = self.best.searched
        if one is None:
            yield "  the algorithm is built in: nothing was searched"
            return
        calls = f"{len(one.trace)} calls of a solver"
        yield f"  schedule     {one.steps} steps, {one.bound} at least; {calls}"
        for k, i in enumerate(one.trace):
            at = "" if i.checkpoint is None else f", the first at step {i.checkpoint}"
            asked = f"{i.verdict.name.lower()}, {i.variables:,} variables, {i.seconds:.2f} s"
            yield f"    {k + 1:>3}. {i.steps} steps: {asked}"
            yield (
                f"         before: {i.violations} violations{at}; {len(i.pruned)} pruned; frozen: "
                f"{i.frozen} steps, {i.frozen_transfers} transfers; {i.kept} constraints kept"
            )

    def _lines(self) -> Iterator[str]:
        p, time = self.program, self.best.time or 0.0
        on = f" on {self.topology.name}" if self.topology.name else ""
        size = count_of(self.size, "byte")
        yield f"{p.collective.op.value} over {len(self.topology)} ranks{on}, {size}"
        algbw = self.size / (time * BYTES_PER_US) if time else 0.0
        how = f"{count_of(len(p), 'transfer')} in {count_of(steps(p), 'step')}"
        yield f"  chosen       {self.best.name}: {how}"
        yield f"  simulated    {us(time)} µs, algbw {algbw:,.2f} GB/s"
        bound = self.bound
        yield f"  lower bound  {us(bound.time)} µs, {self.share():.1%} of it: {bound.binding}"
        yield f"  seconds      {self.seconds:.2f}"
        width = max(len(one.name) for one in self.weighed)
        yield f"  weighed{'':<{max(0, width - 5)}}{'simulated':>14}{'estimate':>14}  (us)"
        for one in self.weighed:
            shown = "-" if one.time is None else us(one.time)
            guess = "-" if one.program is None else us(one.estimate)
            why = f"  {one.refused}" if one.refused else ""
            yield f"    {one.name:<{width}}{shown:>14}{guess:>14}{why}"

    def facts(self) -> dict[str, object]:
        """The same for JSON; times in µs, None where there are none."""
        c = self.program.collective
        return {
            "collective": c.op.value,
            "cluster": self.topology.name,
            "ranks": c.n_ranks,
            "size": self.size,
            "seed": self.seed,
            "method": self.best.name,
            "transfers": len(self.program),
            "steps": steps(self.program),
            "time": self.best.time,
            "bound": self.bound.time,
            "share": self.share(),
            "binding": self.bound.binding,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "weighed": list(map(weighed_facts, self.weighed)),
        }


def steps(p: Program) -> int:
    """How many steps a Program has."""
    return int(p.transfers["step"].max(initial=-1)) + 1


def program_text(made: Synthesis) -> str:
    """The best Program in the transfer language; its comments say how it was made."""
    t, p = made.topology, made.program
    on = f" on {t.name}" if t.name else ""
    bound = made.bound
    return printer.text(
        p,
        [
            f"{p.collective.op.value}{on}, {len(t)} ranks, "
            f"for calls of {count_of(made.size, 'byte')}.",
            f"Method: {made.best.name}; seed {made.seed}.",
            f"Steps: {steps(p):,}. Transfers: {len(p):,}.",
            f"Simulated: {us(made.best.time or 0.0)} µs.",
            f"No schedule takes less than {us(bound.time)} µs: {bound.binding}.",
        ],
    )


def file_name(p: Program, method: str, spans: Sequence[tuple[int, int]]) -> str:
    """`allgather-ring-1K-64K-and-4G.rccl`: letters, digits, `-`, and the suffix. spans: first and
    last sizes."""
    ends = ["-".join(dict.fromkeys(map(_short, span))) for span in spans]
    return f"{p.collective.op.value.lower()}-{slug(method, '-')}-{'-and-'.join(ends)}.rccl"


def slug(method: str, between: str) -> str:
    """A method's name as a part of names of files, or of algorithms: `greedy-2-chunks-a-rank`."""
    words = re.findall(r"[a-z0-9]+", method.lower())
    return between.join(words)[:LONGEST].strip(between) or "made"


def _short(size: int) -> str:
    """`64K`; bytes where they are no whole number of a unit."""
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def methods(op: OpType) -> list[str]:
    """What can be asked for: schedules that are searched, where they serve `op`, and the built-ins
    that do."""
    searched = [PACK, GREEDY, *METHODS] if op in BOTH else [ROUTED] if op in paths.OPS else []
    pods = [composed.NAME] if op in composed.OPS else []
    return [*searched, *pods, *registry.serving(op)]


def synthesize(
    t: Topology,
    op: OpType,
    size: int,
    *,
    root: int = 0,
    method: str = "auto",
    seed: int = 0,
    time_limit: float = 60.0,
    options: Options | None = None,
    on_phase: OnPhase = lambda _: None,
) -> Synthesis:
    """The best Program of `op` on `t` for calls of `size` bytes; at Ctrl-C, of those that were
    simulated by then.

    method: "auto" (all but solvers), or one of `methods`; time_limit: seconds that a solver may
    take; options: how candidates are compiled.

    Raises:
        UserError: E451 there is no such method, or nothing serves `op` on this cluster.
        KeyboardInterrupt: Ctrl-C before one was simulated.
    """
    begin = time.perf_counter()
    best = interruptible(certificate)(t, op, root if op in ROOTED else 0)
    found = candidates(
        t,
        op,
        size,
        best,
        root=root,
        method=method,
        seed=seed,
        time_limit=time_limit,
        on_phase=on_phase,
    )
    bound, near, how = best.at(size), nearest(found), options or Options()

    def simulate(done: list[Weighed]) -> None:
        least = inf
        for one in near:
            if hardly_faster(one, least, bound.time):
                continue
            on_phase(f"Simulating {one.name}, {len(done) + 1} of {len(near)}")
            done.append(simulated(one, t, [size], how, bound.time / ENOUGH)[size])
            least = min(least, done[-1].time or inf)
            if enough(one) * least <= bound.time:
                return

    done, stopped = anytime(simulate, lambda done: any(one.time is not None for one in done))
    weighed = in_order(found, near, {one.name: one for one in done}, bound.time, stopped)
    if weighed[0].time is None:
        raise none_serves(op, weighed)
    took, stopped = time.perf_counter() - begin, stopped or given_up(found)
    return Synthesis(t, size, seed, weighed[0], tuple(weighed), bound, took, stopped)


def candidates(
    t: Topology,
    op: OpType,
    size: int,
    best: Limits,
    *,
    root: int,
    method: str,
    seed: int,
    time_limit: float,
    on_phase: OnPhase,
) -> list[Weighed]:
    """All that there is to weigh, with what each is estimated to take for `size` bytes. best: what
    no schedule beats.

    Raises:
        UserError: E451 there is no such method, or nothing serves `op` on this cluster.
        KeyboardInterrupt: Ctrl-C, but while a solver searches: then it is the best so far.
    """
    if method != "auto" and method not in methods(op):
        have = ", ".join(("auto", *methods(op)))
        raise fail("E451", f"there is no {method} for {op.value}", help=f"there are {have}")
    if len(t) < 2:
        raise fail("E451", "one rank has nobody to send to", help="give a cluster of 2 or more")
    root = root if op in ROOTED else 0
    if method in METHODS:
        one = solve(method, t, op, root, seed, time_limit=time_limit, on_phase=on_phase)
        found = [_searched(one, t, size)]
    else:
        every = interruptible(
            lambda: list(_candidates(t, op, root, method, seed, size, best, on_phase))
        )
        found = every()
    if not any(one.program for one in found):
        raise none_serves(op, found)
    return [_unless_before(one, found[:k]) for k, one in enumerate(found)]


def _unless_before(one: Weighed, before: Sequence[Weighed]) -> Weighed:
    """A candidate, or that it does what one before does, and need not be compiled as well."""
    p = one.program
    for other in before:
        if p and other.program and same(p, replace(other.program, name=p.name)):
            return replace(one, program=None, refused=f"the same transfers as {other.name}")
    return one


def none_serves(op: OpType, found: Sequence[Weighed]) -> UserError:
    """E451, with why candidates are none, each reason once; of those that were not compiled, as
    others were estimated to be faster, nothing is known."""
    why: dict[str, list[str]] = {}
    for one in found:
        if one.refused:
            why.setdefault(one.refused, []).append(one.name)
    reasons = "; ".join(
        f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {reason}"
        for reason, names in why.items()
    )
    return fail("E451", f"nothing serves {op.value} here: {reasons}")


def given_up(found: Sequence[Weighed]) -> bool:
    """Whether Ctrl-C ended a solver's search for one of these."""
    return any(one.searched is not None and one.searched.interrupted for one in found)


def _candidates(
    t: Topology,
    op: OpType,
    root: int,
    method: str,
    seed: int,
    size: int,
    best: Limits,
    on_phase: OnPhase,
) -> Iterator[Weighed]:
    """Slow methods last: of "auto" they are left out where another promises to come as near to the
    bound, greedy schedules also of many ranks, where compose does in less time what they do."""
    names = [name for name in methods(op) if name == method or method == "auto"]
    names = [name for name in names if name not in METHODS]
    slow = {GREEDY: 2, PACK: 1 if len(t) > LARGE_PACK else 0}
    if method == "auto" and len(t) ** 2 > LARGE_GREEDY:
        names = [name for name in names if name != GREEDY]
    least = inf
    for name in sorted(names, key=lambda name: slow.get(name, 0)):
        near = least * ENOUGH <= best.at(size).time
        if method == "auto" and slow.get(name) and near:
            yield Weighed(name, None, inf, refused=UNSEARCHED)
            continue
        on_phase(f"Synthesis: {name}")
        try:
            for one in _made(name, t, op, root, seed, size, best, on_phase):
                least = min(least, one.estimate)
                yield one
        except UserError as error:
            yield Weighed(name, None, inf, refused=error.problem.message)


def _made(
    name: str,
    t: Topology,
    op: OpType,
    root: int,
    seed: int,
    size: int,
    best: Limits,
    on_phase: OnPhase,
) -> Iterator[Weighed]:
    """What one method makes."""
    if name == GREEDY:
        yield from (_searched(one, t, size) for one in search(t, op, root, seed, on_phase))
    elif name in (PACK, ROUTED, composed.NAME):
        made = (
            tree_programs(t, op, root, seed, best)
            if name == PACK
            else paths.path_programs(t, op, root, seed)
            if name == ROUTED
            else composed.composed(t, op)
        )
        for one in made:
            yield Weighed(one.name, one.program, estimate(one.program, t, size))
    else:
        program = registry.make(name, t, op, root)
        yield Weighed(name, program, estimate(program, t, size))


def _searched(one: Searched, t: Topology, size: int) -> Weighed:
    return Weighed(one.name, one.program, estimate(one.program, t, size), searched=one)


def simulated(
    one: Weighed, t: Topology, sizes: Sequence[int], options: Options, enough: float = 0.0
) -> dict[int, Weighed]:
    """A candidate at each of `sizes`, ascending, in the structure that tuning finds best there.
    enough: µs that need not be beaten, of one size."""
    assert one.program is not None
    low, high = max(1, sizes[0]), max(1, sizes[-1])
    several = low < high
    how = replace(
        options,
        prove=False,
        sizes=f"{low}..{high}" if several else str(low),
        plans=options.plans if several else 2,
    )
    try:
        made = driver.compile_program(verify(one.program), how, t, enough=enough)
    except UserError as error:
        return {size: replace(one, refused=error.problem.message) for size in sizes}
    assert made.tuned is not None
    times = made.tuned.times[int(not made.plan.out_of_place)].min(0)
    took = dict(zip(made.tuned.sizes, times.tolist(), strict=True))
    return {size: _timed(one, took[max(1, size)]) for size in sizes}


def _timed(one: Weighed, took: float) -> Weighed:
    known = isfinite(took)
    return replace(one, time=took if known else None, refused="" if known else "cut too often")
