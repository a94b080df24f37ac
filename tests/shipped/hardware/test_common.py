"""The most common node of so many GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source
from hccc.driver.inputs import parse_cluster
from hccc.shipped.hardware.common import ORDER, common_cluster, common_device
from hccc.shipped.hardware.load import devices


@pytest.mark.parametrize(
    ("gpus", "device"), [(8, "H100"), (4, "GH200"), (72, "GB200"), (1, "H100"), (5, "H100")]
)
def test_devices(gpus: int, device: str) -> None:
    assert common_device(gpus).name == device


def test_the_order_is_of_the_library() -> None:
    assert set(ORDER) <= set(devices()) and len(set(ORDER)) == len(ORDER)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 20))
def test_its_text_is_a_cluster_of_so_many_gpus(nodes: int, gpus: int) -> None:
    t = parse_cluster(Source("common", common_cluster(nodes, gpus)))
    assert t.n_ranks == nodes * gpus
    assert np.bincount(t.node).tolist() == [gpus] * nodes
    assert [device.name for device in t.devices] == [common_device(gpus).name]
    assert len(set(t.memory_domain.tolist())) == nodes
