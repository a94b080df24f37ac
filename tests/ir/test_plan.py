"""What a plan says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.ir.transport import Transport
from tests.emit import plans

RING = plans.ring_allreduce(4)
NODES = plans.ring_allreduce(4, gpus=2)


def compiled(program: Program, **options: object) -> Plan:
    return compile_program(program, Options(tune="off", **options)).plan  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("plan", "wanted"),
    [
        (compiled(RING, transport=Transport.DIRECT), True),
        (compiled(RING, transport=Transport.STAGED), True),
        (compiled(NODES, network_lowering="slots"), True),
        (compiled(NODES, network_lowering="put"), False),  # a proxy reads send buffers
        (compiled(plans.alltoall(4)), False),  # adds nothing
    ],
    ids=["direct", "staged", "slots", "put", "alltoall"],
)
def test_which_plans_multiply_what_enters(plan: Plan, wanted: bool) -> None:
    assert plan.multiplies() == wanted == ("premul_sum" in plan.operations)
    assert {"sum", "avg"} <= {*plan.operations}


@pytest.mark.parametrize(
    ("plan", "wanted"),
    [
        (compiled(RING, transport=Transport.DIRECT), True),
        (compiled(RING, transport=Transport.STAGED), False),  # all goes through slots
        (compiled(NODES, network_lowering="slots"), True),  # within nodes
        (compiled(plans.alltoall(2, gpus=1), network_lowering="slots"), False),
        (compiled(plans.alltoall(2, gpus=1), network_lowering="put"), True),
        # A proxy reads what it puts into scratch.
        (compiled(plans.direct_reducescatter(3, gpus=1), network_lowering="put"), True),
    ],
    ids=["direct", "staged", "within nodes", "slots", "put", "put into scratch"],
)
def test_which_plans_touch_buffers_of_peers(plan: Plan, wanted: bool) -> None:
    assert plan.touches_peers() is wanted


def test_a_custom_collective_reduces_where_its_primitives_do() -> None:
    for program, wanted in ((plans.ring_allgather(3), False), (plans.ring_allreduce(3), True)):
        made = compiled(program)
        custom = replace(made, collective=replace(made.collective, op=OpType.CUSTOM))
        assert custom.reduces is wanted


def test_connections_are_counted_within_and_between_domains() -> None:
    """A ring of four ranks has four, two of them between its two nodes."""
    assert compiled(NODES, network_lowering="put").connections() == (2, 2)
    assert compiled(NODES, network_lowering="slots").connections() == (2, 2)
    assert compiled(plans.alltoall(3)).connections() == (6, 0)
