"""Checks of a call's arguments, against what the manual says of buffers, messages and words."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hccc.base.dtypes import ALL, MOVED_AS, REDUCTIONS, Dtype, reduces
from hccc.runtime.layout import MOST_BYTES

RANK = 3
HERE = 1 << 20  # an address
ANY = -1
BAD_ARGUMENT = 4
COLLECTIVES = ("Allreduce", "Allgather", "Gather", "Reducescatter", "Scatter", "Alltoall")
SENDS_AT = {"Allgather": 1, "Gather": 1, "Reducescatter": -1, "Scatter": -1}  # own blocks on
few, small = st.integers(1, 5), st.integers(0, 2)
types = st.sampled_from(ALL)
counts = st.integers(0, 9) | st.integers(0, 2**64 - 1) | st.integers(0, 64).map(lambda k: 2**k - 1)
aligned = st.integers(0, 99).map(lambda k: HERE + 8 * k)
addresses = aligned | aligned | st.just(0) | st.integers(HERE, HERE + 99)


def refused(code: int, text: ctypes.Array[ctypes.c_char]) -> str:
    """Returns what an error says; "": there is none."""
    assert code in (0, BAD_ARGUMENT)
    return text.value.decode() if code else ""


def wrong_buffers(
    collective: str, blocks: tuple[int, int], total: tuple[int, int], size: int, at: tuple[int, int]
) -> str:
    """Returns a word of the error that buffers of so many bytes cause."""
    if max(total) > MOST_BYTES:
        return "too many"
    if any(bytes and not place for bytes, place in zip(total, at, strict=True)):
        return "null"
    used = [place if bytes else 0 for bytes, place in zip(total, at, strict=True)]
    if any(place % min(size, 8) for place in used):
        return "aligned"
    if not all(used) or used[0] - used[1] == in_place_by(collective, blocks, total):
        return ""
    apart = used[0] + total[0] <= used[1] or used[1] + total[1] <= used[0]
    return "" if apart else "overlap"


def in_place_by(collective: str, blocks: tuple[int, int], total: tuple[int, int]) -> int:
    """Returns by how many bytes the send buffer lies past the other one in place."""
    return SENDS_AT.get(collective, 0) * RANK * (total[0] // max(1, blocks[0]))


@st.composite
def calls(draw: st.DrawFn) -> tuple[tuple[int, int], Dtype, int]:
    """Draws a call's blocks, type and count: most often few, or about as many as there may be."""
    blocks, dtype = draw(st.tuples(few, few) | st.tuples(small, small)), draw(types)
    most = MOST_BYTES // max(1, draw(st.sampled_from(blocks)) * dtype.bytes)
    return blocks, dtype, draw(few | few | st.integers(most, most + 1) | counts)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(st.data(), st.sampled_from(COLLECTIVES), calls())
def test_buffers(
    places: ctypes.CDLL, data: st.DataObject, name: str, call: tuple[tuple[int, int], Dtype, int]
) -> None:
    """As they lie in place, one right behind the other, or anywhere; of any bytes."""
    blocks, dtype, count = call
    total = (blocks[0] * count * dtype.bytes, blocks[1] * count * dtype.bytes)
    send = data.draw(aligned) if data.draw(few) > 1 else data.draw(addresses)
    begins = [send - in_place_by(name, blocks, total), send + total[0], send - total[1]]
    moved = data.draw(st.sampled_from([0, 0, -8, 8, -16, 16]))
    receive = data.draw(st.sampled_from(begins)) + moved if data.draw(few) > 1 else 0
    at = (send, (max(0, receive) or data.draw(addresses)) % 2**48)
    found, text = (ctypes.c_long * 5)(), ctypes.create_string_buffer(1024)
    code = places.buffers_are(
        name.encode(),
        RANK,
        (ctypes.c_int * 2)(*blocks),
        ctypes.c_size_t(count),
        dtype.number,
        ctypes.c_size_t(at[0]),
        ctypes.c_size_t(at[1]),
        found,
        text,
    )
    wanted = wrong_buffers(name, blocks, total, dtype.bytes, at)
    if count >= 2**63:
        wanted = "too many"
    said = refused(code, text)
    assert wanted in said and bool(wanted) == bool(said), (said, at)
    if not said:
        used = [place if bytes else 0 for bytes, place in zip(total, at, strict=True)]
        past = in_place_by(name, blocks, total)
        in_place = all(used) and used[0] - used[1] == past
        assert list(found) == [*used, *total, in_place]


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.booleans(),
    st.booleans(),
    st.integers(-2, 5),
    st.integers(-2, 2),
    st.integers(-1, len(ALL)),
    counts,
    addresses,
)
@example(True, False, 3, 0, 16, (2**63 - 1) // 16, HERE)
@example(True, False, 3, 0, 16, (2**63 - 1) // 16 + 1, HERE)
def test_messages(
    places: ctypes.CDLL,
    sends: bool,
    exact: bool,
    peer: int,
    tag: int,
    type: int,
    count: int,
    at: int,
) -> None:
    text = ctypes.create_string_buffer(1024)
    numbers = (int(sends), int(exact), peer, tag, type, ctypes.c_size_t(count), ctypes.c_size_t(at))
    said = refused(places.message_is_wrong(*numbers, 4, text), text)
    size = {dtype.number: dtype.bytes for dtype in ALL}.get(type, 0)
    any = ANY if not sends and not exact else None
    if not size:
        assert "type" in said
    elif peer not in range(4) and peer != any:
        assert "none of 4" in said
    elif tag < 0 and tag != any:
        assert "negative" in said
    elif count * size > 2**63 - 1:
        assert "too many" in said
    elif count and not at:
        assert "null" in said
    elif at % size:
        assert "aligned" in said
    else:
        assert not said


@settings(deadline=None)
@given(
    st.sampled_from(["Reduce", "Broadcast", "Gather", "Scatter", "Allreduce"]),
    st.integers(-1, len(ALL)),
    st.integers(-1, len(REDUCTIONS)),
    st.integers(-1, 5),
)
def test_words(places: ctypes.CDLL, collective: str, type: int, op: int, root: int) -> None:
    text = ctypes.create_string_buffer(1024)
    said = refused(places.words_are_wrong(collective.encode(), type, op, root, 4, text), text)
    dtypes = {dtype.number: dtype.name for dtype in ALL}
    ops = {reduction.number: reduction.name for reduction in REDUCTIONS}
    if type not in dtypes:
        assert said == f"type {type} is none"
    elif op not in ops:
        assert said == f"reduction {op} is none"
    elif collective != "Allreduce" and root not in range(4):
        assert said == f"root {root} is no rank: there are 4"
    elif not reduces(dtypes[type], ops[op]):
        assert said == f"there is no {ops[op]} of {dtypes[type]}"
    else:
        assert not said


def test_bytes_of_types_and_what_moves_as_what(places: ctypes.CDLL) -> None:
    assert [places.type_bytes(dtype.number) for dtype in ALL] == [dtype.bytes for dtype in ALL]
    assert {n: places.moved_as(n).decode() for n in MOVED_AS} == MOVED_AS


def test_a_call_that_peers_read(places: ctypes.CDLL) -> None:
    """A library that is asked for by its name has its own root."""
    op, in_place, number = ctypes.c_int(), ctypes.c_int(), ctypes.c_ulong()
    told = [ctypes.byref(one) for one in (op, in_place, number)]
    for library, root, wanted in ((None, 1, 1), (None, 0, 0), (None, -1, 2), (b"tree", 1, 2)):
        assert places.root_of(library, root, 1, *told) == wanted
        assert (op.value, in_place.value, number.value) == (3, 1, 9)
    assert places.root_of(None, 1, 0, *told) == 1 and op.value == -1
