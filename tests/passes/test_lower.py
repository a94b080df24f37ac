"""lower: one task, one primitive (or a send and a recv), reading the right version."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from hccc.ir import primitives as primitives_ir
from hccc.ir.collective import OpType
from hccc.ir.primitives import Buffer, Operands, Transport
from hccc.ir.transport import PURE
from hccc.passes.depend import depend
from hccc.passes.hpds import hpds
from hccc.passes.lower import lower
from tests.passes.textbook import (
    RECV,
    RRC,
    SMALL,
    SWEEP,
    few,
    lowered,
    made,
    planned,
    program,
    verdict,
)

PAIR = program(OpType.ALLREDUCE, 2, 1, [(1, 0, 0, 0, RRC), (0, 1, 1, 0, RECV)])


def operands(o: Operands, i: int) -> list[tuple[int, int, int]]:
    row = slice(int(o.ptr[i]), int(o.ptr[i + 1]))
    return list(
        zip(o.rank[row].tolist(), o.buffer[row].tolist(), o.slot[row].tolist(), strict=True)
    )


def test_direct_a_copy_is_a_put_and_a_reduction_a_get() -> None:
    p = lowered(PAIR)
    assert p.owner.tolist() == [0, 0]
    assert operands(p.src, 0) == [(0, Buffer.START, 0), (1, Buffer.START, 0)]
    assert operands(p.dst, 0) == [(0, Buffer.VALUE, 0)]
    assert operands(p.src, 1) == [(0, Buffer.VALUE, 0)]
    assert operands(p.dst, 1) == [(1, Buffer.VALUE, 0)]
    assert p.final.tolist() == [1, 0]


def test_staged_a_task_is_a_send_and_a_recv() -> None:
    p = lowered(PAIR, Transport.STAGED)
    assert p.owner.tolist() == [1, 0, 0, 1]
    assert [b for _, b, _ in operands(p.src, 1)] == [Buffer.START, Buffer.QUEUE]
    assert [b for _, b, _ in operands(p.dst, 2)] == [Buffer.QUEUE]
    assert p.final.tolist() == [0, 1, 0, 0]
    assert len(p.queues) == 2


@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", SMALL)
def test_invariants(name: str, transport: Transport) -> None:
    assert primitives_ir.check(lowered(SMALL[name], transport)) == []


def test_check_says_no() -> None:
    p = lowered(SMALL["ring allreduce"])
    assert primitives_ir.check(replace(p, chunk=np.roll(p.chunk, 1)))
    assert primitives_ir.check(replace(p, tasks=replace(p.tasks, index=p.tasks.index[::-1] * 0)))
    late = p.deps.index.copy()
    late[0] = len(p) - 1
    assert primitives_ir.check(replace(p, deps=replace(p.deps, index=late)))


@SWEEP
@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", SMALL)
def test_no_wrong_version_survives(name: str, transport: Transport, most: int) -> None:
    """Reading the start for the value, or the value for the start, is refused."""
    dag = depend(SMALL[name])
    rrc = dag.program.transfers["op"] == RRC
    faults = [(i, bit) for i in range(len(dag)) for bit in (1, 2)[: 1 + int(rrc[i])]]
    for i, bit in few(faults, most):
        initial = dag.initial.copy()
        initial[i] ^= bit
        wrong = lower(hpds(replace(dag, initial=initial)), transport)
        plan = made(partial(planned, wrong))
        assert plan is None or verdict(plan) in ("E304", "E306", "E307", "E312"), (i, bit)
