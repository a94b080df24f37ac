"""Compiled kernels with large indices: errors of the sanitizer, and the places of data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hccc.ir.arrays import Csr
from hccc.ir.collective import Collective, OpType
from hccc.ir.plan import Plan, Posts
from hccc.ir.plan_check import check
from hccc.ir.primitives import Buffer, Operands, Transport, no_queues
from hccc.ir.transport import PURE
from hccc.runtime.abi import CallRecord
from hccc.runtime.cpu import aligned_zeros
from hccc.runtime.measure.patterns import Pattern
from tests.emit import launch, plans
from tests.emit.kernels.test_compile import library

SANITIZE = ("-fsanitize=signed-integer-overflow,shift,bounds,integer-divide-by-zero",)
RANKS = 3


def scattered(chunks: int, turns: int, factor: int) -> Plan:
    """Makes a plan of three ranks: each puts input slot (factor · i) % chunks to the next rank.

    With factor · turns > 2^31 the product does not fit an int, all slots do.
    """
    n = RANKS * turns
    owner = np.repeat(np.arange(RANKS), turns)
    slot = np.tile(np.arange(turns) * factor % chunks, RANKS)
    ptr, none = np.arange(n + 1), np.zeros(n + 1, np.int64)
    buffer, zero, no_slots = (np.zeros(k, np.uint8) for k in (n, n, RANKS))
    return Plan(
        name="scattered",
        source="",
        collective=Collective(OpType.CUSTOM, RANKS, RANKS * chunks),
        channels=1,
        warps=1,
        gpus_per_node=RANKS,
        nics_per_node=1,
        transport=Transport.DIRECT,
        memory_domain=np.zeros(RANKS, np.int32),
        queue_slots=1,
        n_tb=np.ones(RANKS, np.int32),
        tb_ptr=np.arange(RANKS + 1) * turns,
        chunk=owner * chunks + slot,
        sub=np.tile(np.arange(turns), RANKS),
        line=zero,
        final=zero,
        guard=zero,
        src=Operands(ptr, owner, buffer + Buffer.INPUT, slot),
        dst=Operands(ptr, (owner + 1) % RANKS, buffer + Buffer.OUTPUT, slot),
        waits=Csr(none, np.zeros(0, np.int32)),
        posts=Posts(none, np.zeros(0, np.int32), np.zeros(0, np.int32)),
        n_flags=no_slots,
        scratch_slots=no_slots,
        stage_slots=no_slots,
        queues=no_queues(),
    )


def test_a_product_beyond_int_reaches_the_right_slots(
    tmp_path: Path, cxx: str, capfd: pytest.CaptureFixture[str]
) -> None:
    chunks, turns, factor = 349_507, 12_500, 174_000
    assert factor * turns > 2**31
    plan = scattered(chunks, turns, factor)
    check(plan)
    built = library(plan, tmp_path / "k", cxx, "uint32", "sum", SANITIZE)
    assert f"i * {factor}LL" in (tmp_path / "k" / "scattered_cpu.cpp").read_text()
    world = launch.PlanRanks(built, plan)
    count, size = 4, 4  # 16 bytes a chunk, which is a block
    inputs, outputs = (
        [aligned_zeros(chunks * count * size).view(np.uint32) for _ in range(RANKS)]
        for _ in range(2)
    )
    for rank in range(RANKS):
        inputs[rank][:] = np.arange(chunks * count) * RANKS + rank
    call = CallRecord.of(count=count, timeout_s=20)
    buffers = list(zip(inputs, outputs, strict=True))
    assert world.launch(buffers, call, "uint32", None) == 0
    moved = np.isin(np.arange(chunks), np.arange(turns) * factor % chunks).repeat(count)
    for rank in range(RANKS):
        assert np.array_equal(outputs[rank], np.where(moved, inputs[rank - 1], 0))
    assert "runtime error" not in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("transport", list(PURE))
def test_no_kernel_overflows(
    transport: Transport, tmp_path: Path, cxx: str, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = plans.compiled(plans.hierarchical_mesh(2, 2, channels=2), transport=transport)
    built = library(plan, tmp_path / "k", cxx, "uint32", "sum", SANITIZE)
    world = launch.PlanRanks(built, plan)
    for count in (1, 1000):
        pattern = Pattern(plan.collective, "uint32", "sum", count)
        assert world.wrong(pattern, micro_batch_bytes=64) == 0
    assert "runtime error" not in capfd.readouterr().err
