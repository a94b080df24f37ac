"""synthesis: the best Program for a collective on a cluster: candidates, weighed by simulated time.

Candidates are schedules that `synth` searches and its built-in algorithms. Those that an estimate
says cannot win are not compiled; the rest are, and the simulator decides. What it
returns is a Program like any other: verified, and proved when it is compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from hccc import driver
from hccc.diagnostics import UserError, fail
from hccc.interruptible import interruptible
from hccc.ir.collective import ROOTED, OpType
from hccc.ir.program import Program
from hccc.ir.topology import BYTES_PER_US, Topology
from hccc.lang.transfer import printer
from hccc.options import Options
from hccc.passes.verify import verify
from hccc.synth import composed
from hccc.synth.bound import Bound, limits
from hccc.synth.builtin import registry
from hccc.synth.estimate import estimate
from hccc.synth.programs import OPS
from hccc.synth.searched import METHODS, Searched, search, solve
from hccc.text import microseconds as us

COMPILED = 4  # candidates, those of least estimate
FAR = 2.0  # times the least estimate: not compiled
GREEDY = "greedy"
OnPhase = Callable[[str], None]


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


@dataclass(frozen=True, slots=True, eq=False)
class Synthesis:
    """What was found for one size. best: of `weighed`, which is in order of time and estimate;
    bound: what no schedule beats; seconds: it took."""

    topology: Topology
    size: int
    seed: int
    best: Weighed
    weighed: tuple[Weighed, ...]
    bound: Bound
    seconds: float

    @property
    def program(self) -> Program:
        """The best Program."""
        assert self.best.program is not None
        return self.best.program

    def share(self) -> float:
        """Of the bound that the best reaches, 0 to 1."""
        return self.bound.time / self.best.time if self.best.time else 0.0

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
        yield f"{p.collective.op.value} over {len(self.topology)} ranks{on}, {self.size:,} bytes"
        algbw = self.size / (time * BYTES_PER_US) if time else 0.0
        yield f"  chosen       {self.best.name}: {len(p):,} transfers in {steps(p):,} steps"
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
            "collective": c.op.value, "cluster": self.topology.name, "ranks": c.n_ranks,
            "size": self.size, "seed": self.seed, "method": self.best.name,
            "transfers": len(self.program), "steps": steps(self.program),
            "time": self.best.time, "bound": self.bound.time, "share": self.share(),
            "binding": self.bound.binding, "seconds": self.seconds,
            "weighed": [
                {"name": one.name, "time": one.time, "refused": one.refused or None,
                 "estimate": one.estimate if one.program else None}
                for one in self.weighed
            ],
        }  # fmt: skip


def steps(p: Program) -> int:
    """How many steps a Program has."""
    return int(p.transfers["step"].max(initial=-1)) + 1


def program_text(made: Synthesis) -> str:
    """The best Program in the transfer language; its comments say how it was made."""
    t, p = made.topology, made.program
    on = f" on {t.name}" if t.name else ""
    bound = made.bound
    return printer.text(p, [
        f"{p.collective.op.value}{on}, {len(t)} ranks, for calls of {made.size:,} bytes.",
        f"Method: {made.best.name}; seed {made.seed}.",
        f"Steps: {steps(p):,}. Transfers: {len(p):,}.",
        f"Simulated: {us(made.best.time or 0.0)} µs.",
        f"No schedule takes less than {us(bound.time)} µs: {bound.binding}.",
    ])  # fmt: skip


def methods(op: OpType) -> list[str]:
    """What can be asked for: schedules that are searched, where they serve `op`, and the built-ins
    that do."""
    pods = [composed.NAME] if op in composed.OPS else []
    return [*([GREEDY, *METHODS] if op in OPS else []), *pods, *registry.serving(op)]


@interruptible
def synthesize(
    t: Topology, op: OpType, size: int, *, root: int = 0, method: str = "auto", seed: int = 0,
    time_limit: float = 60.0, options: Options | None = None, on_phase: OnPhase = lambda _: None,
) -> Synthesis:  # fmt: skip
    """The best Program of `op` on `t` for calls of `size` bytes.

    method: "auto" (all but solvers), or one of `methods`; time_limit: seconds that a solver may
    take; options: how candidates are compiled.

    Raises:
        UserError: E451 there is no such method, or nothing serves `op` on this cluster.
    """
    begin = time.perf_counter()
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
        found = list(_candidates(t, op, root, method, seed, size, on_phase))
    if not any(one.program for one in found):
        reasons = "; ".join(f"{one.name}: {one.refused}" for one in found)
        raise fail("E451", f"nothing serves {op.value} here: {reasons}")
    weighed = _weighed(found, t, size, options or Options(), on_phase)
    if weighed[0].time is None:
        reasons = "; ".join(f"{one.name}: {one.refused}" for one in weighed)
        raise fail("E451", f"nothing serves {op.value} here: {reasons}")
    bound = limits(t, op, root).at(size)
    took = time.perf_counter() - begin
    return Synthesis(t, size, seed, weighed[0], tuple(weighed), bound, took)


def _candidates(
    t: Topology, op: OpType, root: int, method: str, seed: int, size: int, on_phase: OnPhase
) -> Iterator[Weighed]:
    names = [name for name in methods(op) if name == method or method == "auto"]
    names = [name for name in names if name not in METHODS]
    for name in names:
        on_phase(f"Synthesis: {name}")
        try:
            if name == GREEDY:
                for one in search(t, op, root, seed):
                    yield _searched(one, t, size)
            elif name == composed.NAME:
                for part in composed.composed(t, op):
                    yield Weighed(part.name, part.program, estimate(part.program, t, size))
            else:
                made = registry.make(name, t, op, root)
                yield Weighed(name, made, estimate(made, t, size))
        except UserError as error:
            yield Weighed(name, None, float("inf"), refused=error.problem.message)


def _searched(one: Searched, t: Topology, size: int) -> Weighed:
    return Weighed(one.name, one.program, estimate(one.program, t, size), searched=one)


def _weighed(
    found: list[Weighed], t: Topology, size: int, options: Options, on_phase: OnPhase
) -> list[Weighed]:
    """All of them, those that were simulated first, by time."""
    order = sorted(found, key=lambda one: one.estimate)
    least = order[0].estimate
    near = [one for one in order[:COMPILED] if one.estimate <= FAR * least and one.program]
    done = [_simulated(one, t, size, options, on_phase) for one in near]
    timed = sorted((one for one in done if one.time is not None), key=lambda one: one.time or 0.0)
    rest = [one for one in done if one.time is None] + [one for one in order if one not in near]
    return [*timed, *rest]


def _simulated(
    one: Weighed, t: Topology, size: int, options: Options, on_phase: OnPhase
) -> Weighed:
    assert one.program is not None
    on_phase(f"Simulating {one.name}")
    how = replace(options, prove=False, sizes=str(max(1, size)), plans=1)
    try:
        made = driver.compile_program(verify(one.program), how, t)
    except UserError as error:
        return replace(one, refused=error.problem.message)
    assert made.tuned is not None
    return replace(one, time=float(made.tuned.times[int(not made.plan.out_of_place)].min()))
