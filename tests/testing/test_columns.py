"""Every field of the plan schema is bound: a change that no proof refuses does no harm.

For each field, mutants of a few plans: the codes that refuse them are those of the table here, and
what is accepted gives the collective's result on counts that do not divide. A new field of the
schema fails here until somebody says what binds it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.emit.kernels import source
from hccc.emit.targets import TARGETS
from hccc.ir import plan_json
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.proofs.prove import check_plan
from hccc.testing.clusters import cluster
from hccc.testing.judge import first_fault
from hccc.testing.mutate_plan import Path as Field
from hccc.testing.mutate_plan import PlanData, leaves, mutate_field, text

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BASES = {  # examples, and how they are compiled: every buffer, guard and kind of operand
    "ring_allreduce": Options(fuse="none", channels=2),
    "ring_allgather": Options(transport=Transport.STAGED),
    "direct_alltoall": Options(),
    "direct_gather": Options(),
    "sendrecv": Options(transport=Transport.STAGED),
    "ring_allreduce on nodes": Options(network_lowering="put", fuse="none"),
    "ring_allgather on nodes": Options(network_lowering="slots"),
    "a demand": Options(),
    "direct_allreduce": Options(protocol="ll"),
    "direct_scatter": Options(protocol="ll"),
    "ring_allreduce switched": Options(transport=Transport.MULTICAST, bits="any"),
    "ring_allgather switched": Options(transport=Transport.MULTICAST),
}
SWITCH = "define node1 = 4\ndefine device = H100"
DEMAND = """ResCCLAlgo(nRanks=4, OpType="custom", Demand="0,1 -> 2; sum 0-3 -> 0,3", nChunks=4):
    for j in range(2):
        transfer(j, 2, 0, j, recv)
        for r in range(1, 4):
            transfer(r, 0, 0, 2 + j, rrc)
        transfer(0, 3, 1, 2 + j, recv)
"""
MUTANTS = 12  # of a field of each plan
RUN = 3  # accepted mutants that are run
HEADER = {"E310"}
SCHEMA = {"E407"}
ROWS = {"E311", *SCHEMA}
OPERANDS = {
    "E308",
    "E302",
    "E303",
    "E304",
    "E306",
    "E307",
    "E311",
    "E312",
    "E314",
    "E315",
    "E316",
    "E318",
    *SCHEMA,
}
FLAGS = {"E301", "E302", "E303", "E304", "E313", "E314", *ROWS}
QUEUES = {"E308", "E302", "E303", "E304", "E306", "E312", "E313", "E314", "E316", *ROWS}
ORDER = {"E308", "E302", "E303", "E304", "E306", "E307", "E312", "E313", "E314", "E318", *ROWS}
# What may refuse a change of each field.
BOUND: dict[str, set[str]] = {
    "hccc_plan": SCHEMA,
    "collective.op": {*HEADER, *OPERANDS},
    "collective.n_ranks": {*HEADER, *ROWS},
    "collective.n_chunks": {*HEADER, *OPERANDS},
    "collective.root": {*HEADER, *OPERANDS},
    "collective.demand": {*HEADER, *OPERANDS},
    "transport": {*HEADER, *OPERANDS},
    "queue_slots": {*HEADER, *SCHEMA},
    "accumulate": HEADER,
    "reductions": {"E330", *HEADER},
    "protocol": {"E313", *HEADER, *SCHEMA},
    "max_bytes": {*HEADER, *SCHEMA},
    "greets": {"E308", *HEADER, *SCHEMA},
    "multicast": {"E312", "E313", *HEADER},
    "memory_domain": {*HEADER, "E304", "E311", "E318", *SCHEMA},
    "n_tb": ORDER,
    "n_flags": FLAGS,
    "scratch_slots": OPERANDS,
    "stage_slots": OPERANDS,
    "tb_ptr": ORDER,
    "chunk": OPERANDS,
    "final": {"E306", "E307", "E318", *ROWS},
    "guard": OPERANDS,
    "src.ptr": OPERANDS,
    "src.rank": OPERANDS,
    "src.buffer": OPERANDS,
    "src.slot": OPERANDS,
    "dst.ptr": OPERANDS,
    "dst.rank": OPERANDS,
    "dst.buffer": OPERANDS,
    "dst.slot": OPERANDS,
    "waits.ptr": FLAGS,
    "waits.index": FLAGS,
    "posts.ptr": FLAGS,
    "posts.rank": FLAGS,
    "posts.flag": FLAGS,
    "queues.src": QUEUES,
    "queues.dst": QUEUES,
    "queues.length": QUEUES,
    "queues.data_flag": QUEUES,
    "queues.credit_flag": QUEUES,
}
# Only named or said in comments: the kernel's text stays, but for these.
SAID = {
    "name",
    "source",
    "sub",
    "line",
    "provenance.hccc",
    "provenance.options",
    "provenance.scheduler",
    "provenance.cluster",
}
# How a call is cut or launched: any value in range is as right as another.
LAUNCH = {
    "channels",
    "warps",
    "gpus_per_node",
    "nics_per_node",
    "max_window",
    "keeps_input",
    "grain",
    "window",
    "in_place",
    "out_of_place",
}


@cache
def base(name: str) -> PlanData:
    file, *nodes = name.split(maxsplit=1)
    if name == "a demand":
        small = DEMAND
    else:
        small = re.sub(r"=8\b", "=4", (EXAMPLES / f"{file}.rccl").read_text(encoding="utf-8"))
        small = re.sub(r"PerNode=4", "PerNode=2", small) if nodes == ["on nodes"] else small
    switch = cluster(SWITCH) if name.endswith("switched") else None
    plan = compile_text(Source(name, small), replace(BASES[name], tune="off"), switch).plan
    data: PlanData = json.loads(plan_json.dumps(plan))
    return data


def refusal(data: PlanData) -> tuple[Plan | None, str]:
    try:
        plan = plan_json.loads(text(data))
        check_plan(plan)
    except UserError as error:
        return None, error.problem.code
    return plan, ""


def kernel(plan: Plan) -> str:
    """Returns the CPU kernel without comments, and without the plan's name."""
    cpu = next(t for t in TARGETS if t.name == "cpu")
    bare = re.sub(r"//.*", "", source.text(plan, cpu))
    return re.sub(rf"\b{plan.name}_", "NAME_", bare)


def tried(field: Field) -> tuple[Counter[str], list[tuple[str, Plan]]]:
    """Returns the codes that refuse mutants of a field, and (base, plan) of accepted mutants."""
    rng, codes, accepted = Random(".".join(field)), Counter[str](), []

    def choose(n: int) -> int:
        return rng.randrange(n + 1) if n > 0 else 0

    for name in BASES:
        for _ in range(MUTANTS):
            data = mutate_field(base(name), field, choose)
            if data is None or data == base(name):
                continue
            plan, code = refusal(data)
            codes[code] += 1
            if plan is not None:
                accepted.append((name, plan))
    for _, plan in rng.sample(accepted, min(len(accepted), RUN * len(BASES))):
        assert first_fault(plan, choose, 2) is None
    return codes, accepted


def test_the_tables_have_every_field_of_the_schema() -> None:
    fields = [".".join(field) for field in leaves()]
    assert sorted(fields) == sorted([*BOUND, *SAID, *LAUNCH])


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", sorted(BOUND))
def test_a_change_is_refused_or_harmless(name: str) -> None:
    codes, _ = tried(tuple(name.split(".")))
    refused = set(codes) - {""}
    assert refused and refused <= BOUND[name], codes


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAID))
def test_a_change_of_words_leaves_the_kernel_as_it_is(name: str) -> None:
    codes, accepted = tried(tuple(name.split(".")))
    assert set(codes) - {""} <= {*HEADER, *ROWS, *SCHEMA}
    assert accepted
    for original, plan in accepted[::5]:
        assert kernel(plan) == kernel(plan_json.loads(text(base(original))))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LAUNCH))
def test_a_change_of_the_launch_is_in_range_or_refused(name: str) -> None:
    codes, accepted = tried((name,))
    assert set(codes) - {""} <= {*HEADER, *SCHEMA, "E303"}
    assert accepted


def test_a_chunk_said_to_be_another_is_seen_when_it_runs() -> None:
    """The proof refuses real faults: these kernels move another length than the value has."""
    rng = Random(3)

    def choose(n: int) -> int:
        return rng.randrange(n + 1) if n > 0 else 0

    plan = plan_json.loads(text(base("ring_allreduce")))
    chunk = plan.chunk.copy()
    chunk[chunk == 3] = 2
    found = first_fault(replace(plan, chunk=chunk), choose, 40)
    assert found is not None and ("Overrun" in found or "Poison" in found or "ends with" in found)
    chunk = plan.chunk.copy()
    chunk[chunk == 0] = 3
    found = first_fault(replace(plan, chunk=chunk), choose, 40)
    assert found is not None
