"""examples/training: the script runs under torchrun, to gloo's losses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.marks import some
from tests.torch.job import ROOT, needs_torch

pytestmark = [pytest.mark.slow, needs_torch]
ALL = ("ddp", "fsdp", "tp", "pp")


@pytest.mark.parametrize(("n", "ways"), some([(2, ALL), (4, (*ALL, "2d"))], 2))
def test_models_learn_as_with_gloo(n: int, ways: Sequence[str]) -> None:
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
    script = ["examples/training/train.py", "--steps", "20", "--beside", "gloo", "--parallel"]
    searched = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    found = subprocess.run(
        [sys.executable, *words, *script, *ways],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, searched))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    lines = [line.split() for line in found.stdout.splitlines()]
    heads = [k for k, line in enumerate(lines) if line[1:] == ["hccc", "gloo"]]
    assert [lines[k][0] for k in heads] == list(ways)
    for begin, end in pairwise([*heads, len(lines)]):
        *steps, times = lines[begin + 1 : end]
        assert times[0] == "ms"
        losses = [(float(ours), float(gloos)) for _, ours, gloos in steps]
        assert len(losses) == 5
        assert losses[-1][0] < losses[0][0] / 2  # it learns
        for ours, gloos in losses:
            assert ours == pytest.approx(gloos, rel=1e-3)
