"""Windows: added late, of a device that UCX cannot reach; blobs that are wrong."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hccc.base.diagnostics import UserError
from tests.transport.ends import DEADLINE_S, LINE, End, Message, joined


def test_device_memory_is_staged_and_says_so(ucx: None) -> None:
    options = {"memory": "cuda", "slice_bytes": 1 << 16, "pool_bytes": 4 << 16}
    sizes = [1, 3_000_000, 0, 70_000, 500_001]
    messages = []
    for i, size in enumerate(sizes):
        messages.append(Message(i, sum(sizes[:i]), size, i % 2, 0, LINE * (i % 2 + 1), i + 1))
    messages.append(Message(0, 0, 0, -1, 0, 0, 1))
    with joined(8 << 20, **options) as (a, b):
        submitted = [list(message) for message in messages]
        a.send(1, submitted)
        assert b.expect(submitted) == []
        assert a.statistics()["staged_out_bytes"] == sum(sizes)
        assert b.statistics()["staged_in_bytes"] == sum(sizes)
        assert sum("staged through 2 slots of 65536 bytes" in line for line in a.lines) == 3


def _check_window_9(a: End, b: End, memory: NDArray[np.uint8]) -> None:
    """Checks that what `a` sends to window 9 of `b` arrives in `memory`."""
    one, last = Message(5, 0, 64, 0, 0, LINE, 1), [0, 0, 0, -1, 0, 0, 2]
    a.send(1, [list(one)])
    a.submit(peer=1, source_window=2, target_window=9, bytes=64, counter=0, value=2)
    a.send(1, [last])
    assert b.expect([last]) == []
    assert np.array_equal(memory, one.data())


def test_a_window_may_be_added_later(ucx: None) -> None:
    with joined() as (a, b):
        more = np.zeros(64, np.uint8)
        b.transport.window(9, more.ctypes.data, more.size)
        a.connect(1, b.blob())
        _check_window_9(a, b, more)


def test_peers_are_told_of_a_window(ucx: None) -> None:
    with joined(memory="cuda") as (a, b):
        more = np.zeros(64, np.uint8)
        b.transport.window(9, more.ctypes.data, more.size, "cuda")
        b.transport.tell(9)
        begin = time.monotonic()
        while not b.transport.told(9):
            assert time.monotonic() < begin + DEADLINE_S
        _check_window_9(a, b, more)
        assert a.failed() == b.failed() == []
        with pytest.raises(UserError, match="there is no window 11"):
            b.transport.tell(11)


def test_windows_are_refused(ucx: None) -> None:
    end = End(0, 2, 4096, network="lo")
    try:
        with pytest.raises(UserError, match="registered already"):
            end.transport.window(2, end.source.ctypes.data, 10)
        with pytest.raises(UserError, match="no such number"):
            end.transport.window(-1, end.source.ctypes.data, 10)
        with pytest.raises(UserError, match="no such number"):
            end.transport.window(7, 0, 10)
        with pytest.raises(UserError, match="there is no copier"):
            end.transport.window(7, end.source.ctypes.data, 10, "hip")
    finally:
        end.close()


@pytest.fixture(scope="module")
def two(ucx: None) -> tuple[End, bytes]:
    """Makes a rank, and the blob of its peer."""
    end, peer = (End(rank, 2, 4096, network="lo") for rank in range(2))
    return end, bytes.fromhex(peer.blob())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_blobs_of_garbage_are_refused(two: tuple[End, bytes], data: st.DataObject) -> None:
    end, good = two
    at = data.draw(st.integers(0, len(good) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "longer", "noise", "head"]))
    bad = bytearray(good)
    if kind == "flip":
        bad[at] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del bad[at:]
    elif kind == "longer":
        bad += data.draw(st.binary(min_size=1, max_size=100))
    elif kind == "noise":
        bad = bytearray(data.draw(st.binary(max_size=500)))
    else:
        bad = bad[:12] + data.draw(st.binary(min_size=len(bad) - 12, max_size=len(bad)))
        assume(bytes(bad) != good)
    with pytest.raises(UserError, match="the blob of rank 1"):
        end.transport.connect(1, bytes(bad))


def test_blobs_of_others_are_refused(two: tuple[End, bytes]) -> None:
    end, good = two
    with pytest.raises(UserError, match="cannot be connected"):
        end.transport.connect(0, good)
    with pytest.raises(UserError, match="cannot be connected"):
        end.transport.connect(2, good)
    third = End(1, 3, 4096, network="lo")
    with pytest.raises(UserError, match="that of rank 1 of 3"):
        end.transport.connect(1, bytes.fromhex(third.blob()))
    end.transport.connect(1, good)
    end.transport.connect(1, good)
    other = End(1, 2, 4096, network="lo")
    with pytest.raises(UserError, match="another process's"):
        end.transport.connect(1, bytes.fromhex(other.blob()))
    for one in (third, other):
        one.close()
