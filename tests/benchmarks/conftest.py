"""The GPU benchmark's modules, which are a script's and belong to no package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"


def module(name: str) -> ModuleType:
    """A module of `benchmarks/gpu`."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return importlib.import_module(name)


@pytest.fixture(scope="session")
def interpreter() -> ModuleType:
    """`benchmarks/gpu/interpreter.py`."""
    return module("interpreter")


@pytest.fixture(scope="session")
def script() -> ModuleType:
    """`benchmarks/gpu/run.py`."""
    return module("run")


@pytest.fixture(scope="session")
def cases() -> ModuleType:
    """`benchmarks/gpu/cases.py`."""
    return module("cases")
