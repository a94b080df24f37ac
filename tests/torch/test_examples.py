"""examples/training: the scripts run under torchrun, to gloo's losses."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.torch.job import ROOT, needs_torch

pytestmark = [pytest.mark.slow, needs_torch]


def test_ddp_learns_as_with_gloo() -> None:
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = ["examples/training/ddp.py", "--steps", "20", "--beside", "gloo"]
    searched = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    found = subprocess.run(
        [sys.executable, *words, *script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, searched))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    head, *lines, times = (line.split() for line in found.stdout.splitlines())
    assert head == ["step", "hccc", "gloo"] and times[0] == "ms"
    losses = [(float(ours), float(gloos)) for _, ours, gloos in lines]
    assert len(losses) == 5
    assert losses[-1][0] < losses[0][0] / 2  # it learns
    for ours, gloos in losses:
        assert ours == pytest.approx(gloos, rel=1e-3)
