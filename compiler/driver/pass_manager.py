"""pass_manager: the passes from a Program to a Plan in their order, and what stands between them.

Between any two passes stands one hook (`Hook`) that times them, checks the invariants of what they
return (`--verify-each`), and hands it to who wants to look (`--print-after`). Phases are those of
ResCCL Fig. 10a (Parsing, Analysis, Scheduling, Lowering), Proof, and Tuning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hccc.base.diagnostics import InternalError, UserError
from hccc.driver.options import Options
from hccc.ir import blocks, dag, pipeline, plan_check, primitives, program, topology
from hccc.ir.blocks import Blocks
from hccc.ir.dag import Dag
from hccc.ir.pipeline import Pipeline
from hccc.ir.plan import Plan
from hccc.ir.primitives import Primitives
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.passes.allocate import allocate
from hccc.passes.check_reachable import check_reachable
from hccc.passes.depend import depend
from hccc.passes.fuse import fuse
from hccc.passes.hpds import hpds
from hccc.passes.limit_window import limit_window
from hccc.passes.list_schedule import list_schedule
from hccc.passes.lower import lower
from hccc.passes.place import place
from hccc.passes.round_robin import round_robin
from hccc.passes.sync import sync
from hccc.passes.verify import verify

SCHEDULERS = {"hpds": hpds, "list": list_schedule, "round-robin": round_robin}
PHASES = ("Parsing", "Analysis", "Scheduling", "Lowering", "Proof")  # of every compilation
OnPhase = Callable[[str], None]
Ir = Program | Dag | Pipeline | Primitives | Blocks | Plan
OnPass = Callable[[str, Ir], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the passes of one compilation are given besides the IR. source: how the Plan calls what
    it came from; topology: None for what the program's header describes; blocks: most thread blocks
    of a rank and channel, None for as many as its connections need."""

    options: Options
    topology: Topology | None
    source: str
    blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass. phase: one of PHASES; run: the IR before it to the IR after it."""

    name: str
    phase: str
    run: Callable[[Any, Settings], Ir]


PASSES = (
    # What is wrong with a program is told before anything is made of it.
    Pass("verify", "Analysis", lambda ir, s: verify(ir)),
    Pass("check_reachable", "Analysis", lambda ir, s: check_reachable(ir, s.topology)),
    # What must come before what: the only order that later passes have to keep.
    Pass("depend", "Analysis", lambda ir, s: depend(ir, s.topology)),
    # One total order of all tasks, in sub-pipelines without a link used twice.
    Pass("schedule", "Scheduling", lambda ir, s: SCHEDULERS[s.options.scheduler](ir)),
    # Tasks to primitives, which `fuse` may merge as long as they have no place in memory.
    Pass(
        "lower",
        "Lowering",
        lambda ir, s: lower(ir, s.options.transport, s.options.network_lowering),
    ),
    Pass("fuse", "Lowering", lambda ir, s: fuse(ir, s.options.fuse)),
    Pass("place", "Lowering", lambda ir, s: place(ir)),
    # Thread blocks last: which primitives share one decides which waits are needed.
    Pass("allocate", "Lowering", lambda ir, s: allocate(ir, s.options.allocator, s.blocks)),
    Pass("sync", "Lowering", lambda ir, s: sync(ir, s.source, s.options.slots)),
    # What blocks and waits came out as says which windows queues can carry.
    Pass("limit_window", "Lowering", lambda ir, s: limit_window(ir)),
)
_SCHEDULE = next(i for i, p in enumerate(PASSES) if p.name == "schedule")
FRONT, BACK = PASSES[:_SCHEDULE], PASSES[_SCHEDULE:]  # what no choice changes, and what some do


class Hook:
    """What stands between passes: times them, checks and shows what they return."""

    def __init__(self, options: Options, on_phase: OnPhase, on_pass: OnPass) -> None:
        self.seconds: dict[str, float] = {}
        self._verify_each = options.verify_each
        self._on_phase, self._on_pass = on_phase, on_pass

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Times what is done in it."""
        self._on_phase(name)
        begin = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin

    def run_all(self, passes: Sequence[Pass], ir: Ir, settings: Settings) -> dict[str, Ir]:
        """Runs `passes` one after the other; what each of them returned."""
        returned: dict[str, Ir] = {}
        for one in passes:
            with self.phase(one.phase):
                ir = returned[one.name] = one.run(ir, settings)
            if self._verify_each:
                _check(one.name, ir)
            self._on_pass(one.name, ir)
        return returned


def _check(name: str, ir: Ir) -> None:
    """`--verify-each`: the pass that returned `ir` has a bug when it breaks an invariant."""
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
