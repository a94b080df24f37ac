"""baselines: other ways to run a collective: NCCL's rings and trees, an algorithm as MSCCL runs it.

All have the same cluster, call, and throughput of a thread block. They differ as the other runtimes
do (kernel-protocol §11; ResCCL §2.1):

| alternative | algorithm | order | transp. | slots | fused | block for each     | window | decodes|
|-------------|-----------|-------|---------|-------|-------|--------------------|--------|--------|
| hccc        | this one  | given | given   | given | given | given              | all    |        |
| NCCL ring   | NCCL's    | steps | staged  | 8     | yes   | channel            | 1      |        |
| NCCL tree   | NCCL's    | steps | staged  | 8     | yes   | channel, direction | 1      |        |
| MSCCL       | this one  | steps | staged  | 2     |       | connection         | 1      | yes    |
| stage-level | this one  | steps | staged  | 2     |       | connection, stage  | 1      | yes    |
| round-robin | this one  | steps | given   | given | given | given              | all    |        |

Steps: in the order that the algorithm's author gave them, chunk by chunk in a circle.

Every kernel's cost of a micro-batch (polls, barriers, a fence: 1.5 to 2.5 µs) is in the α of a
cluster, which was measured with such kernels; no alternative pays it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from math import log2

import numpy as np

from hccc.base.progress import quiet
from hccc.driver import compilation as driver
from hccc.driver.compiled import Compiled, CompiledProgram
from hccc.driver.options import Options
from hccc.interop.raise_program import raise_program
from hccc.ir.arrays import I4
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.ir.program import Op, Program
from hccc.ir.topology import Topology
from hccc.passes.allocate import by_task, channels
from hccc.passes.depend import depend
from hccc.passes.lower import lower
from hccc.passes.place import place
from hccc.passes.relay import relay
from hccc.passes.requeue import requeue
from hccc.passes.round_robin import round_robin
from hccc.passes.sync import sync
from hccc.passes.verify import verify
from hccc.proofs.deadlock import deadlock
from hccc.proofs.prove import prove
from hccc.sim.machine import pieces
from hccc.sim.simulate import Request
from hccc.synth.builtin.ring import OPS, count_of, ring
from hccc.synth.builtin.tree import tree

NCCL_SLOTS = 8  # NCCL_STEPS (NCCL src/include/device.h)
NCCL_SLOT = 512 << 10  # bytes: NCCL's 4 MiB a connection in 8 steps
NCCL_LEAST = 32 << 10  # bytes: of what a slot is filled with (prims_simple.h, enqueue.cc)
MSCCL_SLOTS = 2  # MSCCL's Simple: 8 steps, 4 a message
MSCCL_SLOT = 1 << 20  # bytes: the chunk of every backend that ResCCL §5 measured
DECODE = 0.125  # µs a step: 0.1 to 0.15, about 110 instructions a warp (kernel-protocol §11)


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to run the collective.

    plan: compiles its Plan, once, proved not to hang; adapt: changes a call to how it is run; note:
    how it differs, in a line.
    """

    name: str
    note: str
    plan: Callable[[], Plan]
    adapt: Callable[[Request], Request]

    @property
    def free(self) -> bool:
        """Whether its runtime takes any micro-batch, as hccc's does."""
        return self.adapt is _as_it_is


def alternatives(compiled: Compiled, topology: Topology, options: Options) -> list[Alternative]:
    """Returns hccc's own plan first, then all others that exist for its collective.

    Each is made when it is asked for; making one may raise UserError: no ring joins the cluster
    (E451), or an imported plan cannot be raised to a program (E320).
    """
    found = [Alternative("hccc", "as compiled", lambda: compiled.plan, _as_it_is)]
    found += _nccl(compiled.plan, topology, options)
    if compiled.plan.collective.known:
        found += _same_algorithm(compiled, topology, options)
    return found


def _nccl(plan: Plan, topology: Topology, options: Options) -> Iterator[Alternative]:
    c = plan.collective

    @cache
    def rings() -> Plan:
        program = ring(topology, c.op, c.root)
        return _as_nccl(program, topology, _ring_channel(program), options)

    @cache
    def trees() -> Plan:
        program = tree(topology)
        return _as_nccl(program, topology, _tree_channel(program), options)

    if c.op in OPS:
        adapt = partial(_in_slots, plan=rings, slot=_ring_slot)
        yield Alternative("NCCL ring", "NCCL's rings for this cluster", rings, adapt)
    if c.op is OpType.ALLREDUCE:
        note = "NCCL's double binary trees for this cluster"
        adapt = partial(_in_slots, plan=trees, slot=partial(_tree_slot, depth=_depth(topology)))
        yield Alternative("NCCL tree", note, trees, adapt)


def _in_slots(request: Request, plan: Callable[[], Plan], slot: Callable[[float], int]) -> Request:
    """Returns the call with NCCL's slots, which depend on a channel's part of a chunk."""
    if request.micro_batch:
        return _slot_by_slot(request, request.micro_batch)
    whole = plan()
    block, _ = pieces(whole, request.size)
    part = block / (whole.collective.chunks_per_block * whole.channels)
    return _slot_by_slot(request, slot(part))


def _ring_slot(part: float) -> int:
    """Returns the bytes of a slot: a chunk is two slices, of 32 KiB at least (NCCL
    src/device/prims_simple.h)."""
    return int(min(max(part / 2, NCCL_LEAST), NCCL_SLOT))


def _tree_slot(part: float, depth: int) -> int:
    """Returns the bytes of a slot: halved until there are enough chunks to fill the tree (NCCL 2.18
    src/enqueue.cc: computeColl; later versions take whole slots, which is slower)."""
    slot = NCCL_SLOT
    for chunks, least in ((8 * depth, 128 << 10), (4 * depth, 64 << 10), (depth, NCCL_LEAST)):
        while part // slot < chunks and slot > least:
            slot //= 2
    return slot


def _depth(t: Topology) -> int:
    """Returns the depth of NCCL's tree (src/graph/connect.cc)."""
    return len(t) // t.n_nodes - 1 + int(log2(t.n_nodes))


def _ring_channel(program: Program) -> I4:
    return np.asarray(program.transfers["chunk"] % count_of(program))


def _tree_channel(program: Program) -> I4:
    """Returns a channel for each direction: part of a block's threads reduces up a tree, the rest
    copies down (runTreeSplit)."""
    t = program.transfers
    return np.asarray(2 * t["chunk"] + (t["op"] == Op.RECV))


def _as_nccl(program: Program, topology: Topology, channel: I4, options: Options) -> Plan:
    """Schedules the program as NCCL would. channel: i4[transfers], whose blocks perform each."""
    pipeline = round_robin(depend(verify(program), topology))
    staged = lower(pipeline, Transport.STAGED)
    staged = requeue(staged, by_task(staged, channel))  # channels do not wait for each other
    blocks = channels(place(relay(staged)), channel)
    return _proved(replace(sync(blocks, "NCCL", NCCL_SLOTS), max_window=1), options)


def _same_algorithm(
    compiled: Compiled, topology: Topology, options: Options
) -> Iterator[Alternative]:
    made = compiled if isinstance(compiled, CompiledProgram) else None
    program = cache(lambda: made.program if made else raise_program(compiled.plan))
    options = made.options if made else replace(options, tune="off")
    header = replace(options, scheduler="round-robin", channels=None, warps=None, max_sms=None)
    staged = replace(header, transport=Transport.STAGED, fuse="none", slots=MSCCL_SLOTS)
    baselines = (
        (
            "MSCCL",
            "this algorithm, algorithm-level, a block a connection, interpreted",
            replace(staged, allocator="connection"),
            _interpreted,
        ),
        (
            "stage-level",
            "this algorithm, a block a connection and stage, interpreted",
            replace(staged, allocator="stage"),
            _interpreted,
        ),
        (
            "round-robin",
            "as compiled, but scheduled round-robin",
            replace(options, scheduler="round-robin"),
            _as_it_is,
        ),
    )
    for name, note, chosen, adapt in baselines:
        yield Alternative(name, note, cache(partial(_compiled, program, chosen, topology)), adapt)


def _compiled(program: Callable[[], Program], options: Options, topology: Topology) -> Plan:
    with quiet():
        plan = driver.compile_program(program(), options, topology).plan
    return plan if options.prove else _proved(plan, options)


def _proved(plan: Plan, options: Options) -> Plan:
    """Returns `plan`, proved not to hang, and to be right if `options` ask for proofs."""
    if options.prove:
        prove(plan)
    else:
        deadlock(plan)
    return plan


def _as_it_is(request: Request) -> Request:
    return request


def _slot_by_slot(request: Request, slot: int) -> Request:
    costs = replace(request.costs, meets=False)
    return replace(request, window=1, micro_batch=request.micro_batch or slot, costs=costs)


def _interpreted(request: Request) -> Request:
    adapted = _slot_by_slot(request, MSCCL_SLOT)
    decode = request.costs.interpret or DECODE
    return replace(adapted, costs=replace(adapted.costs, interpret=decode))
