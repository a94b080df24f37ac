"""hccc.torch on a GPU: tensors of CUDA in two ranks that share it."""

from __future__ import annotations

import signal
from collections.abc import Mapping

import pytest

from tests.torch.job import ROOT, needs_torch, outputs, run
from tests.torch.test_devices import CASES

pytestmark = [pytest.mark.slow, needs_torch]
DEVICE = {"HCCC_TEST_DEVICE": "cuda"}


def test_tensors(shared_gpu: Mapping[str, str]) -> None:
    run(2, "devices", CASES, {**shared_gpu, **DEVICE})


def test_a_killed_rank_is_named(shared_gpu: Mapping[str, str]) -> None:
    words = ["-m", "tests.torch.job", "devices", "killed"]
    found = outputs(2, words, {**shared_gpu, **DEVICE})
    assert [code for code, _ in found] == [0, -signal.SIGKILL], found
    assert "ok killed" in found[0][1]


def test_training(shared_gpu: Mapping[str, str]) -> None:
    """Trains in four ways, in one of them by gloo too: losses are the same."""
    words = [str(ROOT / "examples" / "training" / "train.py"), "--device", "cuda", "--steps", "6"]
    found = outputs(2, [*words, "--parallel", "ddp", "--beside", "gloo"], shared_gpu)
    assert [code for code, _ in found] == [0, 0], found
    rows = [line.split() for line in found[0][1].splitlines() if line.split()[:1] in (["0"], ["5"])]
    assert [row[1] for row in rows] == [row[2] for row in rows]
    assert float(rows[1][1]) < float(rows[0][1])
    print(found[0][1])
    found = outputs(2, [*words, "--parallel", "fsdp", "tp", "pp"], shared_gpu)
    assert [code for code, _ in found] == [0, 0], found
    print(found[0][1])
