"""hccc.torch: PyTorch's own tests of backends: what passes with gloo passes with hccc."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.torch.job import needs_torch, outputs
from tests.torch.libraries import environment

pytestmark = [pytest.mark.slow, needs_torch]
# PyTorch calls every backend of others `custom` there, and the test expects the backend's name.
OF_PYTORCH = {"test_ddp_logging_data_cpu"}


def _results(backend: str, folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Runs PyTorch's tests with a backend in two ranks: the outcome of each."""
    words = ["-m", "tests.torch.suite", backend, str(folder)]
    found = outputs(2, words, variables, limit=600)
    assert [code for code, _ in found] == [0, 0], found
    lines = [line.split() for line in found[0][1].splitlines() if line.startswith("RESULT ")]
    return {name: outcome for _, outcome, name, *_ in lines}


@pytest.mark.skipif(not importlib.util.find_spec("expecttest"), reason="needs expecttest")
def test_what_passes_with_gloo_passes(tmp_path: Path) -> None:
    ours = _results("hccc", tmp_path / "hccc", environment(2, tmp_path))
    gloos = _results("gloo", tmp_path / "gloo", {})
    for outcome in ("ok", "failed", "skipped"):
        counts = [sum(one == outcome for one in found.values()) for found in (ours, gloos)]
        print(f"{outcome}: hccc {counts[0]}, gloo {counts[1]}")
    differ = [(name, ours[name], gloos[name]) for name in ours if ours[name] != gloos[name]]
    print("\n".join(f"{name}: hccc {a}, gloo {b}" for name, a, b in differ))
    worse = {name for name, a, b in differ if b == "ok" and a != "ok"}
    assert worse <= OF_PYTORCH
    assert sum(one == "ok" for one in ours.values()) > 90
