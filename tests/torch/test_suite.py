"""hccc.torch: PyTorch's own tests of backends: what passes with gloo passes with hccc."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.marks import LONG, some
from tests.torch.job import needs_torch, outputs
from tests.torch.libraries import environment

pytestmark = [
    pytest.mark.slow,
    needs_torch,
    pytest.mark.skipif(not importlib.util.find_spec("expecttest"), reason="needs expecttest"),
]
# What passes with gloo of PyTorch 2.13, each with the ranks that it needs, where these are not 2.
LIST = Path(__file__).parent / "passes_with_gloo.txt"
# PyTorch calls every backend of others `custom` there, and the test expects the backend's name.
OF_PYTORCH = {"test_ddp_logging_data_cpu"}


def _passes_with_gloo(n: int) -> list[str]:
    lines = (line.split() for line in LIST.read_text(encoding="utf-8").splitlines())
    return [name for name, *needs in lines if int((needs or ["2"])[0]) <= n]


def _results(
    backend: str, n: int, folder: Path, variables: Mapping[str, str], names: Sequence[str] = ()
) -> dict[str, str]:
    """Runs PyTorch's tests with a backend, or some of them: the outcome of each."""
    words = ["-m", "tests.torch.suite", backend, str(folder), *names]
    found = outputs(n, words, variables, limit=900)
    assert [code for code, _ in found] == [0] * n, found
    lines = [line.split(maxsplit=3) for line in found[0][1].splitlines() if "RESULT " in line]
    return {name: " ".join([outcome, *why]) for _, outcome, name, *why in lines}


@pytest.mark.parametrize(("n", "every"), [(2, 4), (4, 8)])
def test_what_passes_with_gloo_passes(n: int, every: int, tmp_path: Path) -> None:
    wanted = some(_passes_with_gloo(n), every)
    ours = _results("hccc", n, tmp_path / "hccc", environment(n, tmp_path), wanted)
    assert list(ours) == wanted
    worse = {name: found for name, found in ours.items() if found != "ok"}
    print(f"{n} ranks: {len(wanted)} pass with gloo, {len(ours) - len(worse)} of them with hccc")
    assert set(worse) <= OF_PYTORCH, worse


@pytest.mark.skipif(LONG == 1, reason="HCCC_LONG runs it")
@pytest.mark.parametrize("n", [2, 4])
def test_all_with_both(n: int, tmp_path: Path) -> None:
    """Runs all tests with both backends, and holds the list to what passes with gloo."""
    ours = _results("hccc", n, tmp_path / "hccc", environment(n, tmp_path))
    gloos = _results("gloo", n, tmp_path / "gloo", {})
    assert set(ours) == set(gloos)
    for outcome in ("ok", "failed", "skipped"):
        counts = [sum(one.startswith(outcome) for one in found.values()) for found in (ours, gloos)]
        print(f"{n} ranks, {outcome}: hccc {counts[0]}, gloo {counts[1]}")
    for name, found in ours.items():
        if found != gloos[name]:
            print(f"{name}: hccc {found}; gloo {gloos[name]}")
    passes = {name for name, found in gloos.items() if found == "ok"}
    assert passes == set(_passes_with_gloo(n))
    assert {name for name in passes if ours[name] != "ok"} <= OF_PYTORCH
