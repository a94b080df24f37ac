"""candidates: the Programs that can be synthesized for a collective, by every method, estimated."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from hccc.base.diagnostics import UserError, fail
from hccc.base.interruptible import interruptible
from hccc.base.progress import far, tell
from hccc.ir.collective import ROOTED, OpType, recognised
from hccc.ir.demand import Demand
from hccc.ir.program import Program, same
from hccc.ir.sketch import Allotment
from hccc.ir.topology import Topology
from hccc.synth.bounds.bound import Limits
from hccc.synth.bounds.certificate import QUICK, certificate
from hccc.synth.bounds.demanded import check_ranks, limits_of
from hccc.synth.bounds.estimate import estimate
from hccc.synth.builtin import registry
from hccc.synth.builtin.direct import direct_demand
from hccc.synth.cegis import programs as cegis
from hccc.synth.common.collectives import BOTH
from hccc.synth.common.transfer_table import MOST_TRANSFERS
from hccc.synth.greedy.demands import demand_programs
from hccc.synth.greedy.programs import GreedyProgram, greedy_programs
from hccc.synth.paths import programs as paths
from hccc.synth.paths.demands import routed_demand
from hccc.synth.pods import compose as pods
from hccc.synth.sketches import programs as sketches
from hccc.synth.sketches.enumerate import ALL_PRUNINGS, Prunings, prunings_without
from hccc.synth.trees.programs import tree_programs

GREEDY = "greedy"
LEVELS = "levels"
PACK = "pack"
ROUTED = "routed"
DIRECT = "direct"
LARGE_GREEDY = 1 << 17  # ranks² above which "auto" leaves greedy out: compose takes less time
LARGE_PACK = 40  # ranks above which "auto" asks pack after the faster methods
ENOUGH = 0.98  # part of the bound that a candidate reaches and no other need beat
UNSEARCHED = f"not searched: by estimate another comes within {1 - ENOUGH:.0%} of the bound"


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One way to do a collective.

    program: None where it was refused; estimate: µs; time: simulated µs, None where it was not
    simulated; refused: why there is no program, or no time; searched: its schedule's facts, None
    where no schedule was searched step by step.
    """

    name: str
    program: Program | None
    estimate: float
    time: float | None = None
    refused: str = ""
    searched: GreedyProgram | cegis.SolvedProgram | None = None
    allotment: Allotment | None = None

    def facts(self) -> dict[str, object]:
        """Returns the candidate for JSON; times in µs, None where there are none."""
        return {
            "name": self.name,
            "time": self.time,
            "refused": self.refused or None,
            "estimate": self.estimate if self.program else None,
        }


@dataclass(frozen=True, slots=True, eq=False)
class SynthRequest:
    """The question of a synthesis. size: bytes of the call that estimates are for; largest: those
    of the largest call; limits: the least times of any schedule; method: "auto" or one of
    `methods`; time_limit: seconds that a solver may take; demand: of one's own, of which `op` is
    the collective that it is, if any; allotment: the user's sketches, instead of those that hccc
    finds; prunings: of sketches."""

    topology: Topology
    op: OpType
    root: int
    size: int
    largest: int
    limits: Limits
    method: str
    seed: int
    time_limit: float
    demand: Demand | None = None
    allotment: Allotment | None = None
    prunings: Prunings = ALL_PRUNINGS


def request(
    t: Topology,
    op: OpType | Demand,
    size: int,
    *,
    root: int = 0,
    method: str = "auto",
    seed: int = 0,
    time_limit: float = 60.0,
    allotment: Allotment | None = None,
    unpruned: Collection[str] = (),
    largest: int | None = None,
) -> SynthRequest:
    """Returns the question, with the limits of `op` on `t`; unpruned: prunings of
    sketches to do without; largest: None for calls of one size.

    A demand that is a collective's is that collective, and all that serves it serves the demand.

    Raises:
        UserError: E451 there is no such method, or there is one rank, or there are no sketches for
            `op`, or no such pruning; E410 a demand has other ranks than the cluster.
        KeyboardInterrupt: Ctrl-C.
    """
    demand = op if isinstance(op, Demand) else None
    if isinstance(op, Demand):
        check_ranks(op, t)
        op, root = recognised(op) or (OpType.CUSTOM, 0)
    if method != "auto" and method not in methods(op):
        have = ", ".join(("auto", *methods(op)))
        raise fail("E451", f"there is no {method} for {op.value}", help=f"there are {have}")
    prunings = prunings_without(unpruned)
    if allotment:
        sketches.check_served(op)
    if len(t) < 2:
        raise fail("E451", "one rank has nobody to send to", help="give a cluster of 2 or more")
    root = root if op in ROOTED else 0
    if demand and op is OpType.CUSTOM:
        limits = interruptible(limits_of)(t, demand, QUICK)[0]
    else:
        limits = interruptible(certificate)(t, op, root)
    return SynthRequest(
        topology=t,
        op=op,
        root=root,
        size=size,
        largest=size if largest is None else largest,
        limits=limits,
        method=method,
        seed=seed,
        time_limit=time_limit,
        demand=demand,
        allotment=allotment,
        prunings=prunings,
    )


def methods(op: OpType) -> list[str]:
    """Returns the values of `--method` that support `op`: searches, then built-in algorithms."""
    if op is OpType.CUSTOM:
        return [GREEDY, ROUTED, DIRECT]
    searches = [PACK, GREEDY, *cegis.METHODS] if op in BOTH else [ROUTED] if op in paths.OPS else []
    composed = [pods.NAME] if op in pods.OPS else []
    sketched = [sketches.NAME] if op in sketches.OPS else []
    return [*searches, *composed, *sketched, *registry.serving(op)]


def candidates(r: SynthRequest) -> list[Candidate]:
    """Makes all candidates, and estimates what each takes.

    Raises:
        UserError: E451 nothing serves the collective on this cluster.
        KeyboardInterrupt: Ctrl-C, but while a solver searches: then it is the best so far.
    """
    if r.method in cegis.METHODS:
        made = cegis.solved_programs(
            r.method, r.topology, r.op, r.root, r.seed, time_limit=r.time_limit
        )
        pool = [_candidate(one, r) for one in made]
    else:
        pool = interruptible(lambda: list(_of_methods(r)))()
    if not any(candidate.program for candidate in pool):
        raise none_serves(r.op, pool)
    return [_unless_before(candidate, pool[:k]) for k, candidate in enumerate(pool)]


def none_serves(op: OpType, pool: Sequence[Candidate]) -> UserError:
    """Returns E451 with the reasons why candidates were refused, each once."""
    names = dict[str, list[str]]()
    for candidate in pool:
        if candidate.refused:
            names.setdefault(candidate.refused, []).append(candidate.name)
    reasons = "; ".join(
        f"{first}{f' and {len(others)} more' if others else ''}: {reason}"
        for reason, (first, *others) in names.items()
    )
    return fail("E451", f"nothing serves {op.value} here: {reasons}")


def given_up(pool: Sequence[Candidate]) -> bool:
    """Tells whether Ctrl-C ended a solver's search for a candidate."""
    return any(
        isinstance(candidate.searched, cegis.SolvedProgram) and candidate.searched.interrupted
        for candidate in pool
    )


def _of_methods(r: SynthRequest) -> Iterator[Candidate]:
    """Yields the candidates of all methods but solvers, slow methods last. Of "auto" slow methods
    are left out where another promises to come as near to the bound, greedy schedules also where
    there are many ranks, and levels where a transfer for each pair of ranks is possible: then
    others are faster."""
    auto, n = r.method == "auto", len(r.topology)
    names = [name for name in methods(r.op) if auto or name == r.method]
    names = [name for name in names if name not in cegis.METHODS]
    slow = {
        GREEDY: 2,
        sketches.NAME: 0 if r.allotment else 1,
        PACK: 1 if n > LARGE_PACK else 0,
    }
    if auto and n * (n - 1) <= MOST_TRANSFERS:
        names = [name for name in names if name != LEVELS]
    if auto and n**2 > LARGE_GREEDY:
        names = [name for name in names if name != GREEDY]
    least = inf
    for number, name in enumerate(sorted(names, key=lambda name: slow.get(name, 0))):
        near = least * ENOUGH <= r.limits.at(r.size).time
        if auto and slow.get(name) and near:
            yield Candidate(name, None, inf, refused=UNSEARCHED)
            continue
        tell(f"Synthesis: {name}")
        far(number, len(names))
        try:
            for made in _made(name, r):
                candidate = _candidate(made, r)
                least = min(least, candidate.estimate)
                yield candidate
        except UserError as error:
            yield Candidate(name, None, inf, refused=error.problem.message)


class _Named(Protocol):
    """A Program with a name for people, as each family of engines makes them."""

    @property
    def name(self) -> str: ...

    @property
    def program(self) -> Program: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Builtin:
    """The Program of a built-in algorithm."""

    name: str
    program: Program


def _made(name: str, r: SynthRequest) -> Iterator[_Named]:
    """Yields the Programs of one method."""
    if r.op is OpType.CUSTOM and r.demand:
        yield from _demanded(name, r, r.demand)
        return
    match name:
        case "greedy":
            yield from greedy_programs(r.topology, r.op, r.root, r.seed)
        case "pack":
            yield from tree_programs(r.topology, r.op, r.root, r.seed, r.limits)
        case "routed":
            yield from paths.path_programs(r.topology, r.op, r.root, r.seed)
        case pods.NAME:
            yield from pods.composed_programs(r.topology, r.op)
        case sketches.NAME:
            if r.allotment:
                yield sketches.allotted_program(r.topology, r.op, r.allotment, r.largest)
            else:
                sizes = sorted({r.size, r.largest})
                yield from sketches.sketch_programs(r.topology, r.op, sizes, r.prunings)
        case _:
            yield _Builtin(name, registry.make(name, r.topology, r.op, r.root))


def _demanded(name: str, r: SynthRequest, demand: Demand) -> Iterator[_Named]:
    """Yields the Programs of one method for a demand that is no collective's."""
    match name:
        case "greedy":
            yield from demand_programs(r.topology, demand, r.seed)
        case "routed":
            yield from routed_demand(r.topology, demand, r.seed)
        case _:
            yield _Builtin(name, direct_demand(r.topology, demand))


def _candidate(made: _Named, r: SynthRequest) -> Candidate:
    """Returns a Program as a candidate, with its estimate."""
    searched = made if isinstance(made, GreedyProgram | cegis.SolvedProgram) else None
    program = made.program
    if r.demand and program.collective.demand is None:  # its chunks are those of the collective
        c = program.collective
        mine = replace(c, op=OpType.CUSTOM, root=0, demand=r.demand)
        program = replace(program, collective=mine)
    time = estimate(program, r.topology, r.size)
    allotment = made.allotment if isinstance(made, sketches.SketchProgram) else None
    return Candidate(made.name, program, time, searched=searched, allotment=allotment)


def _unless_before(candidate: Candidate, before: Sequence[Candidate]) -> Candidate:
    """Returns `candidate`, marked refused if an earlier candidate has the same transfers."""
    p = candidate.program
    for other in before:
        if p and other.program and same(p, replace(other.program, name=p.name)):
            return replace(candidate, program=None, refused=f"the same transfers as {other.name}")
    return candidate
