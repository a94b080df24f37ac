"""A wait that never ends is reported with its place, in time; the fault stays until it is reset."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace

import numpy as np
import pytest

from hccc.ir.collective import Collective, OpType
from hccc.runtime.fault import LaunchError, LaunchFault, WaitKind
from hccc.runtime.request import LaunchRequest
from tests.runtime.handwritten import STUCK, communicator

SOON_S = 20.0  # less than other deadlines, and long enough for a machine with much to do
TRIES = 20


@pytest.mark.parametrize("workers", [1, 2])
def test_deadline_names_the_wait(workers: int) -> None:
    stuck = communicator("stuck", STUCK, Collective(OpType.SENDRECV, 2, 2))
    buffers = [np.ones(1000, np.float32) for _ in range(4)]
    request = LaunchRequest(1000, "float32", timeout=0.3, micro_batch=512, workers=workers)
    raised: list[LaunchError] = []
    for _ in range(TRIES):
        stuck.reset()
        started = time.perf_counter()
        with pytest.raises(LaunchError) as error:
            stuck.launch(buffers[:2], buffers[2:], request)
        assert 0.3 <= time.perf_counter() - started < SOON_S
        # Rank 0 has done its part and waits for rank 1's end: if rank 1's thread begins late, that
        # wait's deadline is the first to pass.
        if error.value.fault.kind is not WaitKind.DONE:
            raised.append(error.value)
        if len(raised) == 2:
            break
    stop = LaunchFault(1, 1, 1, 7, 0, 3, 1, 0, WaitKind.FLAG)
    assert [one.fault for one in raised] == [stop, stop]
    text = str(raised[-1])
    assert "rank 1, thread block 1, channel 1, primitive 7, micro-batch 0" in text
    assert "want 1, have 0" in text
    again = pickle.loads(pickle.dumps(raised[-1]))
    assert again.fault == raised[-1].fault
    assert str(again) == text


def test_a_fault_stays_until_it_is_reset() -> None:
    stuck = communicator("stuck", STUCK, Collective(OpType.SENDRECV, 2, 2))
    buffers = [np.ones(1000, np.float32) for _ in range(4)]
    request = LaunchRequest(1000, "float32", timeout=0.2, micro_batch=512)
    with pytest.raises(LaunchError) as first:
        stuck.launch(buffers[:2], buffers[2:], request)
    counters = [flags.copy() for flags in stuck.flags]
    before = [buffer.copy() for buffer in buffers]
    started = time.perf_counter()
    with pytest.raises(LaunchError) as again:
        stuck.launch(buffers[:2], buffers[2:], replace(request, timeout=60))
    assert time.perf_counter() - started < SOON_S
    assert again.value.fault == first.value.fault
    for old, new in zip([*counters, *before], [*stuck.flags, *buffers], strict=True):
        np.testing.assert_array_equal(old, new)
    stuck.reset()
    with pytest.raises(LaunchError):
        stuck.launch(buffers[:2], buffers[2:], request)
    assert not all(map(np.array_equal, counters, [np.zeros_like(c) for c in counters]))


def test_a_missing_rank_is_named() -> None:
    """Rank 0 alone: its neighbour never starts. No other launch uses these flags."""
    stuck = communicator("stuck", STUCK, Collective(OpType.SENDRECV, 2, 2))
    buffers = [np.ones(8, np.float32) for _ in range(4)]
    request = LaunchRequest(8, "float32", timeout=0.1, join_timeout=0.1)
    # Rank 1 believes that it is one launch ahead, so rank 0 never hears this launch's number.
    stuck.flags[1].view(np.uint32)[32 * STUCK.state_at + 1] = 0xFFFFFFFE
    with pytest.raises(LaunchError) as error:
        stuck.launch(buffers[:2], buffers[2:], request)
    fault = error.value.fault
    assert fault.kind is WaitKind.READY
    assert (fault.rank, fault.primitive, fault.flag) == (0, None, 1)
