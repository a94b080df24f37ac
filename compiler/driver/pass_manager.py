"""pass_manager: the passes from a Program to a Plan, in their order.

All passes run in a `PassRunner`, which times them, checks the invariants of the IRs that they
return (`--verify-each`), and shows these to a callback (`--print-after`). Phases are those of
ResCCL Fig. 10a (Parsing, Analysis, Scheduling, Lowering), Proof, and Tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from hccc.base.diagnostics import InternalError, UserError
from hccc.base.progress import timed
from hccc.driver.options import AUTO, Options, PassName
from hccc.ir import blocks, dag, pipeline, plan_check, primitives, program, topology
from hccc.ir.blocks import Blocks
from hccc.ir.choices import Scheduler
from hccc.ir.dag import Dag
from hccc.ir.pipeline import Pipeline
from hccc.ir.plan import Plan
from hccc.ir.primitives import Primitives
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.ir.transport import Transport
from hccc.passes.allocate import LOADS, allocate
from hccc.passes.check_reachable import check_reachable
from hccc.passes.depend import depend
from hccc.passes.fuse import fuse
from hccc.passes.greet import greet
from hccc.passes.hpds import hpds
from hccc.passes.limit_bytes import limit_bytes
from hccc.passes.limit_window import limit_window
from hccc.passes.list_schedule import list_schedule
from hccc.passes.lower import lower
from hccc.passes.multicast import multicast
from hccc.passes.one_shot import one_shot
from hccc.passes.packets import packets
from hccc.passes.place import place
from hccc.passes.round_robin import round_robin
from hccc.passes.sync import sync
from hccc.passes.verify import verify

SCHEDULERS: dict[str, Callable[[Dag], Pipeline]] = {
    Scheduler.HPDS: hpds,
    Scheduler.LIST: list_schedule,
    Scheduler.ROUND_ROBIN: round_robin,
}
PHASES = ("Parsing", "Analysis", "Scheduling", "Lowering", "Proof")  # of every compilation
_PHASE = {
    **dict.fromkeys((PassName.VERIFY, PassName.CHECK_REACHABLE, PassName.DEPEND), "Analysis"),
    PassName.SCHEDULE: "Scheduling",
}  # and the others are of "Lowering"
Ir = Program | Dag | Pipeline | Primitives | Blocks | Plan
OnPass = Callable[[str, Ir], None]
P = ParamSpec("P")
R = TypeVar("R", bound=Ir)


def _nobody(name: str, ir: Ir) -> None:
    pass


_watcher: ContextVar[OnPass] = ContextVar("watcher", default=_nobody)


@contextmanager
def watching(on_pass: OnPass | None) -> Iterator[None]:
    """Shows `on_pass` each pass inside, and the IR that it returned; None: whoever watches."""
    before = _watcher.set(on_pass or _watcher.get())
    try:
        yield
    finally:
        _watcher.reset(before)


@dataclass(frozen=True, slots=True)
class Settings:
    """The inputs of passes besides the IR. source: what the Plan calls the program's file;
    topology: None for the one that the program's header describes; blocks: most thread blocks of a
    rank and channel, None for as many as its connections need."""

    options: Options
    topology: Topology | None
    source: str
    blocks: int | None = None

    def channels(self, topology: Topology) -> int:
        """Returns how many channels share links where blocks get them by load: those asked for, or
        as many as there are blocks for; else 1."""
        if self.options.allocator not in LOADS:
            return 1
        from hccc.driver.tune.setting import most_blocks  # which a short command does not import

        budget = self.options.max_sms or most_blocks(topology)
        each = self.blocks or LOADS[self.options.allocator]
        return self.options.channels or max(1, budget // each)


class PassRunner:
    """Runs passes: times them, checks and shows the IRs that they return."""

    def __init__(self, options: Options) -> None:
        self.seconds: dict[str, float] = {}
        self._verify_each = options.verify_each
        self._known: dict[tuple[object, ...], Any] | None = None

    def phase(self, name: str, says: str = "") -> AbstractContextManager[None]:
        """Measures the seconds of a phase, and tells that it, or what it `says`, begins."""
        return timed(name, self.seconds, says)

    def remember(self) -> None:
        """Makes passes that get the same again return the same again: passes are pure.

        All IRs are kept that passes return, so this is for small programs.
        """
        self._known = {}

    def run(self, name: PassName, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs one pass; returns what it does."""
        given = (name, function, *args, *kwargs.items())
        made: R | None = self._known.get(given) if self._known is not None else None
        if made is None:
            with self.phase(_PHASE.get(name, "Lowering")):
                made = function(*args, **kwargs)
            if self._verify_each:
                _check(name, made)
            if self._known is not None:
                self._known[given] = made
        _watcher.get()(name, made)
        return made


def analyse(program: Program, settings: Settings, runner: PassRunner) -> Dag:
    """Checks a program, and finds the dependencies of its transfers. Raises UserError."""
    # Errors of a program come before anything is made of it.
    right = runner.run(PassName.VERIFY, verify, program)
    reachable = runner.run(PassName.CHECK_REACHABLE, check_reachable, right, settings.topology)
    # Dependencies are the only order that later passes have to keep.
    return runner.run(PassName.DEPEND, depend, reachable, settings.topology)


def order(dag: Dag, settings: Settings, runner: PassRunner) -> Pipeline:
    """Puts all tasks into one order, in sub-pipelines without a link used twice."""
    return runner.run(PassName.SCHEDULE, SCHEDULERS[settings.options.scheduler], dag)


def lower_to_plan(pipeline: Pipeline, settings: Settings, runner: PassRunner) -> Plan:
    """Turns tasks into primitives of thread blocks, with buffers, waits and posts."""
    options = settings.options
    ll = not options.simple
    ways = Transport.STAGED if ll else options.transport, options.network_lowering
    if options.transport is Transport.MULTICAST and not ll:
        how = options.sum_bits, options.sums
        primitives = runner.run(PassName.MULTICAST, multicast, pipeline, *how)
    else:
        primitives = runner.run(PassName.LOWER, lower, pipeline, *ways)
    if ll:
        primitives = runner.run(PassName.PACKETS, packets, primitives, options.transport)
    # Primitives may be merged as long as they have no place in memory.
    fused = runner.run(PassName.FUSE, fuse, primitives, options.fuse)
    if ll and options.fuse == AUTO:
        fused = runner.run(PassName.ONE_SHOT, one_shot, fused)
    placed = runner.run(PassName.PLACE, place, fused)
    # Thread blocks last: which primitives share one decides which waits are needed.
    most = options.allocator, settings.blocks, settings.channels(placed.dag.topology)
    blocks = runner.run(PassName.ALLOCATE, allocate, placed, *most)
    said = settings.source, options.slots, options.sums
    plan = runner.run(PassName.SYNC, sync, blocks, *said)
    # Messages decide of whom each rank hears in a launch.
    if ll:
        plan = runner.run(PassName.GREET, greet, plan)
        # Greetings have slots, too.
        plan = runner.run(PassName.LIMIT_BYTES, limit_bytes, plan, settings.topology)
    # Blocks and waits decide which windows queues can carry.
    return runner.run(PassName.LIMIT_WINDOW, limit_window, plan)


def _check(name: str, ir: Ir) -> None:
    """Raises InternalError where the IR that a pass returned breaks an invariant
    (`--verify-each`)."""
    problems: list[str] = []
    match ir:
        case Program():
            problems = program.check(ir)
        case Dag():
            problems = [*topology.check(ir.topology), *dag.check(ir)]
        case Pipeline():
            problems = pipeline.check(ir)
        case Primitives():
            problems = primitives.check(ir)
        case Blocks():
            problems = blocks.check(ir)
        case Plan():
            try:
                plan_check.check(ir)
            except UserError as error:
                problems = [error.problem.message]
    if problems:
        raise InternalError(f"{name}: {type(ir).__name__}: {'; '.join(problems)}")
