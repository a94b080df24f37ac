"""Encoded numbers are decoded by the C that is printed for them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hccc.emit.kernels.encodings import RankEncoding, encodings
from tests.emit import cints, plans

INT = 2**31 - 1


@st.composite
def cases(draw: st.DrawFn) -> tuple[RankEncoding, int]:
    """Draws an encoding and its number of ranks."""
    gpus, nodes = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    step = draw(st.sampled_from([1, 2, 5]))
    n = gpus * nodes
    apart = 1 < gpus < n and draw(st.booleans())
    return draw(st.sampled_from([RankEncoding(), RankEncoding(n, gpus if apart else 0, step)])), n


@given(cases(), st.data())
def test_what_is_decoded_is_what_was_encoded(
    case: tuple[RankEncoding, int], data: st.DataObject
) -> None:
    encoding, n = case
    turn = n * encoding.step  # from there on numbers have a high part
    most = data.draw(st.sampled_from([turn - 1, turn, turn + 1, 500, INT // 2]))
    numbers = [most, *data.draw(st.lists(st.integers(0, most), max_size=9))]
    rank = data.draw(st.integers(0, n - 1))
    value = np.array(numbers)
    coded = encoding.encode(value, np.full(len(value), rank, np.int32))
    gpus = encoding.gpus or 1
    here = {"rank": rank, "node": rank // gpus, "local": rank % gpus}
    for x, wanted in zip(coded.tolist(), numbers, strict=True):
        assert cints.evaluate(encoding.decoded("x", most), {**here, "x": x}) == wanted
        assert cints.evaluate(encoding.decoded(str(x), most), here) == wanted


@given(cases(), st.integers(0, 500), st.data())
def test_a_number_so_many_ranks_on_is_the_same_at_all_ranks(
    case: tuple[RankEncoding, int], away: int, data: st.DataObject
) -> None:
    encoding, n = case
    step, gpus = encoding.step, encoding.gpus
    rank = np.arange(n, dtype=np.int32)
    on = (rank + away) % n
    if gpus:
        local = data.draw(st.integers(0, gpus - 1))
        on = (rank // gpus + away) % (n // gpus) * gpus + (rank % gpus + local) % gpus
    coded = encoding.encode(on.astype(np.int64) * step, rank)
    assert len(set(coded.tolist())) == 1 or not encoding.ranks


def test_nodes_count_where_there_are_several() -> None:
    of = {e.gpus for e in encodings(plans.compiled(plans.hierarchical_mesh(2, 4)))}
    assert of == {0, 4}
    assert {e.gpus for e in encodings(plans.compiled(plans.ring_allgather(5)))} == {0}
