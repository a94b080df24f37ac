"""GPUs that failed and links that are slower, as commands name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hccc.diagnostics import Source, UserError
from hccc.inputs import load_cluster
from hccc.ir.topology import same
from hccc.lang.cluster.faults import with_faults

CLUSTERS = Path(__file__).parents[3] / "examples" / "clusters"
WHOLE = CLUSTERS / "heteccl-h20-4x2+8.cluster"


@pytest.mark.parametrize(
    ("failed", "file"),
    [(["node1.gpu3"], "fault-4"), (["node3.gpu7"], "fault-8"),
     (["node1.gpu3", "node3.gpu7"], "fault-4-8"), (["node1.gpu3", "node2.gpu3"], "fault-4-4")],
)  # fmt: skip
def test_failures_are_what_files_say(failed: list[str], file: str) -> None:
    """HeteCCL's four scenarios (App. E)."""
    there = load_cluster(CLUSTERS / f"heteccl-h20-4x2+8-{file}.cluster")
    assert same(load_cluster(WHOLE, failed), there)


def test_what_is_slower_is_what_a_file_says() -> None:
    slow = load_cluster(CLUSTERS / "heteccl-h20-4x2+8-slow.cluster")
    for said in ("node1.nic=18Gbps", "node1=2.25", "NODE1.NIC=2.25GB/s"):
        assert same(load_cluster(WHOLE, (), [said]), slow)


def test_what_a_file_says_already_stays() -> None:
    one = load_cluster(CLUSTERS / "heteccl-h20-4x2+8-fault-4.cluster", ["node3.gpu7"])
    assert same(one, load_cluster(CLUSTERS / "heteccl-h20-4x2+8-fault-4-8.cluster"))


@pytest.mark.parametrize(
    ("failed", "degraded"),
    [(["node2"], []), (["gpu3"], []), (["node1.gpu-1"], []), (["node1.gpu0); define"], []),
     ([], ["node1.nic"]), ([], ["node1-node2=18Gbps"]), ([], ["node1.nic=fast"]), ([], ["=3"])],
)  # fmt: skip
def test_what_names_nothing(failed: list[str], degraded: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        with_faults(Source("a.cluster", ""), failed, degraded)
    assert caught.value.problem.code == "E410" and caught.value.problem.help


def test_a_gpu_that_there_is_not() -> None:
    with pytest.raises(UserError):
        load_cluster(WHOLE, ["node9.gpu0"])
