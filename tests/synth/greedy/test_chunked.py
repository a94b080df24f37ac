"""chunked: Eq. 1 link by link, and the finer steps that lose nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from hccc.ir.topology import Topology
from hccc.lang.cluster import load
from hccc.synth.common.route_table import route_table
from hccc.synth.greedy.chunked import chunked
from hccc.testing.clusters import topologies
from tests.health_checks import EVERY_CHECK
from tests.synth.greedy.chunked_clusters import CLUSTERS

SETTINGS = settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=30)


@pytest.mark.parametrize(
    ("name", "rate", "chunks"),
    [
        # Fig. 10: ⌈25 / 8⌉ · 2 over two links of 25 GB/s, ⌈16 / 8⌉ over its switch.
        ("heteccl-fig10", 8.0, {50.0: 8, 16.0: 2, 8.0: 1}),
        # The switch of each module, the UPI link and NICs of two kinds beside NVLink.
        ("heteccl-v100-4+8", 8.0, {50.0: 8, 48.0: 6, 16.0: 2, 12.5: 2, 8.0: 1}),
        ("heteccl-h20-4+8", 50.0, {450.0: 9, 150.0: 3, 50.0: 1}),
    ],
)
def test_the_chunks_of_eq_1(name: str, rate: float, chunks: dict[float, int]) -> None:
    t = load.load(CLUSTERS / f"{name}.cluster")
    found, table = chunked(t), route_table(t)
    assert found.rate == rate
    assert dict(zip(table.capacity.tolist(), found.capacity.tolist(), strict=True)) == chunks


@SETTINGS
@given(topologies())
def test_no_link_has_less_than_its_rate_by_eq_1_nor_more_finely(t: Topology) -> None:
    table = route_table(t)
    link = table.capacity / table.parallel
    by_link, finely = chunked(t), chunked(t, fine=True)
    step = by_link.capacity / table.parallel
    assert (step * by_link.rate >= link * 0.999999).all()
    assert ((step - 1) * by_link.rate < link).all()
    assert (np.rint(step) == step).all()
    assert (finely.capacity * finely.rate <= table.capacity * 1.000001).all()
