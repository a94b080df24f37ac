"""The road: program text to Plan, stop by stop, timed and proved.

Phases are those of ResCCL Fig. 10a (Parsing, Analysis, Scheduling, Lowering), and Proof.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from hccc.diagnostics import InternalError, Source, fail
from hccc.emit.msccl import xml as msccl_writer
from hccc.interop import msccl_plan
from hccc.interop.label import label
from hccc.interop.relocate import relocate
from hccc.interruptible import interruptible
from hccc.ir import dag as dag_ir
from hccc.ir import pipeline as pipeline_ir
from hccc.ir import plan_check
from hccc.ir import primitives as primitives_ir
from hccc.ir import topology as topology_ir
from hccc.ir.dag import Dag
from hccc.ir.names import source_name
from hccc.ir.pipeline import Pipeline
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.lang.cluster import load as cluster
from hccc.lang.msccl import load as msccl_xml
from hccc.lang.msccl.load import Algo
from hccc.lang.transfer import load as transfer
from hccc.passes.allocate import ALLOCATORS, allocate
from hccc.passes.check_reachable import check_reachable
from hccc.passes.depend import depend
from hccc.passes.fuse import LEVELS, fuse
from hccc.passes.hpds import hpds
from hccc.passes.list_schedule import list_schedule
from hccc.passes.lower import lower
from hccc.passes.place import place
from hccc.passes.round_robin import round_robin
from hccc.passes.sync import sync
from hccc.passes.verify import verify
from hccc.proofs.deadlock import deadlock
from hccc.proofs.fifo import fifo, with_enough_slots
from hccc.proofs.proof import Proof
from hccc.proofs.race import race
from hccc.proofs.result import result

SCHEDULERS = {"hpds": hpds, "list": list_schedule, "round-robin": round_robin}
TRIED = ("hpds", "list")  # of a program for a cluster, where simulating both takes seconds at most
MOST_TRIED = 1 << 15  # transfers
PHASES = ("Parsing", "Analysis", "Scheduling", "Lowering", "Proof")
OnPhase = Callable[[str], None]
Ir = TypeVar("Ir")


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may choose on the way. None keeps the program's header."""

    scheduler: str = "auto"
    allocator: str = "state"
    fuse: str = "auto"
    transport: Transport = Transport.DIRECT
    slots: int = 2
    channels: int | None = None
    warps: int | None = None
    max_blocks: int | None = None
    verify_each: bool = False
    prove: bool = True
    cluster: Path | None = None

    def __post_init__(self) -> None:
        known = {
            "scheduler": (self.scheduler, ("auto", *SCHEDULERS)),
            "allocator": (self.allocator, ALLOCATORS),
            "fuse": (self.fuse, ("auto", *LEVELS)),
        }
        for option, (value, choices) in known.items():
            if value not in choices:
                raise fail("E410", f"--{option} {value!r} is not one of {', '.join(choices)}")
        if self.slots < 1 or self.slots & (self.slots - 1):
            raise fail("E410", f"--slots {self.slots} is not a power of two")


@dataclass(frozen=True, slots=True)
class Stops:
    """Every stop of one walk. scheduler: what made the Pipeline; seconds: by phase."""

    scheduler: str
    program: Program
    dag: Dag
    pipeline: Pipeline
    plan: Plan
    proofs: tuple[Proof, ...]
    seconds: dict[str, float]


class _Clock:
    """Times phases and tells who watches."""

    def __init__(self, on_phase: OnPhase) -> None:
        self.seconds: dict[str, float] = {}
        self._on_phase = on_phase

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._on_phase(name)
        begin = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin


@interruptible
def compile_file(path: Path | str, options: Options, on_phase: OnPhase = lambda _: None) -> Stops:
    """Walks the road from a program file. Raises `UserError` for anything wrong with it."""
    return compile_text(transfer.read(path), options, on_phase)


@interruptible
def compile_text(source: Source, options: Options, on_phase: OnPhase = lambda _: None) -> Stops:
    """Walks the road from a program's text."""
    clock = _Clock(on_phase)
    with clock.phase("Parsing"):
        program = transfer.parse(source)
    return _walk(program, Path(source.name).name, options, clock)


@interruptible
def compile_program(
    program: Program, options: Options, on_phase: OnPhase = lambda _: None
) -> Stops:
    """Walks the road from a Program, whoever made it."""
    return _walk(program, program.name, options, _Clock(on_phase))


@interruptible
def import_msccl(source: Source) -> tuple[Plan, Proof]:
    """The Plan of an MSCCL XML text, and what its runtimes' FIFOs carry.

    The Plan gets the queue slots it needs to run here; MSCCL's own runtimes have a fixed number,
    which is why a schedule can be right and still hang there for long messages.
    """
    return imported(msccl_xml.parse(source))


def imported(algo: Algo) -> tuple[Plan, Proof]:
    """The Plan of a parsed MSCCL XML text; the rest as `import_msccl`."""
    plan = label(msccl_plan.to_plan(algo))
    carried = fifo(plan, algo.protocol, algo.chunks_per_loop)
    plan = _roomy(with_enough_slots(plan))
    limit = {
        "protocol": algo.protocol,
        "largest message": "none" if carried.hangs else carried.largest or "any",
        "slots needed": plan.queue_slots,
    }
    claim = f"MSCCL's FIFOs ({algo.protocol}) carry messages of every size"
    if carried.largest is not None:
        claim = f"MSCCL's FIFOs ({algo.protocol}) carry up to {carried.largest:,} bytes, then hang"
    return plan, Proof("fifo", claim, limit)


def _roomy(plan: Plan) -> Plan:
    """`plan` with every value in a slot that is long enough.

    Moved values can neither race nor stay where another belongs, so where any is, the schedule is
    proved as it was written too.
    """
    moved = relocate(plan)
    if moved is not plan:
        prove(plan)
    return moved


@dataclass(frozen=True, slots=True)
class XmlOptions:
    """How to write MSCCL XML. `in_place`: which calls it serves, None for both."""

    dialect: str = "executor"
    protocol: str = "Simple"
    in_place: bool | None = True
    max_bytes: int | None = None


@interruptible
def export_msccl(plan: Plan, options: XmlOptions) -> str:
    """`plan` as MSCCL XML whose size window is what the runtime's FIFOs carry.

    What is written is read back and run through `fifo`: the window belongs to the steps that the
    runtime will execute, not to the plan they were made from.
    """
    draft = _xml(plan, options, None)
    algo = msccl_xml.parse(Source(f"{plan.name}.xml", draft))
    carried = fifo(msccl_plan.to_plan(algo), algo.protocol, algo.chunks_per_loop)
    return draft if carried.largest is None else _xml(plan, options, carried.largest)


def _xml(plan: Plan, options: XmlOptions, largest: int | None) -> str:
    return msccl_writer.dumps(
        plan,
        options.dialect,
        options.in_place,
        protocol=options.protocol,
        largest=largest,
        max_bytes=options.max_bytes,
    )


@interruptible
def check_plan(plan: Plan) -> tuple[Proof, ...]:
    """All proofs over a Plan, whoever made it.

    Raises:
        UserError: E31x it is not well formed (`plan_check`), E30x the first proof that fails.
    """
    plan_check.check(plan)
    return prove(plan)


def prove(plan: Plan) -> tuple[Proof, ...]:
    """All proofs over a well-formed Plan; they index memory with its numbers."""
    return (deadlock(plan), race(plan), result(plan))


def _walk(program: Program, source: str, options: Options, clock: _Clock) -> Stops:
    program = replace(
        program,
        channels=options.channels or program.channels,
        warps=options.warps or program.warps,
    )
    sound = _sound(options)
    topology = None
    if options.cluster is not None:
        with clock.phase("Parsing"):
            topology = sound(cluster.load(options.cluster), topology_ir.check)
    with clock.phase("Analysis"):
        program = verify(program)
        if topology is not None:
            check_reachable(program, topology)
        dag = sound(depend(program, topology), dag_ir.check)
    schedulers = _schedulers(options, dag, topology)
    ways = [_lowered(dag, name, source, options, clock) for name in schedulers]
    chosen = 0
    if len(ways) > 1:
        from hccc.sim.choice import fastest  # the simulator takes its time to load

        with clock.phase("Scheduling"):
            chosen = fastest([plan for _, plan in ways], dag.topology)
    pipeline, plan = ways[chosen]
    proofs: tuple[Proof, ...] = (_verified(program),)
    if options.prove:
        with clock.phase("Proof"):
            proofs += prove(plan)
    if topology is not None:
        from hccc.sim.grain import with_grain

        with clock.phase("Lowering"):
            plan = with_grain(plan, topology)
    return Stops(schedulers[chosen], program, dag, pipeline, plan, proofs, clock.seconds)


def _schedulers(options: Options, dag: Dag, topology: Topology | None) -> tuple[str, ...]:
    """Which schedulers to try; without a cluster there is nothing to tell them apart by."""
    if options.scheduler != "auto":
        return (options.scheduler,)
    return TRIED if topology is not None and len(dag) <= MOST_TRIED else TRIED[:1]


def _lowered(
    dag: Dag, scheduler: str, source: str, options: Options, clock: _Clock
) -> tuple[Pipeline, Plan]:
    sound = _sound(options)
    with clock.phase("Scheduling"):
        pipeline = sound(SCHEDULERS[scheduler](dag), pipeline_ir.check)
    with clock.phase("Lowering"):
        primitives = sound(lower(pipeline, options.transport), primitives_ir.check)
        primitives = sound(fuse(primitives, options.fuse), primitives_ir.check)
        primitives = sound(place(primitives), primitives_ir.check)
        blocks = allocate(primitives, options.allocator, options.max_blocks)
        return pipeline, sync(blocks, source_name(source), options.slots)


def _sound(options: Options) -> Callable[[Ir, Callable[[Ir], list[str]]], Ir]:
    return _keeps_invariants if options.verify_each else _unchecked


def _unchecked(ir: Ir, _: Callable[[Ir], list[str]]) -> Ir:
    return ir


def _keeps_invariants(ir: Ir, check: Callable[[Ir], list[str]]) -> Ir:
    """`--verify-each`: the pass that made `ir` has a bug when it breaks an invariant."""
    if problems := check(ir):
        raise InternalError(f"{type(ir).__name__}: {'; '.join(problems)}")
    return ir


def _verified(program: Program) -> Proof:
    c = program.collective
    detail: dict[str, int | str] = {
        "transfers": len(program),
        "ranks": c.n_ranks,
        "chunks": c.n_chunks,
    }
    return Proof("program", f"the transfers perform {c.op.value}", detail)
