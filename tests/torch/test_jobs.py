"""hccc.torch: groups whose ranks have the libraries of several vendors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hccc.ir.job_table import dumps
from tests.torch.job import needs_torch, run
from tests.vendor.conftest import installed

pytestmark = [pytest.mark.slow, needs_torch]
CASES = (
    *("all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter", "reduce_scatter"),
    *("all_to_all", "groups", "training", "premultiplied", "refused"),
)


@pytest.mark.parametrize("python", [False, True], ids=["compiled", "python"])
def test_jobs_are_as_gloo(python: bool) -> None:
    variables = {"HCCC_TEST_MPICH": installed("mpich"), "HCCC_STANDARD": "1"}
    if python:
        run(3, "jobs", CASES, {**variables, "HCCC_TEST_PYTHON": "1"})
    else:
        run(3, "jobs", (*CASES, "futures", "profiled"), variables)


@pytest.mark.parametrize("python", [False, True], ids=["compiled", "python"])
def test_tables_are_loaded_as_jobs(python: bool, tmp_path: Path) -> None:
    """One by a call, the others by HCCC_LIBRARIES, each rank with the library of HCCC_VENDOR."""
    from tests.torch.jobs import jobs

    tables = {job.collective.op.value: tmp_path / f"{job.name}.table" for job in jobs()}
    for job, file in zip(jobs(), tables.values(), strict=True):
        file.write_text(dumps(job, [(0, 1), (1 << 16, 2)]))
    variables = {
        "HCCC_TEST_TABLE": str(tables.pop("Allreduce")),
        "HCCC_LIBRARIES": os.pathsep.join(map(str, tables.values())),
        "HCCC_VENDOR": "mpich",
        "HCCC_VENDOR_LIBRARY": installed("mpich"),
        "HCCC_STANDARD": "1",
    }
    if python:
        run(3, "jobs", ("all_reduce", "broadcast"), {**variables, "HCCC_TEST_PYTHON": "1"})
    else:
        run(3, "jobs", ("all_reduce", "broadcast", "premultiplied", "profiled"), variables)
