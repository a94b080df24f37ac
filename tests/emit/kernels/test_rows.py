"""Programs as rows of tables: the same results as in line, in text that grows slowly."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.emit.kernels import rows, source, view
from hccc.emit.kernels.function import LookupTables
from hccc.emit.kernels.sharing import PlanBlocks
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.runtime.measure.patterns import Pattern
from tests.emit import launch, plans
from tests.emit.kernels.test_compile import CASES, library, run
from tests.emit.plans import written
from tests.marks import slow

MORE: dict[str, Plan] = {
    "staged_mesh": plans.compiled(plans.hierarchical_mesh(2, 3), transport=Transport.STAGED),
    "many_chunks": plans.compiled(plans.hierarchical_mesh(3, 2), allocator="connection"),
    "alltoall_of_nodes": plans.compiled(plans.alltoall(6)),
}
PLANS = CASES | MORE
QUICK = ("ring", "many_chunks")  # one flag a primitive, and several


@pytest.fixture
def in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every program into rows."""
    monkeypatch.setattr(view, "MOST_CALLS", 0)


@pytest.mark.usefixtures("in_rows")
@pytest.mark.parametrize("case", [c if c in QUICK else slow(c) for c in PLANS])
def test_rows_compute_the_collective(case: str, tmp_path: Path, cxx: str) -> None:
    plan = PLANS[case]
    dtype = "int32" if plan.collective.reduces else "uint32"
    world = launch.PlanRanks(library(plan, tmp_path / "k", cxx, dtype, "sum"), plan)
    assert "kind[i]" in (tmp_path / "k" / f"{plan.name}_cpu.cpp").read_text()
    for seed, count in enumerate((0, 1, 7, 1000, 4099)):
        for in_place in (False, True):
            p = Pattern(plan.collective, dtype, "sum", count, seed)
            assert world.wrong(p, in_place=in_place, micro_batch_bytes=256) == 0
            assert world.wrong(p, in_place=in_place, micro_batch_bytes=256, window=1) == 0


def test_few_calls_stay_in_line() -> None:
    plan = plans.compiled(plans.hierarchical_mesh(4, 8), level="none")
    assert "kind[i]" not in source.cpu(plan)


@pytest.mark.usefixtures("in_rows")
def test_text_grows_with_the_rows_that_differ() -> None:
    small, large = (source.cuda(plans.compiled(plans.ring_allreduce(n))) for n in (8, 32))
    assert calls(small) == calls(large)
    assert len(large) < 1.5 * len(small)  # all ranks of a ring have the same rows


def calls(text: str) -> int:
    """Returns the number of primitives that are written out."""
    return text.count("hccc_prim<")


@pytest.mark.usefixtures("in_rows")
def test_a_rank_with_fewer_blocks_has_none_of_the_others() -> None:
    plan = plans.compiled(plans.broadcast(4))
    assert len(set(plan.n_tb.tolist())) > 1
    text = source.cpu(plan)
    assert "default:" in text
    ends, first = np.cumsum(plan.n_tb), np.cumsum(plan.n_tb) - plan.n_tb
    for rank, tb in product(range(4), range(int(plan.n_tb.max()))):
        block = int(first[rank]) + tb
        there = block < ends[rank]
        rows = int(plan.tb_ptr[block + 1] - plan.tb_ptr[block]) if there else 0
        assert len(kinds(text, rank, tb)) == rows


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=1, max_size=4))
def test_offsets_are_those_of_each_thread_block(drawn: list[list[int]]) -> None:
    """A part of all ranks and a part of each, as C: evaluated, their sum is the offset."""
    at, plan = np.array(drawn, np.int64).T, PLANS["ring"]
    tables = LookupTables()
    offsets = rows.Offsets(plan, PlanBlocks.of_plan(plan), (4,), tables)
    lines, text = offsets._offset("row0", at)
    entries = {name: lookup.table.tolist() for name, lookup in tables.by_key.values()}
    for rank, tb in product(range(4), range(len(drawn))):
        known = {**entries, "rank": rank, "tb": tb}
        for name, value in re.findall(r"const int (\w+) = (.*?);", "\n".join(lines)):
            known[name] = eval(value.replace("/", "//"), known)
        assert eval(text.replace("/", "//"), known) == at[rank, tb]


def kinds(text: str, rank: int, tb: int) -> list[int]:
    """Evaluates the C that finds a thread block's rows; returns their kinds."""
    known: dict[str, Any] = {"rank": rank, "tb": tb}
    for name, table in re.findall(r"static const \w+ (\w+)[\[\]\d]+ = (\{.*?\});", text, re.DOTALL):
        known[name] = eval(table.replace("{", "[").replace("}", "]"))
    for name, value in re.findall(r"const int (kind\w*) = (.*?);", text):
        known[name] = eval(value.replace("/", "//"), known)
    (table, at), *_ = re.findall(r"const auto\* kind = (\w+) \+ (.*?);", text)
    tail: list[int] = known[table][eval(at.replace("/", "//"), known) :]
    return tail[: tail.index(-1)]


@pytest.mark.slow
@pytest.mark.usefixtures("in_rows")
@pytest.mark.parametrize("case", ["hierarchical", slow("staged_mesh"), slow("alltoall")])
def test_nvcc_compiles_rows(case: str, tmp_path: Path, nvcc: str) -> None:
    place = written(PLANS[case], tmp_path / "k")
    flags = ["-std=c++17", "-O3", "-arch=sm_90", "-cubin", "-Xptxas", "-v"]
    said = run(nvcc, *flags, "-o", "k.cubin", f"{PLANS[case].name}.cu", cwd=place)
    bodies = re.findall(r"hccc_execute_body.*?(\d+) bytes spill stores", said, re.DOTALL)
    assert bodies and max(map(int, bodies)) <= 64  # around looks for late ranks
