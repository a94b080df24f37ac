"""How numbers are written: short, the same everywhere, and no zero with a minus."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from hccc.ir import text

TINY = st.floats(-1e-7, 1e-7)


@given(TINY, st.integers(0, 3))
def test_nothing_is_never_minus_nothing(value: float, digits: int) -> None:
    assert text.fixed(value, digits) == f"{0:.{digits}f}"
    assert text.time(value) == "0 µs"
    assert text.number(-0.0) == "0"


@given(st.floats(-1e9, 1e9), st.integers(0, 3))
def test_fixed_is_the_number_to_its_digits(value: float, digits: int) -> None:
    shown = text.fixed(value, digits)
    assert abs(float(shown.replace(",", "")) - value) <= 0.5000001 * 10.0**-digits
    assert re.fullmatch(r"-?\d{1,3}(,\d{3})*(\.\d+)?", shown)


def test_times_and_sizes() -> None:
    assert [text.time(x) for x in (0.5, 12.34, 4560.0, 1.2e6)] == [
        "0.5 µs",
        "12.34 µs",
        "4.56 ms",
        "1.2 s",
    ]
    sizes = {17: "17 B", 1023: "1023 B", 1 << 20: "1 MiB", 3 << 29: "1.5 GiB", 1 << 52: "4096 TiB"}
    assert [text.size(x) for x in sizes] == list(sizes.values())


@given(st.floats(0, 1e9))
def test_a_time_has_the_unit_that_is_told(us: float) -> None:
    unit, factor = text.time_unit(us)
    value, written = text.time(us).split()
    assert written == unit
    assert abs(float(value) * factor - us) <= 1e-3 * us + 1e-6


def test_a_time_that_rounds_to_the_next_unit_is_told_in_it() -> None:
    us = 999.99999999
    assert text.time(us) == "1 ms" and text.time_unit(us) == ("ms", 1e3)


def test_plurals() -> None:
    assert text.count(2, "class") == "2 classes" and text.count(1, "switch") == "1 switch"
    assert text.named("leaf", [1, 2]) == "leaves 1, 2"
