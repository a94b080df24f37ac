"""The name of a file as a plan's source: one printable line that is not too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.ir.names import MAX_SOURCE, source_name


@given(st.text())
def test_a_short_name_keeps_what_is_printable(name: str) -> None:
    made = source_name(name)
    assert made.isprintable() and len(made) == len(name)
    assert all(a in (b, "_") for a, b in zip(made, name, strict=True))


@pytest.mark.parametrize("more", [-1, 0, 1, 100])
def test_a_long_name_keeps_its_end(more: int) -> None:
    name = "x" * more + "a" * 8 + "b" * (MAX_SOURCE - 8) if more > 0 else "a" * (MAX_SOURCE + more)
    made = source_name(name)
    assert len(made) == min(len(name), MAX_SOURCE)
    assert made == name if more <= 0 else made == "..." + name[-(MAX_SOURCE - 3) :]
