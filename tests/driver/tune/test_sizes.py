"""The message sizes that are tuned for."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.driver.tune.sizes import MOST, STEP, parsed


@given(st.integers(1, MOST), st.integers(1, MOST))
def test_a_range_has_its_ends_and_no_gap_above_a_step(a: int, b: int) -> None:
    small, large = sorted((a, b))
    sizes = parsed(f"{small}..{large}")
    assert (sizes[0], sizes[-1]) == (small, large)
    assert all(x < y <= STEP * x for x, y in pairwise(sizes))


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("64K", (1 << 16,)),
        ("1k..8KiB", (1 << 10, 1 << 13)),
        ("8B..9", (8, 9)),
        ("2M..2M", (1 << 21,)),
    ],
)
def test_units(text: str, sizes: tuple[int, ...]) -> None:
    assert parsed(text) == sizes


@pytest.mark.parametrize(
    "text", ["", "..", "0", "-1", "1K..", "2K..1K", "1..2..3", "1.5K", "1Q", "9" * 30, "1K 4K"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parsed(text)
    assert caught.value.problem.code == "E410"
