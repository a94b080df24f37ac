"""programs: schedules as Programs that verify and compile with every proof."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.lang.cluster import load
from hccc.passes.verify import verify
from hccc.synth.common.collectives import BOTH, COPIES, SUMS
from hccc.synth.greedy.chunked import chunked
from hccc.synth.greedy.greedy import greedy
from hccc.synth.greedy.programs import from_schedules, owners
from hccc.synth.greedy.schedule import Schedule, gather_all
from tests.synth.greedy.chunked_clusters import CLUSTERS

UNEQUAL = ["heteccl-h20-4+8", "heteccl-h20-4x2+8-fault-4-8"]
EACH = pytest.mark.parametrize("op", sorted(BOTH))

PROOFS = {"program", "deadlock", "race", "result"}


@cache
def shipped(name: str) -> Topology:
    return load.load(CLUSTERS / f"{name}.cluster")


def made(t: Topology, op: OpType, root: int = 0, chunks: int = 1) -> tuple[Program, int]:
    """Returns a Program and the total steps of its schedules."""
    owner, c = owners(t, op, root, chunks), chunked(t, fine=True)
    demand = gather_all(owner, len(t))
    found = list[Schedule | None]()
    for model, without in ((c, SUMS), (c.reversed(), COPIES)):
        found.append(None if op in without else greedy(model, demand, 0))
    steps = sum(s.steps for s in found if s is not None)
    copies, sums = found
    return from_schedules("Made", t, op, root, owner, copies, sums), steps


@EACH
@pytest.mark.parametrize("name", UNEQUAL)
def test_programs_verify(name: str, op: OpType) -> None:
    p, steps = made(shipped(name), op, root=5 if op in (OpType.BROADCAST, OpType.REDUCE) else 0)
    assert verify(p).collective.op is op
    assert int(p.transfers["step"].max()) + 1 == steps


@EACH
def test_programs_compile_with_all_proofs(op: OpType) -> None:
    t = shipped("heteccl-h20-4+8")
    p, _ = made(t, op)
    compiled = compile_program(verify(p), Options(sizes="1M", plans=1), t)
    assert {proof.name for proof in compiled.proofs} == PROOFS


def test_owners_of_an_allreduce_are_balanced_by_node() -> None:
    t = shipped("heteccl-h20-4+8")
    owner = owners(t, OpType.ALLREDUCE, 0, 4)
    assert np.bincount(t.dense_memory_domain()[owner]).tolist() == [16, 16]
    assert np.bincount(owner).tolist() == [4] * 4 + [2] * 8


@pytest.mark.parametrize("op", [OpType.ALLGATHER, OpType.REDUCESCATTER])
def test_owners_of_what_each_has(op: OpType) -> None:
    assert owners(shipped("heteccl-h20-4+8"), op, 0, 2).tolist() == [
        r for r in range(12) for _ in range(2)
    ]


@pytest.mark.parametrize("op", [OpType.BROADCAST, OpType.REDUCE])
def test_the_root_owns_all(op: OpType) -> None:
    assert owners(shipped("heteccl-h20-4+8"), op, 7, 3).tolist() == [7, 7, 7]
