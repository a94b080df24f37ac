"""examples/training and inference: scripts run under torchrun, to gloo's losses and one process's
answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise

import pytest

from tests.marks import some
from tests.torch.job import ROOT, needs_torch

pytestmark = [pytest.mark.slow, needs_torch]
ALL = ("ddp", "fsdp", "tp", "pp")


def _printed(n: int, script: str, *options: str) -> list[list[str]]:
    """Runs an example in n processes; returns the words of each line that it printed."""
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
    searched = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    found = subprocess.run(
        [sys.executable, *words, f"examples/{script}.py", *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, searched))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    return [line.split() for line in found.stdout.splitlines()]


@pytest.mark.parametrize(("n", "ways"), some([(2, ALL), (4, (*ALL, "2d"))], 2))
def test_models_learn_as_with_gloo(n: int, ways: Sequence[str]) -> None:
    lines = _printed(n, "training/train", "--steps", "20", "--beside", "gloo", "--parallel", *ways)
    heads = [k for k, line in enumerate(lines) if line[1:] == ["hccc", "gloo"]]
    assert [lines[k][0] for k in heads] == list(ways)
    for begin, end in pairwise([*heads, len(lines)]):
        *steps, times = lines[begin + 1 : end]
        assert times[0] == "ms"
        losses = [(float(ours), float(gloos)) for _, ours, gloos in steps]
        assert len(losses) == 5
        assert losses[-1][0] < losses[0][0] / 2  # it learns
        # Two values have one sum; of more the orders of hccc and gloo differ.
        off = 0 if n == 2 else 1e-3
        for ours, gloos in losses:
            assert ours == pytest.approx(gloos, rel=off, abs=0)


def test_a_balanced_batch_has_the_losses_of_the_whole() -> None:
    lines = _printed(2, "training/train", "--steps", "6", "--batch", "24", "--slow", "1", "4")
    shares, head, *steps, times = lines
    assert shares[0] == "shares"
    first, second = map(int, shares[1:])
    assert first + second == 48
    assert first > second  # the second computes everything four times
    assert head == ["ddp", "hccc", "balanced"]
    assert times[0] == "ms"
    for _, equal, balanced in steps:
        assert float(balanced) == pytest.approx(float(equal), rel=1e-3)


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_deepspeed_learns_as_with_gloo() -> None:
    found = {
        backend: [
            line
            for line in _printed(2, "training/zero", "--backend", backend)
            if line[:1] == ["ZeRO"]
        ]
        for backend in ("hccc", "gloo")
    }
    assert [line[1] for line in found["gloo"]] == ["1", "3"]
    for ours, gloos in zip(found["hccc"], found["gloo"], strict=True):
        losses = [[float(word) for word in line[2:]] for line in (ours, gloos)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)
        assert losses[0][-1] < losses[0][0] / 2  # it learns


@pytest.mark.parametrize("n", some([2, 4], 2))
def test_answers_of_two_halves_are_those_of_one_process(n: int) -> None:
    lines = _printed(n, "inference/serve", "--prompts", "3", "--words", "8", "--beside", "gloo")
    told = ["3", "of", "3", "answers", "are", "those", "of", "one", "process"]
    assert [line for line in lines if "answers" in line] == [["hccc:", *told], ["gloo:", *told]]
