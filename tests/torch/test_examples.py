"""examples/training and inference: scripts run under torchrun, to gloo's losses and one process's
answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from tests.marks import LONG, some
from tests.torch.job import ROOT, needs_torch

pytestmark = [pytest.mark.slow, needs_torch]
ALL = ("ddp", "fsdp", "tp", "pp")
PIP = ("-m", "pip", "install", "--quiet", "--no-compile", "--target")
DEEPSPEED = "deepspeed==0.19.8"
BY_GLOO = (4.28849, 3.41982, 2.71847, 1.94192, 1.29846, 0.72502, 0.37020, 0.14466, 0.06103, 0.02332)
OF_DEEPSPEED = ("hjson", "einops", "msgpack", "py-cpuinfo", "pydantic", "tqdm", "ninja")


def _printed(n: int, script: str, *options: str, path: str = "") -> list[list[str]]:
    """Runs an example in n processes; returns the words of each line that it printed. path: of
    modules that it needs."""
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
    searched = [str(ROOT / "src"), path, os.environ.get("PYTHONPATH", "")]
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


@pytest.mark.parametrize(("n", "ways"), [(2, ALL), (4, ("2d",)), *([(4, ALL)] if LONG > 1 else [])])
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


@pytest.fixture
def deepspeed(tmp_path: Path) -> str:
    """Installs DeepSpeed, where it is not there, and returns its folder. Skips the test where it
    cannot be installed: it is built from its source, with the PyTorch that is there."""
    if find_spec("deepspeed"):
        return ""
    for words in (["--no-build-isolation", "--no-deps", DEEPSPEED], OF_DEEPSPEED):
        command = [sys.executable, *PIP, str(tmp_path), *words]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip(f"{words[-1]} cannot be installed here")
    return str(tmp_path)


def test_deepspeed_learns_as_with_gloo(deepspeed: str) -> None:
    """Of both stages of ZeRO. Gloo's losses are kept, as its run takes as long again; with
    HCCC_LONG it runs too."""
    for backend in ("hccc", *(["gloo"] if LONG > 1 else [])):
        lines = _printed(2, "training/zero", "--backend", backend, path=deepspeed)
        found = {line[1]: list(map(float, line[2:])) for line in lines if line[:1] == ["ZeRO"]}
        assert set(found) == {"1", "3"}
        for stage, losses in found.items():
            assert losses == pytest.approx(BY_GLOO, rel=1e-3), f"stage {stage} by {backend}"


@pytest.mark.parametrize("n", some([2, 4], 2))
def test_answers_of_two_halves_are_those_of_one_process(n: int) -> None:
    lines = _printed(n, "inference/serve", "--prompts", "3", "--words", "8", "--beside", "gloo")
    told = ["3", "of", "3", "answers", "are", "those", "of", "one", "process"]
    assert [line for line in lines if "answers" in line] == [["hccc:", *told], ["gloo:", *told]]
