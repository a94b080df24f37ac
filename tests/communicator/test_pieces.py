"""First-fit allocation, against a list of what is taken."""

from __future__ import annotations

import ctypes

from hypothesis import given, settings
from hypothesis import strategies as st

ROOM = 60


def first_fit(taken: dict[int, int], bytes: int) -> int:
    """Returns where the first gap of so many bytes begins; -1: there is none."""
    begins = [0, *(at + length for at, length in taken.items())]
    ends = {at: min([a for a in taken if a >= at], default=ROOM) for at in begins}
    return min([at for at in begins if ends[at] - at >= bytes], default=-1)


def inside(taken: dict[int, int], at: int, bytes: int) -> bool:
    """Tells whether a range lies in one piece."""
    return any(a <= at and at + bytes <= a + length for a, length in taken.items())


steps = st.one_of(
    st.tuples(st.just("take"), st.integers(1, 25)),
    st.tuples(st.just("give"), st.integers(0, 9)),
    st.tuples(st.just("give what is none"), st.integers(0, ROOM)),
)


@settings(deadline=None)
@given(st.lists(steps, max_size=30), st.integers(0, 25))
def test_pieces(places: ctypes.CDLL, steps: list[tuple[str, int]], bytes: int) -> None:
    pieces, taken = ctypes.c_void_p(places.pieces(ROOM)), dict[int, int]()
    for step, n in steps:
        if step == "take":
            at = first_fit(taken, n)
            assert places.pieces_take(pieces, n) == at
            if at >= 0:
                taken[at] = n
        else:
            at = sorted(taken)[n % len(taken)] if taken and step == "give" else n
            assert places.pieces_give(pieces, at) == taken.pop(at, 0)
    for at in range(ROOM):
        assert places.pieces_has(pieces, at, bytes) == inside(taken, at, bytes)
    for at in taken:
        assert places.pieces_give(pieces, at) == taken[at]
    assert places.pieces_take(pieces, ROOM) == 0  # gaps join again
    places.pieces_end(pieces)
