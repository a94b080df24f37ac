"""hccc.torch: every collective, synchronous and not, beside gloo's in the same processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.marks import some
from tests.torch.job import needs_torch, run
from tests.torch.libraries import environment

pytestmark = [pytest.mark.slow, needs_torch]
COLLECTIVES = (
    *("all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter"),
    *("reduce_scatter", "all_to_all", "all_to_all_uneven", "messages", "coalesced", "objects"),
    *("groups", "computing", "premultiplied"),
)
MORE = (
    *(
        "all_reduce_types",
        "premultiplied_more",
        "layouts",
        "futures",
        "registered",
        "profiled",
        "functional",
        "distributed_tensors",
        "sharded_models",
    ),
    *("monitored", "sparse", "refused", "allocated", "split", "two_backends", "beside_nccl"),
    *("apart", "threads"),
)
ALL = (*COLLECTIVES, *MORE)


@pytest.mark.parametrize(("n", "cases"), some([(3, ALL), (2, ALL), (4, COLLECTIVES)], 3))
def test_collectives_are_as_gloos(n: int, cases: tuple[str, ...], tmp_path: Path) -> None:
    run(n, "cases", cases, environment(n, tmp_path))


def test_collectives_without_a_compiler_are_as_gloos(tmp_path: Path) -> None:
    variables = {**environment(2, tmp_path), "HCCC_TEST_PYTHON": "1", "HCCC_STANDARD": "1"}
    run(2, "cases", (*COLLECTIVES, "layouts", "refused"), variables)


def test_kernels_are_loaded_for_a_group_or_all(tmp_path: Path) -> None:
    place = environment(2, tmp_path)["HCCC_LIBRARIES"]
    run(2, "cases", ("loaded",), {"HCCC_TEST_KERNELS": place, "HCCC_STANDARD": "0"})


def test_pytorchs_own_checks_of_calls_work(tmp_path: Path) -> None:
    variables = {**environment(2, tmp_path), "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    run(2, "cases", ("detail",), variables)
