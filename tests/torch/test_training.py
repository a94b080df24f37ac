"""hccc.torch: models trained in parallel have gloo's losses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch.job import needs_torch, run
from tests.torch.libraries import environment

pytestmark = [pytest.mark.slow, needs_torch]


@pytest.mark.parametrize("n", [2, 4])
def test_losses_are_gloos(n: int, tmp_path: Path) -> None:
    cases = ("ddp", "fsdp2", "tensor_parallel")
    run(n, "training", cases, environment(n, tmp_path))


def test_pytorchs_own_checks_of_calls_work(tmp_path: Path) -> None:
    variables = {**environment(2, tmp_path), "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    run(2, "training", ("detail",), variables)
