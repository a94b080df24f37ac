"""judge: runs a plan or XML file that hccc accepts and describes its faults.

Calls have counts that do not divide, few elements or none, all windows and several interleavings,
in and out of place; each element is compared with the collective's definition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hccc.base.diagnostics import Source, UserError
from hccc.interop.import_msccl import import_parsed
from hccc.ir import plan_json
from hccc.ir.collective import Collective, OpType
from hccc.ir.plan import Plan
from hccc.ir.uneven import RECEIVE, SEND, SKEWS, BlockTable, placed, scattered, skewed
from hccc.lang.msccl import load as msccl_xml
from hccc.lang.msccl.load import Algo
from hccc.proofs.prove import check_plan
from hccc.testing.msccl import Place, run_xml
from hccc.testing.mutate_plan import Choose, PlanData, text
from hccc.testing.reference import Data, exact_inputs, expected
from hccc.testing.step_machine import Hang, Overrun, Poison
from hccc.testing.stepwise import execute, launch

REFUSED = "refused"
COUNTS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 23, 32, 61)
MICRO_BATCHES = (16, 32, 64, 1 << 10)  # bytes
WINDOWS = (None, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class PlanCall:
    """One call of a Plan, with the arguments of `stepwise.launch`."""

    count: int
    micro_batch: int
    window: int | None
    in_place: bool
    op: str
    seed: int
    blocks: BlockTable | None = None


def drawn_call(plan: Plan, choose: Choose) -> PlanCall:
    """Draws a call that `plan` serves."""
    op = ("sum", "avg", "max")[choose(2)] if plan.reduces and plan.averages else "sum"
    count = COUNTS[choose(len(COUNTS) - 1)]
    drawn = _drawn(plan, choose, count, op)
    return _with_blocks(plan.collective, drawn, choose) if plan.collective.uneven else drawn


def _drawn(plan: Plan, choose: Choose, count: int, op: str) -> PlanCall:
    return PlanCall(
        count,
        MICRO_BATCHES[choose(len(MICRO_BATCHES) - 1)],
        WINDOWS[choose(len(WINDOWS) - 1)],
        plan.modes[choose(len(plan.modes) - 1)],
        op,
        choose(1 << 16),
    )


def _with_blocks(c: Collective, call: PlanCall, choose: Choose) -> PlanCall:
    """Draws the lengths and the places of the blocks of a call."""
    lengths = skewed(c, call.count, SKEWS[choose(len(SKEWS) - 1)], call.seed)
    if c.op is OpType.ALLTOALL and call.in_place:
        square = lengths.reshape(c.n_ranks, c.n_ranks)
        lengths = np.minimum(square, square.T).ravel()
    return replace(call, blocks=scattered(c, lengths, call.seed))


def fault(plan: Plan, call: PlanCall) -> str | None:
    """Describes the fault of `plan` in such a call; None if there is none.

    Where nobody knows the result, it must be the same in every interleaving.
    """
    x = inputs_of(plan.collective, call)
    if call.blocks is not None:
        call.blocks.check(call.count, call.in_place)
        x = [placed(call.blocks, r, SEND, a, call.count) for r, a in enumerate(x)]
    try:
        got = _launched(plan, call, x, call.seed)
        if plan.collective.known:
            want = expected_of(plan.collective, call, inputs_of(plan.collective, call))
        else:
            want = _launched(plan, call, x, call.seed + 1)
    except (Hang, Poison, Overrun) as error:
        return f"{call}: {type(error).__name__}: {error}"
    if call.blocks is not None:
        want = [placed(call.blocks, r, RECEIVE, a, call.count) for r, a in enumerate(want)]
        got = [_inside(call.blocks, r, a) for r, a in enumerate(got)] if call.in_place else got
    for rank, (a, b) in enumerate(zip(got, want, strict=True)):
        if not np.array_equal(a, b):
            wrong = int(np.argmax(a != b))
            return f"{call}: rank {rank} ends with {a[wrong]} at element {wrong}, not {b[wrong]}"
    return None


def _inside(table: BlockTable, rank: int, buffer: Data) -> Data:
    """Returns a receive buffer with zeros between its blocks, which in place hold what was sent."""
    kept = np.zeros_like(buffer)
    for _, first, length in table.spans(rank, RECEIVE):
        kept[first : first + length] = buffer[first : first + length]
    return kept


def first_fault(plan: Plan, choose: Choose, calls: int) -> str | None:
    """Describes the first fault in so many drawn calls of `plan`, or None."""
    for _ in range(calls):
        if found := fault(plan, drawn_call(plan, choose)):
            return found
    return None


def plan_verdict(data: PlanData, choose: Choose, calls: int) -> str | None:
    """Returns REFUSED, the fault of a plan file that is accepted, or None for a right one."""
    try:
        plan = plan_json.loads(text(data))
        check_plan(plan)
    except UserError:
        return REFUSED
    return first_fault(plan, choose, calls)


def xml_verdict(xml: str, choose: Choose, calls: int) -> str | None:
    """Returns REFUSED, the fault of an XML file that is accepted, or None for a right one."""
    try:
        algo = msccl_xml.parse(Source("mutant.xml", xml))
        plan, _ = import_parsed(algo)
        check_plan(plan)
    except UserError:
        return REFUSED
    return first_fault(plan, choose, calls) or xml_fault(algo, plan, choose(1 << 16))


def _launched(plan: Plan, call: PlanCall, x: list[Data], seed: int) -> list[Data]:
    return launch(
        plan,
        x,
        call.op,
        count=call.count,
        micro_batch=call.micro_batch,
        blocks=call.blocks,
        in_place=call.in_place,
        window=call.window,
        seed=seed,
    )


def blocks_of(c: Collective) -> Collective:
    """Returns the same collective with one chunk a block."""
    return replace(c, n_chunks=c.least_chunks) if c.known else c


def inputs_of(c: Collective, call: PlanCall) -> list[Data]:
    """Returns send buffers, flat: every element of every rank another."""
    whole = exact_inputs(blocks_of(c), np.int32, (call.count,), seed=call.seed)
    return [a.reshape(-1) for a in whole]


def expected_of(c: Collective, call: PlanCall, x: list[Data]) -> list[Data]:
    shaped = [a.reshape(-1, call.count) if call.count else a.reshape(0, 0) for a in x]
    if not call.count:
        return [np.zeros(0, np.int32) for _ in x]
    whole = expected(blocks_of(c), shaped, call.op if c.reduces else "sum", np.int32)
    return [a.reshape(-1) for a in whole]


def xml_fault(algo: Algo, plan: Plan, seed: int) -> str | None:
    """Describes how the results of an accepted XML file and of its `plan` differ, or None.

    Both run on chunks of one element: MSCCL's runtimes are defined for equal chunks only.
    """
    c = plan.collective
    x = exact_inputs(c, np.int32, (1,), seed=seed)
    for in_place in plan.modes:
        try:
            want = run_xml(algo, x, _aliased(c) if in_place else {}, seed)
            got = execute(plan, x, in_place=in_place, window=plan.max_window or None, seed=seed)
        except (Hang, Poison, Overrun, KeyError) as error:
            return f"in place {in_place}: {type(error).__name__}: {error}"
        for (rank, _, slot), value in want.items():
            if slot < len(got[rank]) and got[rank][slot, 0] != value[0]:
                return f"in place {in_place}: rank {rank} slot {slot}: not what MSCCL gives"
    return None


def _aliased(c: Collective) -> dict[Place, Place]:
    """Returns the send slots that are receive slots in a call in place."""
    found: dict[Place, Place] = {}
    for rank in range(c.n_ranks):
        room = c.output_blocks(rank) * c.chunks_per_block
        for slot in range(c.input_blocks(rank) * c.chunks_per_block):
            if 0 <= slot + c.alias_offset(rank) < room:
                found[rank, "i", slot] = (rank, "o", slot + c.alias_offset(rank))
    return found
