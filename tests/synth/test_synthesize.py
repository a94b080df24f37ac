"""synthesize: proved programs for every collective, the fastest of those compared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

import hccc
from hccc.base.diagnostics import Source, UserError
from hccc.driver.compilation import compile_program
from hccc.driver.inputs import parse_cluster
from hccc.driver.options import Options
from hccc.ir.collective import PROGRAMMABLE, OpType
from hccc.ir.text import microseconds as us
from hccc.ir.topology import Topology, uniform
from hccc.lang.transfer import load as transfer
from hccc.passes.verify import verify
from hccc.synth.candidates import methods
from hccc.synth.cegis.programs import METHODS, SolvedProgram
from hccc.synth.common.collectives import BOTH
from hccc.synth.synthesis import Synthesis, program_text
from hccc.synth.synthesize import synthesize
from tests.marks import slow
from tests.synth.greedy.chunked_clusters import CLUSTERS
from tests.synth.greedy.chunked_clusters import SMALL as TEXT

SIZE = 1 << 20
SMALL = parse_cluster(Source("small", TEXT))
EACH = pytest.mark.parametrize("op", PROGRAMMABLE)

PROOFS = {"program", "deadlock", "race", "result"}


@cache
def made(op: OpType) -> Synthesis:
    return synthesize(SMALL, op, SIZE)


def columns(one: Synthesis) -> list[list[int]]:
    return [one.program.transfers[k].tolist() for k in ("src", "dst", "step", "chunk", "op")]


@pytest.mark.slow
@EACH
def test_the_best_is_proved(op: OpType) -> None:
    p = made(op).program
    assert p.collective.op is op and p.collective.n_ranks == 3
    compiled = compile_program(verify(p), Options(sizes="1M", plans=1), SMALL)
    assert {proof.name for proof in compiled.proofs} == PROOFS


@pytest.mark.quick(0)
def test_when_the_time_is_over_one_candidate_has_a_time() -> None:
    whole, early = made(OpType.ALLGATHER), synthesize(SMALL, OpType.ALLGATHER, SIZE, seconds=0)
    assert early.late and not early.interrupted and not whole.late
    assert early.best.time is not None and early.share() <= whole.share()
    timed = [w for w in early.weighed if w.time is not None]
    untried = [w.name for w in early.weighed if "the time was over" in w.refused]
    assert len(timed) == 1 and untried
    assert {w.name for w in early.weighed} == {w.name for w in whole.weighed}
    assert early.facts()["late"] is True and "the time was over" in early.text()
    enough = synthesize(SMALL, OpType.ALLGATHER, SIZE, seconds=3600)
    assert columns(enough) == columns(whole) and not enough.late


@pytest.mark.quick(0)
def test_the_time_is_over_in_other_threads_too() -> None:
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(synthesize, SMALL, OpType.ALLGATHER, SIZE, seconds=0).result()
    assert early.late and sum(w.time is not None for w in early.weighed) == 1


@pytest.mark.slow
@EACH
def test_the_best_has_the_least_time_and_is_not_below_the_bound(op: OpType) -> None:
    one = made(op)
    times = [w.time for w in one.weighed if w.time is not None]
    assert one.best is one.weighed[0] and one.best.time == min(times) and times == sorted(times)
    assert 0 < one.share() <= 1 + 1e-9


@pytest.mark.quick(1)
@EACH
def test_what_is_alike_is_one_row(op: OpType) -> None:
    """What was refused has a row of its own, with the reason."""
    one = made(op)
    last = one.at[0].weighed[-1]
    for chosen in (one.best, last):
        rows = one.at[0].rows(chosen.name)
        assert chosen.name in [candidate.name for _, candidate in rows]
        more = [int(name.rpartition("(")[2].split()[0]) for name, _ in rows if "more alike" in name]
        assert len(rows) + sum(more) == len(one.weighed)
        named = [candidate.name for _, candidate in rows]
        assert {w.name for w in one.weighed if w.program is None} <= {*named}
        timed = [(us(c.time), us(c.estimate)) for _, c in rows if c.time is not None]
        assert len({*timed}) == len(timed)


@pytest.mark.quick(1)
@EACH
def test_all_methods_are_weighed(op: OpType) -> None:
    names = {w.name.split(",")[0] for w in made(op).weighed}
    asked_for = {*METHODS, "levels"}  # only by name
    assert names == set(methods(op)) - asked_for
    assert ("greedy" in names) == (op in BOTH)


@pytest.mark.quick(2)
@EACH
def test_the_text_is_the_program(op: OpType) -> None:
    one = made(op)
    text = program_text(one)
    read = transfer.parse(Source("x.rccl", text))
    assert read.collective == one.program.collective
    assert [read.transfers[k].tolist() for k in ("src", "dst", "step", "chunk", "op")] == columns(
        one
    )
    assert f"Method: {one.best.name}; seed 0." in text


@pytest.mark.quick(0)
@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_seed_gives_the_same_text(seed: int) -> None:
    first, second = (
        program_text(synthesize(SMALL, OpType.ALLGATHER, SIZE, method="greedy", seed=seed))
        for _ in range(2)
    )
    assert first == second and f"seed {seed}." in first


@pytest.mark.quick(1)
@pytest.mark.parametrize("method", methods(OpType.ALLGATHER))
def test_a_method_that_is_asked_for(method: str) -> None:
    try:
        one = synthesize(SMALL, OpType.ALLGATHER, SIZE, method=method)
    except UserError as error:  # not all serve three ranks of unequal nodes
        assert error.problem.code == "E451" and method in error.problem.message
        weighed = made(OpType.ALLGATHER).weighed
        assert any(w.name == method and w.refused for w in weighed)
        return
    assert {w.name.split(",")[0] for w in one.weighed} == {method}


def test_facts_and_text_say_the_same() -> None:
    one = made(OpType.ALLREDUCE)
    facts, text = one.facts(), one.text()
    assert facts["method"] == one.best.name and facts["ranks"] == 3 and facts["size"] == SIZE
    assert facts["share"] == one.share() and facts["steps"] > 0  # type: ignore[operator]
    assert f"chosen       {one.best.name}" in text and "1,048,576 bytes" in text


@pytest.mark.parametrize("method", ["ring", "Greedy", ""])
def test_no_such_method(method: str) -> None:
    with pytest.raises(UserError, match="there is no") as error:
        synthesize(SMALL, OpType.SENDRECV, SIZE, method=method)
    assert error.value.problem.code == "E451"


def test_greedy_does_not_serve_alltoall() -> None:
    with pytest.raises(UserError, match="no greedy for Alltoall"):
        synthesize(SMALL, OpType.ALLTOALL, SIZE, method="greedy")


def test_one_rank_has_nobody_to_send_to() -> None:
    with pytest.raises(UserError, match="one rank has nobody") as error:
        synthesize(uniform(1, 1, 1), OpType.ALLGATHER, SIZE)
    assert error.value.problem.code == "E451"


@pytest.mark.slow
@pytest.mark.parametrize("op", [OpType.BROADCAST, OpType.REDUCE, OpType.GATHER, OpType.SCATTER])
def test_roots(op: OpType) -> None:
    assert verify(synthesize(SMALL, op, SIZE, root=2).program).collective.root == 2


@pytest.mark.quick(0)
@pytest.mark.parametrize("size", [1, 1000, 1 << 30])
def test_calls_of_any_size(size: int) -> None:
    assert synthesize(SMALL, OpType.ALLREDUCE, size).share() <= 1 + 1e-9


SCENARIOS = ["4", "8", "4-4", "4-8"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [SCENARIOS[0], *map(slow, SCENARIOS[1:])])
def test_gpus_that_failed(name: str) -> None:
    cluster: Topology = hccc.load_cluster(CLUSTERS / f"heteccl-h20-4x2+8-fault-{name}.cluster")
    one = synthesize(cluster, OpType.ALLGATHER, 64 << 20, method="greedy")
    assert verify(one.program).collective.n_ranks == len(cluster) < 16


@pytest.mark.slow
def test_the_api_names_phases_and_checks_what_it_is_given() -> None:
    said = list[str]()
    one = hccc.synthesize(SMALL, "allgather", SIZE, method="greedy", on_phase=said.append)
    assert columns(one) and "Synthesis: greedy" in said
    for wrong, code in (({"root": 3}, "E410"), ({"size": 0}, "E410")):
        with pytest.raises(UserError) as error:
            hccc.synthesize(SMALL, "allgather", **wrong)  # type: ignore[arg-type]
        assert error.value.problem.code == code
    with pytest.raises(UserError) as error:
        hccc.synthesize(SMALL, "allgathr")
    assert error.value.problem.code == "E465"


@pytest.mark.slow
def test_cegis_comes_near_the_bound_of_an_allreduce() -> None:
    """H20, 4+8: its schedules are balanced; those of fewest steps alone came to half of it."""
    cluster: Topology = hccc.load_cluster(CLUSTERS / "heteccl-h20-4+8.cluster")
    found = synthesize(cluster, OpType.ALLREDUCE, 1 << 30, method="cegis", time_limit=60)
    verify(found.program)
    assert found.share() >= 0.9


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("op", [OpType.ALLGATHER, OpType.REDUCE, OpType.ALLREDUCE])
def test_solvers_say_what_they_were_asked(op: OpType, method: str) -> None:
    found = synthesize(SMALL, op, SIZE, method=method, time_limit=20)
    one = found.best.searched
    assert isinstance(one, SolvedProgram) and one.method == method
    assert found.best.name == one.name and one.steps >= one.bound
    assert f"{method}, 1 chunk a rank" in [other.name for other in found.weighed]
    plain, explained = found.text().splitlines(), found.text(explain=True).splitlines()
    assert f"  schedule     {one.steps} steps, {one.bound} at least; " in explained[len(plain)]
    assert len(explained) == len(plain) + 1 + 2 * len(one.trace)
