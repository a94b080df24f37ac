"""certificate: no looser than the best trees, where no cut shows the trees' time."""

from pathlib import Path

import pytest

from hccc.ir.collective import PROGRAMMABLE, OpType
from hccc.ir.topology import Topology
from hccc.lang.cluster.load import load
from hccc.synth.bounds.bound import limits
from hccc.synth.bounds.certificate import certificate
from hccc.testing.clusters import cluster
from tests.synth.published import CLUSTERS

SIZE = 1 << 30
SLOW = "define degraded = [((node1, node2) -> 18Gbps)]"  # HeteCCL's, between two nodes of four


def slow() -> Topology:
    text = Path(CLUSTERS / "heteccl-h20-4x2+8.cluster").read_text(encoding="utf-8")
    return cluster(f"{text}\n{SLOW}\n")


@pytest.mark.parametrize("op", [OpType.ALLGATHER, OpType.REDUCESCATTER])
def test_who_passes_on_what_others_cannot_send_each_other_has_most_to_send(op: OpType) -> None:
    """Node 3 sends its 8 ranks' to both others, and passes on 4 ranks' each way but for what goes
    straight at 2.25 GB/s, all over its own 200 GB/s."""
    found = certificate(slow(), op).at(SIZE)
    assert SIZE / found.time / 1e3 == pytest.approx(16 * (200 + 2 * 2.25) / 24, rel=1e-4)
    assert found.binding == "over trees"
    assert found.time > limits(slow(), op).at(SIZE).time


@pytest.mark.parametrize("op", PROGRAMMABLE)
@pytest.mark.parametrize("name", ["heteccl-h20-4+8", "resccl-topo2", "mi300x"])
def test_where_a_cut_is_exact_it_is_the_bound(name: str, op: OpType) -> None:
    t = load(CLUSTERS / f"{name}.cluster")
    assert certificate(t, op).at(SIZE).time == limits(t, op).at(SIZE).time
