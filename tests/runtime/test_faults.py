"""A wait that never ends is reported with its place, in time, and the next launch works."""

from __future__ import annotations

import pickle
import time

import numpy as np
import pytest

from hccc.ir.collective import Collective, OpType
from hccc.runtime.fault import Fault, LaunchError, WaitKind
from hccc.runtime.request import Request
from tests.runtime.handwritten import STUCK, communicator


@pytest.mark.parametrize("workers", [1, 2])
def test_deadline_names_the_wait(workers: int) -> None:
    stuck = communicator("stuck", STUCK, Collective(OpType.SENDRECV, 2, 2))
    buffers = [np.ones(1000, np.float32) for _ in range(4)]
    request = Request(1000, "float32", timeout=0.3, micro_batch=512, workers=workers)
    raised: list[LaunchError] = []
    for _ in range(2):  # the second launch starts from flags that are zero again
        started = time.perf_counter()
        with pytest.raises(LaunchError) as error:
            stuck.launch(buffers[:2], buffers[2:], request)
        assert 0.3 <= time.perf_counter() - started < 3
        assert error.value.fault == Fault(1, 1, 1, 7, 0, 3, 1, 0, WaitKind.FLAG)
        raised.append(error.value)
    text = str(raised[-1])
    assert "rank 1, thread block 1, channel 1, primitive 7, micro-batch 0" in text
    assert "want 1, have 0" in text
    again = pickle.loads(pickle.dumps(raised[-1]))
    assert again.fault == raised[-1].fault
    assert str(again) == text


def test_a_missing_rank_is_named() -> None:
    """Rank 0 alone: its neighbour never starts. Flags are those of a launch nobody else made."""
    stuck = communicator("stuck", STUCK, Collective(OpType.SENDRECV, 2, 2))
    buffers = [np.ones(8, np.float32) for _ in range(4)]
    request = Request(8, "float32", timeout=0.1)
    # Rank 1 believes that it is one launch ahead, so rank 0 never hears this launch's number.
    stuck.flags[1].view(np.uint32)[32 * STUCK.state_at + 1] = 0xFFFFFFFE
    with pytest.raises(LaunchError) as error:
        stuck.launch(buffers[:2], buffers[2:], request)
    fault = error.value.fault
    assert fault.kind is WaitKind.READY
    assert (fault.rank, fault.primitive, fault.flag) == (0, None, 1)
