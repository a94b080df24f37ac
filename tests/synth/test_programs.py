"""Schedules as Programs of every collective that is copies, sums, or both."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hccc import driver
from hccc.ir.collective import OpType
from hccc.ir.program import check
from hccc.ir.topology import Topology
from hccc.lang.cluster import load
from hccc.options import Options
from hccc.passes.verify import verify
from hccc.synth.bound import limits
from hccc.synth.estimate import estimate
from hccc.synth.programs import OPS, owners
from hccc.synth.searched import Searched, search

CLUSTERS = Path(__file__).parents[2] / "examples" / "clusters"


@cache
def site() -> Topology:
    """Nodes of 4 and 8 GPUs."""
    return load.load(CLUSTERS / "heteccl-h20-4+8.cluster")


@cache
def found(op: OpType, root: int = 5) -> list[Searched]:
    return list(search(site(), op, root, 0))


@pytest.mark.parametrize("op", sorted(OPS))
def test_programs_do_their_collective(op: OpType) -> None:
    for one in found(op):
        assert check(one.program) == []
        assert verify(one.program).collective.op is op
        assert one.steps >= one.bound > 0
    assert {one.again for one in found(op)} == {False, True}


@pytest.mark.parametrize("op", sorted(OPS))
def test_programs_are_compiled_with_all_proofs(op: OpType) -> None:
    made = driver.compile_program(found(op)[0].program, Options(tune="off"), site())
    assert [proof.name for proof in made.proofs] == ["program", "deadlock", "race", "result"]


def test_every_node_owns_as_much_of_an_allreduce() -> None:
    owner = owners(site(), OpType.ALLREDUCE, 0, 4)
    assert np.bincount(site().node[owner]).tolist() == [16, 16]


@pytest.mark.parametrize("op", sorted(OPS))
def test_no_estimate_is_below_the_narrowest_cut(op: OpType) -> None:
    least = limits(site(), op, 5)
    for one in found(op):
        times = [estimate(one.program, site(), size) for size in (1 << 10, 1 << 20, 1 << 30)]
        assert times == sorted(times)
        assert times[-1] >= least.at(1 << 30).bandwidth * (1 - 1e-9)
