"""Calls by the name of a program's own reduction, which a loaded library has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.runtime.communicator import Communicator, CommunicatorError
from tests.communicator.world import run
from tests.emit import plans

ODDS = "odds: a + b + a * b"


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Emits an AllReduce of two ranks with reductions of its own."""
    plan = replace(plans.compiled(plans.mesh_allreduce(2)), reductions=(ODDS, "less: min(a, b)"))
    return plans.written(plan, tmp_path_factory.mktemp("own") / "k")


def by_name(c: Communicator, place: Path) -> tuple[bool, list[str]]:
    told = []
    x = np.arange(1000, dtype=np.int32) * (c.rank + 3)
    try:
        c.all_reduce(x.copy(), op="odds")
    except UserError as error:
        told.append(error.problem.message)
    c.load(place, ["int32"], ["odds", "sum"])
    odds, added = x.copy(), x.copy()
    c.all_reduce(odds, op="odds")
    c.all_reduce(added)
    a, b = (np.arange(1000, dtype=np.int32) * k for k in (3, 4))
    right = np.array_equal(odds, a + b + a * b) and np.array_equal(added, a + b)
    for array, op in ((x, "less"), (x.astype(np.float64), "odds"), (x, "evens")):
        try:
            c.all_reduce(array, op=op)
        except (UserError, CommunicatorError) as error:
            told.append(str(error))
    return right, told


@pytest.mark.slow
def test_a_call_names_a_programs_own_reduction(kernels: Path) -> None:
    for right, told in run(2, by_name, kernels):
        assert right and len(told) == 4
        assert "unknown reduction `odds`" in told[0]  # before a library has it
        assert "is not built for int32, less" in told[1]
        assert "is not built for float64, odds" in told[2]
        assert "unknown reduction `evens`" in told[3]


def mixed(c: Communicator, place: Path) -> str:
    c.load(place, ["int32"], ["odds", "sum"])
    try:
        c.all_reduce(np.ones(8, np.int32), op="odds" if c.rank else "sum")
    except CommunicatorError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_ranks_must_name_the_same(kernels: Path) -> None:
    assert all("odds" in told and "sum" in told for told in run(2, mixed, kernels))
