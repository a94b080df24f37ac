"""limit_bytes: the largest call of packets, by devices and by what slots take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hccc.driver import assumed
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir.choices import PlanProtocol
from hccc.ir.kernel_shape import slot_bytes
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.passes.limit_bytes import MOST_LL_BYTES, MOST_SLOT_BYTES, limit_bytes
from hccc.passes.sync import LL_BYTES
from hccc.testing.clusters import cluster
from tests.emit import plans


def made(program: Program, where: Topology | None, **options: str) -> Plan:
    chosen = Options(protocol="ll", tune="off", **options)  # type: ignore[arg-type]
    return driver.compile_program(program, chosen, where).plan


def gpus(n: int) -> Topology:
    return cluster(f"define node1 = {n}\ndefine device = H100")


def test_cpus_and_no_cluster_have_short_calls() -> None:
    for where in (None, assumed.cluster_of([4], "cpu")):
        plan = made(plans.mesh_allreduce(4), where)
        assert plan.max_bytes == LL_BYTES and limit_bytes(plan, where) is plan


def test_a_simple_plan_stays_as_it_is() -> None:
    plan = plans.compiled(plans.mesh_allreduce(4))
    assert plan.protocol is PlanProtocol.SIMPLE and limit_bytes(plan, gpus(4)) is plan


@pytest.mark.parametrize("n", [2, 8, 16])
@pytest.mark.parametrize("fuse", ["auto", "full"])
def test_slots_of_gpus_are_bounded(n: int, fuse: str) -> None:
    """Halves calls until slots fit: the next longer ones do not."""
    plan = made(plans.mesh_allreduce(n), gpus(n), fuse=fuse)
    assert LL_BYTES < plan.max_bytes <= MOST_LL_BYTES
    for channels in (1, 5, 33, 64):
        assert slot_bytes(replace(plan, channels=channels)) <= MOST_SLOT_BYTES
    twice = replace(plan, max_bytes=2 * plan.max_bytes, channels=64)
    assert plan.max_bytes == MOST_LL_BYTES or slot_bytes(twice) > MOST_SLOT_BYTES


def test_more_messages_leave_shorter_calls() -> None:
    """In one shot each rank gets all that all others have."""
    one, two = (made(plans.mesh_allreduce(8), gpus(8), fuse=fuse) for fuse in ("auto", "full"))
    assert one.max_bytes == 1 << 20 < two.max_bytes
    gather = made(plans.ring_allgather(8), gpus(8))
    assert gather.max_bytes == MOST_LL_BYTES
