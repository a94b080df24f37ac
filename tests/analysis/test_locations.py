"""locations: as many as there are slots, and one for memory that two buffers share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hccc.analysis.ancestry.chunk_forests import within_chunks
from hccc.analysis.ancestry.labels import LABEL
from hccc.analysis.locations import locate
from hccc.analysis.waits import enforced
from hccc.base.diagnostics import Source
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.ir.collective import PROGRAMMABLE, Collective, OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Operands, Transport


def gather(n: int) -> Plan:
    text = f"ResCCLAlgo(nRanks={n}, OpType='Gather', GPUPerNode=1, NICPerNode=1):\n"
    text += "    for r in range(1, nRanks):\n        transfer(r, 0, 0, r, recv)\n"
    return compile_text(Source("gather.rccl", text), Options(transport=Transport.DIRECT)).plan


def test_only_the_root_has_many() -> None:
    """A location at the widest rank's width for each rank would be n²."""
    plan = gather(300)
    assert locate(plan, in_place=False).total == 2 * 300
    assert locate(plan, in_place=True).total == 2 * 300


@pytest.mark.parametrize("op", [OpType.SENDRECV, OpType.CUSTOM])
@pytest.mark.parametrize("in_place", [False, True])
def test_buffers_are_one_memory_in_place_only(op: OpType, in_place: bool) -> None:
    """A rank's send and receive slot are one location in place, two out of place."""
    n = 3
    slot = np.zeros(2 * n, np.int32)
    buffer = np.repeat([Buffer.INPUT, Buffer.OUTPUT], n)
    operands = Operands(np.array([0, 2 * n]), np.tile(np.arange(n), 2), buffer, slot)
    plan = replace(gather(n), collective=Collective(op, n, n), src=operands, dst=operands)
    sends, receives = np.split(locate(plan, in_place=in_place).src, 2)
    assert (sends == receives).all() == in_place
    assert len({*sends.tolist(), *receives.tolist()}) == (n if in_place else 2 * n)


@pytest.mark.parametrize("op", PROGRAMMABLE)
def test_every_start_and_every_end_has_its_location(op: OpType) -> None:
    n = 3
    c = Collective(op, n, 2 * n * n if op is OpType.ALLTOALL else 2 * n)
    starts = sum(c.input_blocks(r) * c.chunks_per_block for r in range(n))
    ends = sum(c.output_blocks(r) * c.chunks_per_block for r in range(n))
    plan = replace(gather(3), collective=c)
    where = locate(plan, in_place=False)
    assert (where.start >= 0).sum() == starts and (where.want >= 0).sum() == ends


def test_hints_that_do_not_fit_a_number_are_left_out() -> None:
    plan = gather(4)
    label = np.zeros(len(plan), LABEL)
    label["block"][-1] = (1 << 31) - 2
    chunk = np.full(len(plan), (1 << 31) - 2, np.int32)
    order = np.arange(len(plan), dtype=np.int32)
    assert within_chunks(label, enforced(plan), order, chunk) is None
