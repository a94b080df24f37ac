"""Copies of messages and of cuts, against slices of the same bytes."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hccc.runtime.cpu import aligned_zeros

PAGE = 4096
HEAP = 1 << 16  # where its memory begins
PAST_CACHES = 4 << 20
CONTENT = (np.arange(1 << 18) * 31 // 8).astype(np.uint8)
Bytes = NDArray[np.uint8]
near = st.sampled_from([0, 64, 128, 256, PAGE, 2 * PAGE]).flatmap(
    lambda n: st.integers(max(0, n - 2), n + 2)
)
alignments = st.integers(0, 130)


def memory_of(bytes: int) -> Bytes:
    """Returns memory that begins with a page, of bytes that differ."""
    memory = aligned_zeros(bytes + PAGE).view(np.uint8)
    memory = memory[-memory.ctypes.data % PAGE :][:bytes]
    memory[:] = CONTENT[:bytes]
    return memory


def address(memory: Bytes, at: int = 0) -> ctypes.c_void_p:
    """Returns where bytes of the memory are."""
    return ctypes.c_void_p(memory.ctypes.data + at)


@settings(deadline=None)
@given(near, alignments, alignments)
def test_messages(places: ctypes.CDLL, bytes: int, to: int, from_: int) -> None:
    for whole in (0, PAST_CACHES - 1, PAST_CACHES):
        source, target = memory_of(3 * PAGE), memory_of(3 * PAGE)[::-1].copy()
        wanted = target.copy()
        wanted[to : to + bytes] = source[from_ : from_ + bytes]
        sizes = map(ctypes.c_size_t, (bytes, whole))
        places.copied(address(target, to), address(source, from_), *sizes)
        assert np.array_equal(target, wanted)


def cut_of(buffer: Bytes, blocks: int, block: int, at: int, bytes: int) -> Bytes:
    """Returns the bytes of a cut, a row for each block; a view."""
    return buffer[: blocks * block].reshape(blocks, block)[:, at : at + bytes]


@st.composite
def cuts(draw: st.DrawFn) -> tuple[int, int, int]:
    """Draws a block's bytes, and those of a cut: where it begins, and how many."""
    block = draw(st.integers(1, 300))
    bytes = block if draw(st.integers(0, 3)) == 3 else draw(st.integers(1, block))
    return block, draw(st.integers(0, block - bytes)), bytes


@settings(deadline=None)
@given(cuts(), st.integers(0, 4))
def test_cuts(places: ctypes.CDLL, cut: tuple[int, int, int], blocks: int) -> None:
    block, at, bytes = cut
    sizes = [*map(ctypes.c_size_t, (at, bytes, block))]
    whole, cuts = memory_of(PAGE), memory_of(PAGE)[::-1].copy()
    wanted = cuts.copy()
    wanted[: blocks * bytes] = cut_of(whole, blocks, *cut).ravel()
    places.gathered(address(cuts), address(whole), blocks, *sizes)
    assert np.array_equal(cuts, wanted)
    cuts, wanted = cuts[::-1].copy(), whole.copy()
    cut_of(wanted, blocks, *cut)[:] = cuts[: blocks * bytes].reshape(blocks, bytes)
    places.scattered(address(whole), address(cuts), blocks, *sizes)
    assert np.array_equal(whole, wanted)


@st.composite
def buffers(draw: st.DrawFn, in_place: bool, block: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Draws how many blocks the buffers of a call have, and where they begin."""
    at, other = draw(alignments), PAGE + draw(alignments)
    if not in_place:
        return draw(st.tuples(st.integers(0, 4), st.integers(0, 4))), (at, other)
    n = draw(st.integers(1, 4))
    blocks = draw(st.sampled_from([(1, n), (n, 1), (n, n)]))
    own = at + block * (draw(st.integers(0, n - 1)) if blocks[0] != blocks[1] else 0)
    return blocks, (at, own) if blocks[0] > blocks[1] else (own, at)


@pytest.mark.parametrize("in_place", [False, True])
@settings(deadline=None)
@given(cuts(), st.data())
def test_a_kernel_sees_a_cut_as_buffers(
    places: ctypes.CDLL, in_place: bool, cut: tuple[int, int, int], data: st.DataObject
) -> None:
    """In memory that peers reach, as far into a page as the caller's; no other byte changes."""
    block, at, bytes = cut
    blocks, begins = data.draw(buffers(in_place, block))
    for reach in (False, True):
        memory, sent, found = memory_of(2 * HEAP), np.zeros(PAGE, np.uint8), (ctypes.c_long * 5)()
        input = cut_of(memory[begins[0] :].copy(), blocks[0], *cut).ravel()
        wanted, result = memory[:HEAP].copy(), np.arange(blocks[1] * bytes) + 1
        cut_of(wanted[begins[1] :], blocks[1], *cut)[:] = result.reshape(blocks[1], bytes)
        places.staged(
            address(memory),
            (ctypes.c_size_t * 2)(*begins),
            ctypes.c_size_t(block),
            (ctypes.c_size_t * 2)(at, bytes),
            (ctypes.c_int * 2)(*blocks),
            in_place,
            reach,
            address(sent),
            found,
        )
        assert np.array_equal(sent[: input.size], input)
        assert np.array_equal(memory[:HEAP], wanted)
        seen = [k for k in (0, 1) if blocks[k]]
        for k in seen:
            assert found[k] == found[2 + k]
            contiguous = bytes == block or (max(blocks) if in_place else blocks[k]) <= 1
            assert (found[k] < HEAP) == (reach and contiguous)
            if not in_place:
                assert (found[k] - begins[k] - at) % PAGE == 0
        rooms = [k for k in seen if found[k] >= HEAP]
        assert found[4] == (min(1, len(rooms)) if in_place else len(rooms))


@settings(deadline=None)
@given(alignments, near)
def test_the_input_of_a_call_in_place_is_copied(places: ctypes.CDLL, at: int, bytes: int) -> None:
    memory = memory_of(1 << 18)
    places.set_apart.restype = ctypes.c_long
    found = places.set_apart(address(memory), ctypes.c_size_t(at), ctypes.c_size_t(bytes))
    assert found >= HEAP and (found - at) % PAGE == 0
    assert np.array_equal(memory[found : found + bytes], memory[at : at + bytes])
