"""Compilers that emit's tests use when they are there."""

from __future__ import annotations

import shutil

import pytest


def _tool(*names: str) -> str:
    found = next((path for name in names if (path := shutil.which(name))), None)
    if not found:
        pytest.skip(f"no {' or '.join(names)}")
    return found


@pytest.fixture(scope="session")
def cxx() -> str:
    """Returns the host compiler."""
    return _tool("g++", "clang++")


@pytest.fixture(scope="session")
def nvcc() -> str:
    """Returns NVIDIA's compiler."""
    return _tool("nvcc")


@pytest.fixture(scope="session")
def hip() -> str:
    """Returns a clang that makes AMD GPU code without ROCm."""
    return _tool("clang++-19", "clang++-20", "clang++-18")


@pytest.fixture(scope="session")
def cmake() -> str:
    """Returns CMake."""
    return _tool("cmake")
