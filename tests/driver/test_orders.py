"""orders: `--deterministic` refuses an order that depends on size or rank, and names two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hccc
from hccc.base.diagnostics import Problem, Source, UserError
from hccc.driver.inputs import PlanInput
from hccc.driver.load import load
from hccc.driver.options import Options
from hccc.driver.orders import declared_orders, require_one_order
from hccc.ir import catalogue_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.choices import Accumulate, Bits
from hccc.ir.collective import Collective, OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Guard
from hccc.ir.program import Program
from hccc.passes.fuse import fuse
from tests.emit.catalogues import both
from tests.passes.textbook import (
    RRC,
    Row,
    lowered,
    planned,
    program,
    ring_allreduce,
    ring_reducescatter,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
RHD, TREE = EXAMPLES / "rhd_allreduce.rccl", EXAMPLES / "binomial_reduce.rccl"


def problem(plans: Plan | Catalogue) -> Problem:
    """Returns the error of a library that has more than one order."""
    with pytest.raises(UserError) as caught:
        require_one_order(plans if isinstance(plans, Catalogue) else Catalogue.of(plans))
    found = caught.value.problem
    assert found.code == "E322" and found.help
    return found


def at_one_rank(chunks: int) -> Program:
    """Makes an AllReduce of three ranks: rank 0 adds all chunks, and sends them to the others."""
    rows: list[Row] = []
    for chunk in range(chunks):
        rows += [(1, 0, 0, chunk, RRC), (2, 0, 1, chunk, RRC)]
        rows += [(0, 1, 2, chunk, 0), (0, 2, 2, chunk, 0)]
    return program(OpType.ALLREDUCE, 3, chunks, rows)


def test_a_switch_fixes_no_order() -> None:
    """Nothing is said of the order of its sums but that there is none."""
    plan = replace(planned(fuse(lowered(at_one_rank(1)), "full")), multicast=Bits.ANY)
    found = problem(plan)
    assert "other bits each time" in found.message and found.help == "leave out --bits any"
    declared = declared_orders(Catalogue.of(plan))
    assert declared and declared.lines(0, whole=True) == []
    assert declared.facts(whole=True)["sums"] == {}
    same = declared_orders(Catalogue.of(replace(plan, multicast=Bits.SAME)))
    assert same and same.lines(0, whole=True) == ["chunk 0 at every rank: r0 + r1 + r2"]


def merged(chunks: int = 1) -> Plan:
    return planned(fuse(lowered(at_one_rank(chunks)), "reduce"))


def several(*plans: Plan) -> Catalogue:
    """Makes a catalogue of two plans."""
    first, second = (replace(plan, name=f"both_{k + 1}") for k, plan in enumerate(plans))
    return Catalogue("both", (first, second), both().ranges)


def test_chunks_of_a_block() -> None:
    """A ring sums each chunk from another rank on; a ReduceScatter's chunks are blocks."""
    found = problem(planned(lowered(ring_allreduce(3))))
    assert "in which chunk an element is: an element is summed" in found.message
    assert "as r2 + (r1 + r0) in chunk 0, as r0 + (r2 + r1) in chunk 1" in found.message
    require_one_order(Catalogue.of(planned(lowered(ring_reducescatter(3)))))
    require_one_order(Catalogue.of(merged(4)))


def test_ranks_that_get_an_element() -> None:
    """Two ranks that add by themselves, in one order or in two."""
    begin: list[Row] = [(1, 0, 0, 0, RRC), (0, 1, 1, 0, 0), (3, 1, 2, 0, RRC), (2, 1, 3, 0, RRC)]
    alike: list[Row] = [(3, 0, 4, 0, RRC), (2, 0, 5, 0, RRC)]
    other: list[Row] = [(3, 2, 4, 0, RRC), (2, 0, 5, 0, RRC)]
    end: list[Row] = [(0, 2, 6, 0, 0), (0, 3, 6, 0, 0)]
    even, odd = (
        planned(lowered(program(OpType.ALLREDUCE, 4, 1, [*begin, *rows, *end])))
        for rows in (alike, other)
    )
    require_one_order(Catalogue.of(even))
    message = problem(odd).message
    assert "two ranks get sums of two orders: chunk 0 is summed as" in message
    assert "as (r0 + r1) + (r2 + r3) at rank 0, as ((r0 + r1) + r3) + r2 at rank 1" in message


def test_plans_of_a_catalogue() -> None:
    """Which plan serves a call depends on its size."""
    require_one_order(several(merged(), merged(2)))
    plain = planned(lowered(at_one_rank(1)))
    found = problem(several(merged(), plain))
    assert "as r0 + r1 + r2 by both_1, as (r0 + r1) + r2 by both_2" in found.message
    assert found.help and "--accumulate same" in found.help
    found = problem(several(merged(), turned(merged())))
    assert "as r0 + r1 + r2 by both_1, as r2 + r1 + r0 by both_2" in found.message
    assert found.help and "--plans 1" in found.help


def turned(plan: Plan) -> Plan:
    """Returns a plan whose first primitive, which adds three values, adds them from the last on."""
    at, rank = slice(plan.src.ptr[0], plan.src.ptr[1]), plan.src.rank.copy()
    assert len(rank[at]) == 3
    rank[at] = rank[at][::-1]
    return replace(plan, src=replace(plan.src, rank=rank))


def test_kinds_of_calls() -> None:
    """The first primitive twice, for either kind of call, and turned in one."""
    plan, other = merged(), turned(merged())
    rows, once = np.array([0, *range(len(plan))]), np.arange(1, len(plan) + 2)
    guard = plan.guard[rows]
    guard[:2] = Guard.IN_PLACE, Guard.OUT_OF_PLACE
    src = plan.src.take(rows)
    rank = src.rank.copy()
    rank[:3] = other.src.rank[:3]
    once[:] = np.where(once > 1, once - 1, once)
    ptr = {name: np.append(0, getattr(plan, name).ptr) for name in ("waits", "posts")}
    both_kinds = replace(
        plan,
        **{name: getattr(plan, name)[rows] for name in ("chunk", "sub", "line", "final")},
        tb_ptr=np.where(plan.tb_ptr > 0, plan.tb_ptr + 1, 0),
        guard=guard,
        src=replace(src, rank=rank),
        dst=plan.dst.take(rows),
        waits=replace(plan.waits, ptr=ptr["waits"]),
        posts=replace(plan.posts, ptr=ptr["posts"]),
    )
    message = problem(both_kinds).message
    assert "as r0 + r1 + r2 out of place, as r2 + r1 + r0 in place" in message
    declared = declared_orders(Catalogue.of(both_kinds))
    assert declared and declared.lines(0, whole=True) == [
        "chunk 0 at every rank, out of place: r0 + r1 + r2",
        "chunk 0 at every rank, in place: r2 + r1 + r0",
    ]


def test_nothing_is_asked_where_nothing_is_summed() -> None:
    compiled = hccc.compile(EXAMPLES / "ring_allgather.rccl", Options(deterministic=True))
    assert declared_orders(compiled.catalogue) is None


def test_a_custom_collective_does_not_say() -> None:
    plan = merged()
    custom = replace(plan, collective=Collective(OpType.CUSTOM, 3, 3))
    assert declared_orders(Catalogue.of(custom)) is None
    assert "does not say where its sums end" in problem(custom).message


def test_few_lines_of_many() -> None:
    declared = declared_orders(Catalogue.of(planned(lowered(ring_allreduce(20)))))
    assert declared
    short, whole = declared.lines(0, whole=False), declared.lines(0, whole=True)
    assert len(short) == 5 and short[-1] == "and 16 more: --orders prints all"
    assert all(len(line) < 110 for line in short)
    assert len(whole) == 20 and whole[0].endswith("(r1 + r0" + ")" * 18)
    facts = declared.facts(whole=True)
    assert facts["orders"] == {"textbook": 20} and facts["one_order"] is False


def test_a_plan_that_says_so_must_be_so() -> None:
    """Whoever wrote the file."""
    plan = hccc.compile(TREE, Options(deterministic=True)).plan
    assert load(PlanInput(Source("x.json", catalogue_json.dumps(Catalogue.of(plan))))).proofs
    ring = replace(planned(lowered(ring_allreduce(3))), provenance=plan.provenance)
    with pytest.raises(UserError, match="E322"):
        load(PlanInput(Source("x.json", catalogue_json.dumps(Catalogue.of(ring)))))


@pytest.mark.slow
def test_catalogues_of_a_cluster() -> None:
    """A library that is chosen for sizes is held to one order, too."""
    tree = Options(sizes="1K..64M", deterministic=True, accumulate=Accumulate.SAME)
    made = hccc.compile([RHD, RHD], tree, cluster=EXAMPLES / "clusters" / "dgx-h100.cluster")
    assert declared_orders(made.catalogue)
    ring = EXAMPLES / "ring_allreduce.rccl"
    with pytest.raises(UserError, match="E322"):
        hccc.compile([RHD, ring], tree, cluster=EXAMPLES / "clusters" / "dgx-h100.cluster")
