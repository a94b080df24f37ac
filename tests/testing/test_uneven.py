"""Uneven collectives: programs of blocks with any lengths, against the reference executor."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver.compilation import compile_program, compile_text
from hccc.driver.options import AUTO, Options
from hccc.emit.targets import TARGETS
from hccc.interop.export_msccl import XmlOptions, export_msccl
from hccc.ir import plan_check, plan_json
from hccc.ir.arrays import Csr
from hccc.ir.catalogue import Catalogue
from hccc.ir.choices import Fusion
from hccc.ir.collective import UNEVEN, Collective, OpType, block_count
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Transport
from hccc.ir.transport import PURE
from hccc.ir.uneven import RECEIVE, SEND, SKEWS, BlockTable, placed, skewed
from hccc.proofs.prove import check_plan
from hccc.runtime.cpu import CpuLauncher
from hccc.runtime.request import LaunchRequest
from hccc.testing.grow import Choose, grow
from hccc.testing.judge import PlanCall, drawn_call, expected_of, fault, inputs_of
from hccc.testing.kernels import built
from hccc.validate.validate import validate
from tests.marks import LONG
from tests.validate.conftest import emitted

OPS = sorted(UNEVEN)
PROGRAMS = 60 * LONG


def chooser(rng: Random) -> Choose:
    return lambda n: rng.randrange(n + 1) if n > 0 else 0


def drawn(rng: Random, op: OpType | None = None) -> Plan:
    """Draws a program of an uneven collective and compiles it with drawn options."""
    op = op or rng.choice(OPS)
    n = rng.randint(2, 4)
    per = rng.randint(1, 2)
    root = rng.randrange(n) if op in (OpType.GATHER, OpType.SCATTER) else 0
    c = Collective(op, n, block_count(op, n) * per, root, uneven=True)
    program = grow(c, chooser(rng), channels=rng.randint(1, 2))
    fuse = rng.choice([*Fusion, AUTO])
    how = Options(transport=rng.choice(PURE), fuse=fuse, slots=rng.choice([1, 2, 8]))
    return compile_program(program, how).plan


@pytest.mark.slow
def test_random_programs_of_random_lengths_end_with_what_the_collective_says() -> None:
    for seed in range(PROGRAMS):
        rng = Random(seed)
        plan = drawn(rng)
        assert fault(plan, drawn_call(plan, chooser(rng))) is None, seed


@pytest.mark.quick(2)
@pytest.mark.parametrize("op", OPS)
def test_every_wait_that_is_deleted_is_told(op: OpType) -> None:
    """By the check of the plan, a proof, or the reference executor."""
    for seed in range(OPS.index(op), OPS.index(op) + LONG):
        plan = drawn(Random(seed), op)
        for wait in range(len(plan.waits.index)):
            with pytest.raises(UserError):
                check_plan(_without(plan, wait))


def _without(plan: Plan, wait: int) -> Plan:
    counts = plan.waits.counts()
    counts[plan.waits.owner()[wait]] -= 1
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(plan.waits.ptr.dtype)
    return replace(plan, waits=Csr(ptr, np.delete(plan.waits.index, wait)))


def test_a_chunk_in_another_blocks_slot_is_refused() -> None:
    """Where blocks are alike, the slot of any block would do."""
    plan = compile_text(Source("x.rccl", DIRECT), Options(transport=Transport.DIRECT)).plan
    at = int(np.flatnonzero(plan.dst.buffer == Buffer.OUTPUT)[0])
    slot = plan.dst.slot.copy()
    slot[at] = (slot[at] + 1) % 3
    with pytest.raises(UserError, match="E312"):
        plan_check.check(replace(plan, dst=replace(plan.dst, slot=slot)))


DIRECT = """
def ResCCLAlgo(nRanks=3, AlgoName="direct", OpType="Alltoallv", nChunks=18):
    for i in range(nRanks):
        for j in range(nRanks):
            if i != j:
                for k in range(2):
                    transfer(i, j, 0, (i * nRanks + j) * 2 + k, recv)
"""


def test_a_plan_keeps_the_collective_in_its_file() -> None:
    plan = drawn(Random(1), OpType.ALLTOALL)
    text = plan_json.dumps(plan)
    assert '"op": "Alltoallv"' in text
    assert plan_json.loads(text).collective == plan.collective


@pytest.mark.quick(2)
@pytest.mark.parametrize("op", OPS)
def test_compiled_kernels_move_blocks_of_any_length(op: OpType) -> None:
    """Out of place and in place, with gaps between blocks that must stay as they were."""
    rng = Random(7)
    plan = drawn(rng, op)
    calls = [drawn_call(plan, chooser(rng)) for _ in range(12)]
    assert any(call.blocks is not None and not call.blocks.lengths.all() for call in calls)
    with built(plan, LaunchRequest(1, "int32")) as host:
        for call in calls:
            _check(host, plan, call)


def _check(host: CpuLauncher, plan: Plan, call: PlanCall) -> None:
    table, c = call.blocks, plan.collective
    assert table is not None
    even = inputs_of(c, call)
    want = expected_of(c, call, even)
    out = [np.full(int(table.sizes[r, RECEIVE]) + 1, -7, np.int32) for r in range(c.n_ranks)]
    sent = [placed(table, r, SEND, a, call.count) for r, a in enumerate(even)]
    request = LaunchRequest(
        call.count, "int32", call.op, False, call.micro_batch, call.window or 0, blocks=table
    )
    host.launch(sent, out, request)
    for r in range(c.n_ranks):
        image = np.full_like(out[r], -7)
        for i, (_, first, length) in enumerate(table.spans(r, RECEIVE)):
            image[first : first + length] = want[r][i * call.count :][:length]
        assert np.array_equal(out[r], image), (r, call)


def test_wrong_tables_are_refused_with_both_ends() -> None:
    c = Collective(OpType.ALLTOALL, 3, 9, uneven=True)
    table = BlockTable.packed(c, skewed(c, 10, "random", 3))
    table.check(10, False)
    with pytest.raises(UserError, match="from rank 1 to rank 2 has 11 elements, not 0 to 10"):
        BlockTable.packed(c, np.array([1, 1, 1, 1, 1, 11, 1, 1, 1])).check(10, False)
    with pytest.raises(UserError, match="lengths for 8 blocks"):
        replace(table, lengths=table.lengths[:8]).check(10, False)
    ones = BlockTable.packed(c, np.ones(9, np.int64))
    places = ones.places.copy()
    places[2, RECEIVE, 1] = 0
    with pytest.raises(
        UserError, match="from rank 0 to rank 2 and the block from rank 1 to rank 2"
    ):
        replace(ones, places=places).check(10, False)
    places[2, RECEIVE, 1] = 3
    with pytest.raises(UserError, match="is outside the receive buffer of rank 2"):
        replace(ones, places=places).check(10, False)
    with pytest.raises(UserError, match="in place, rank 0 sends"):
        BlockTable.packed(c, np.arange(9)).check(10, True)


@pytest.mark.parametrize("skew", SKEWS)
def test_skewed_lengths_fit(skew: str) -> None:
    lengths = skewed(Collective(OpType.ALLTOALL, 4, 16, uneven=True), 100, skew)
    assert lengths.shape == (16,) and lengths.min() >= 0 and lengths.max() <= 100
    assert (lengths.max() == 100) == (skew in ("even", "zipf", "one")) or skew == "random"


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_texts_are_validated(op: OpType) -> None:
    """All targets' texts take lengths by chunk; with another table of lengths they are refused."""
    plan = drawn(Random(11), op)
    files = emitted(plan)
    assert validate(files, Catalogue.of(plan), TARGETS).primitives == len(plan)
    lengths = f"#define HCCC_UNEVEN {plan.collective.blocks}"
    for name, text in files.items():
        if lengths.encode() in text:
            wrong = {**files, name: text.replace(lengths.encode(), b"#define HCCC_UNEVEN 1")}
            with pytest.raises(UserError):
                validate(wrong, Catalogue.of(plan), TARGETS)


def test_msccl_refuses() -> None:
    plan = drawn(Random(2), OpType.ALLGATHER)
    with pytest.raises(UserError, match="cannot say lengths"):
        export_msccl(plan, XmlOptions())
