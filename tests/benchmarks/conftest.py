"""The GPU benchmark's modules, which are a script's and belong to no package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"


def module_of(folder: Path, name: str) -> ModuleType:
    """Imports a module of a folder of benchmarks."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module(name)


def module(name: str) -> ModuleType:
    """Imports a module of `benchmarks/gpu`."""
    return module_of(FOLDER, name)


@pytest.fixture(scope="session")
def interpreter() -> ModuleType:
    """Imports `benchmarks/gpu/interpreter.py`."""
    return module("interpreter")


@pytest.fixture(scope="session")
def script() -> ModuleType:
    """Imports `benchmarks/gpu/run.py`."""
    return module("run")


@pytest.fixture(scope="session")
def cases() -> ModuleType:
    """Imports `benchmarks/gpu/cases.py`."""
    return module("cases")
