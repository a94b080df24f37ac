"""Marks of single parameters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

LONG = int(os.environ.get("HCCC_LONG", "1"))  # how many times as many random cases slow tests try


def slow(*values: Any) -> Any:
    """Marks a parameter (or one value for each argument) as a slow case of a test: `-m slow`."""
    return pytest.param(*values, marks=pytest.mark.slow)


def some(values: Sequence[Any], every: int) -> list[Any]:
    """Returns every `every`-th case of a slow test, or all with HCCC_LONG above 1."""
    return list(values if LONG > 1 else values[::every])
