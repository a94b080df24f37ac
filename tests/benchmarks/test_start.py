"""Every benchmark script still finds its imports."""

from __future__ import annotations

import runpy
from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
ALONE = ("start", "cpu_gloo")  # run as files, where there may be no hccc


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("[a-z]*.py")))
def test_it_loads(name: str) -> None:
    if name in ALONE:
        found = runpy.run_path(str(FOLDER / f"{name}.py"), run_name="loaded")["__doc__"]
    else:
        found = import_module(f"benchmarks.{name}").__doc__
    assert found
