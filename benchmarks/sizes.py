"""Sizes as people write them."""

from __future__ import annotations

UNITS = {"K": 10, "M": 20, "G": 30}


def size_of(text: str) -> int:
    """Reads `1M` or `1024` as bytes."""
    unit = UNITS.get(text[-1:].upper())
    return int(text) if unit is None else int(text[:-1]) << unit
