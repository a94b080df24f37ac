"""cost: HeteCCL's model on its H20 cluster."""

from __future__ import annotations

import pytest

from hccc.lang.cluster import load
from hccc.synth.cegis.cost import cost
from hccc.synth.cegis.fill import fill
from hccc.synth.cegis.synthesize import EMPTY
from hccc.synth.greedy.schedule import busiest
from tests.synth.greedy.chunked_clusters import CLUSTERS, example, gather


def test_a_step_takes_latency_bytes_and_sums() -> None:
    """50 GB/s on a NIC: 1 MB in 20 µs."""
    t = load.load(CLUSTERS / "heteccl-h20-4+8.cluster")
    found = cost(t, example("heteccl-h20-4+8"))
    assert found.step(10**6) == pytest.approx(found.alpha + 20.0)
    assert found.alpha > 0
    slowest = min(device.reduce for device in t.devices)
    assert found.step(10**6, sums=True) == pytest.approx(found.alpha + 20.0 + 1000.0 / slowest)


def test_batches_follow_as_soon_as_the_nics_are_free() -> None:
    """Each NIC of the 4-GPU node carries 2 of 8 chunks into it: 2 steps more for every batch."""
    t = load.load(CLUSTERS / "heteccl-h20-4+8.cluster")
    c = example("heteccl-h20-4+8")
    found, s = cost(t, c), fill(c, gather(c), EMPTY)
    assert s.steps == 3
    assert busiest(s, c) >= 2
    once, many = (found.batches(s, c, 10**6, count) for count in (1, 11))
    assert once == pytest.approx(3 * found.step(10**6))
    assert many - once == pytest.approx(10 * busiest(s, c) * 20.0)
