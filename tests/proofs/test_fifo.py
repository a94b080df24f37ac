"""FIFOs of MSCCL's runtimes: the largest message is that of the fewest chunks that pass."""

from __future__ import annotations

import pytest

from hccc.analysis.waits import enforced
from hccc.proofs import fifo as module
from hccc.proofs.fifo import MESSAGE_BYTES, Fifo, fifo, passes
from tests.interop import corpus


def test_the_fewest_chunks_of_a_message_that_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file whose blocks send many chunks before they receive, with FIFOs of any depth."""
    name = "allgather_deep_n2.xml"
    plan, _ = corpus.verdict((corpus.OWN / name).read_text(), name)
    waits, found = enforced(plan), set[int]()
    for depth in range(1, 140):
        monkeypatch.setitem(module.MESSAGES, "Simple", depth)
        fewest = next((n for n in range(1, 72) if passes(plan, waits, n, depth)), None)
        whole = Fifo(None, False) if fewest == 1 else Fifo(0, True)
        part = Fifo(MESSAGE_BYTES["Simple"] // fewest * 3, False) if fewest else whole
        assert fifo(plan, "Simple", 3) == (whole if fewest in (1, None) else part)
        found.add(fewest or 0)
    assert {1, 2, 3} <= found
