"""hccc.torch: groups whose ranks have the libraries of several vendors."""

from __future__ import annotations

import pytest

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
