"""greet: which plans it has ranks greet each other in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hccc.base.diagnostics import UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit.kernels import source
from hccc.ir import plan_json
from hccc.ir.digest import digest
from hccc.ir.kernel_shape import kernel_shape
from hccc.ir.op_type import OpType
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.passes.greet import greet
from hccc.proofs.prove import check_plan
from tests.emit import plans

ALL_HEAR = [
    plans.mesh_allreduce(4),
    plans.ring_allreduce(70),
    plans.ring_allgather(3),
    plans.direct_reducescatter(4),
    plans.alltoall(3),
]


def made(p: Program, **options: object) -> Plan:
    return driver.compile_program(p, Options(protocol="ll", **options)).plan  # type: ignore[arg-type]


@pytest.mark.parametrize("p", ALL_HEAR, ids=lambda p: f"{p.name}-{p.collective.n_ranks}")
def test_who_hears_of_all_greets_nobody(p: Program) -> None:
    plan = made(p)
    assert not plan.greets and greet(plan) is plan


@pytest.mark.parametrize("n", [2, 3, 70])
def test_leaves_of_a_broadcast_greet(n: int) -> None:
    plan = made(plans.broadcast(n))
    assert plan.greets
    slots = kernel_shape(replace(plan, greets=False)).packets
    assert kernel_shape(plan).packets == slots + n
    assert [proof.name for proof in check_plan(plan)] == ["deadlock", "reuse", "race", "result"]
    with pytest.raises(UserError) as error:
        check_plan(replace(plan, greets=False))
    assert error.value.problem.code == "E308"


def test_a_last_rank_that_nobody_hears_of_is_not_missed() -> None:
    """Ranks are looked at 64 at a time."""
    rows = [(r, (r + 1) % 66, s, (r - s) % 66, 3, 0) for s in range(65) for r in range(66)]
    ring = plans.program("ring", OpType.ALLGATHER, 66, rows)
    assert not made(ring).greets
    assert made(plans.broadcast(66, root=65)).greets


def test_other_protocols_greet_nobody() -> None:
    plan = plans.compiled(plans.broadcast(3))
    assert greet(plan) is plan
    with pytest.raises(UserError, match="greets: the protocol is simple"):
        check_plan(replace(plan, greets=True))


def test_files_say_so() -> None:
    plan = made(plans.broadcast(3))
    text = plan_json.dumps(plan)
    again = plan_json.loads(text)
    assert again.greets and plan_json.dumps(again) == text
    silent = replace(plan, greets=False)
    assert "greets" not in plan_json.dumps(silent)
    assert digest(again) == digest(plan) != digest(silent)


def test_kernels_of_gpus_are_refused() -> None:
    plan = made(plans.broadcast(3))
    assert "#define HCCC_GREETS 1" in source.cpu(plan)
    for emit in (source.cuda, source.hip):
        with pytest.raises(UserError) as error:
            emit(plan)
        assert error.value.problem.code == "E323"
