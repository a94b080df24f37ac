"""Marks of single parameters."""

from __future__ import annotations

import os
from typing import Any

import pytest

LONG = int(os.environ.get("HCCC_LONG", "1"))  # how many times as many random cases slow tests try


def slow(*values: Any) -> Any:
    """One parameter, or one for each argument, of a test that then takes long: `-m slow`."""
    return pytest.param(*values, marks=pytest.mark.slow)
