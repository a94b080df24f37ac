"""Marks of single parameters."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """One parameter, or one for each argument, of a test that then takes long: `-m slow`."""
    return pytest.param(*values, marks=pytest.mark.slow)
