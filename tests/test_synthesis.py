"""The best of several algorithms for a cluster and a size."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import hccc
from hccc.diagnostics import Source, UserError
from hccc.ir.collective import PROGRAMMABLE, OpType
from hccc.ir.program import same
from hccc.ir.topology import Topology, uniform
from hccc.lang.transfer import load as transfer
from hccc.synthesis import Synthesis, program_text, synthesize

CLUSTERS = Path(__file__).parents[1] / "examples" / "clusters"


@cache
def site() -> Topology:
    return hccc.load_cluster(CLUSTERS / "heteccl-fig10.cluster")


@cache
def made(op: OpType, method: str = "auto", size: int = 1 << 20) -> Synthesis:
    return synthesize(site(), op, size, root=1, method=method)


@pytest.mark.parametrize("op", PROGRAMMABLE)
def test_every_collective_gets_a_program_near_its_bound(op: OpType) -> None:
    found = made(op)
    assert found.program.collective.op is op
    times = [one.time for one in found.weighed if one.time is not None]
    assert found.best.time == min(times) and times == sorted(times)
    assert 0 < found.share() <= 1 + 1e-4  # what does not divide by the ranks is not sent
    assert found.text().splitlines()[1].startswith(f"  chosen       {found.best.name}: ")
    assert found.facts()["time"] == found.best.time


def test_a_method_can_be_asked_for() -> None:
    assert [one.name for one in made(OpType.ALLREDUCE, "ring").weighed] == ["ring"]
    assert made(OpType.ALLREDUCE, "greedy").best.name.startswith("greedy, ")


@pytest.mark.parametrize("method", ["cegis", "repair"])
@pytest.mark.parametrize("op", [OpType.ALLGATHER, OpType.REDUCE, OpType.ALLREDUCE])
def test_solvers_say_what_they_were_asked(op: OpType, method: str) -> None:
    found = synthesize(site(), op, 1 << 20, method=method, time_limit=20)
    one = found.best.searched
    assert one is not None and one.method == method
    assert found.best.name == f"{method}, 1 chunk a rank" and one.steps >= one.bound
    explained = found.text(explain=True).splitlines()
    assert f"  schedule     {one.steps} steps, {one.bound} at least; " in "\n".join(explained)
    assert len(explained) == len(found.text().splitlines()) + 1 + 2 * len(one.trace)


@pytest.mark.parametrize(
    ("op", "method", "where"),
    [(OpType.ALLTOALL, "greedy", None), (OpType.ALLREDUCE, "magic", None),
     (OpType.ALLGATHER, "tree", None), (OpType.ALLREDUCE, "auto", uniform(1, 1, 1))],
)  # fmt: skip
def test_what_nothing_serves(op: OpType, method: str, where: Topology | None) -> None:
    with pytest.raises(UserError) as caught:
        synthesize(where or site(), op, 1 << 20, method=method)
    assert caught.value.problem.code == "E451"


def test_the_text_is_the_program_and_the_same_every_time() -> None:
    found = made(OpType.REDUCESCATTER, "greedy")
    text = program_text(found)
    assert same(transfer.parse(Source("a.rccl", text)), found.program)
    again = synthesize(site(), OpType.REDUCESCATTER, 1 << 20, root=1, method="greedy")
    assert program_text(again) == text


def test_from_python() -> None:
    found = hccc.synthesize(site(), "allgather", 1 << 16)
    compiled = hccc.compile(found.program, hccc.Options(tune="off"), cluster=site())
    assert compiled.plan.n_ranks == len(site())
    for wrong in ({"root": 6}, {"size": 0}):
        with pytest.raises(UserError):
            hccc.synthesize(site(), "broadcast", **wrong)  # type: ignore[arg-type]
