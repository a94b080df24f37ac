"""jobs: simulated times of jobs follow from the libraries' models and the routes."""

from __future__ import annotations

import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.ir.collective import OpType
from hccc.ir.job import Job, vendor_clusters
from hccc.ir.topology import Topology, check
from hccc.lang.cluster.load import parse
from hccc.network.part import part_of
from hccc.network.vendor_clusters import vendor_clusters_of
from hccc.predict.job_explanation import explain_job
from hccc.predict.jobs import simulate_job
from hccc.predict.nccl.machine import of
from hccc.predict.nccl.model import predict
from hccc.synth.builtin.hetccl import hetccl

MIXED = parse(
    Source(
        "mixed",
        "define network = InfiniBand\ndefine node1 = 2 * 4\ndefine device = A100\n"
        "define nic = [((0) -> (10, 1, 5)), ((1) -> (10, 1, 5)), ((2) -> (10, 1, 5)), "
        "((3) -> (10, 1, 5))]\n"
        "define node3 = 1\ndefine device = MI300X\ndefine nic = [((0) -> (80, 1, 5))]\n",
    )
)
JOB = hetccl(vendor_clusters_of(MIXED), OpType.BROADCAST)


def _only(rows: slice) -> Job:
    return Job(JOB.name, JOB.collective, JOB.clusters, JOB.steps[rows])


def test_a_part_is_a_topology_of_its_own() -> None:
    import numpy as np

    part = part_of(MIXED, np.arange(4, 9))
    assert check(part) == []
    assert (len(part), part.n_nodes, [d.name for d in part.devices]) == (5, 2, ["A100", "MI300X"])
    assert len(part_of(MIXED, np.array([1, 2])).devices) == 1


def test_a_call_of_the_library_takes_what_its_model_says() -> None:
    import numpy as np

    (run,) = simulate_job(_only(slice(0, 1)), MIXED, [1 << 20]).runs
    alone: Topology = part_of(MIXED, np.arange(8))
    launch = float(MIXED.launch[:, 0].max())
    wanted = predict(of(alone), OpType.BROADCAST, [1 << 20])[0].time_us
    assert run.one == pytest.approx(launch + wanted)


def test_a_copy_over_a_border_takes_its_routes() -> None:
    """8 NICs of 10 GB/s send into one of 80: each its eighth, one after another into it."""
    (run,) = simulate_job(_only(slice(1, 2)), MIXED, [80 << 20]).runs
    launch = float(MIXED.launch[:, 0].max())
    alone = (10 << 20) / 10e3
    assert run.one - launch >= alone
    assert run.one - launch <= 5 + 2 * alone + 10


@pytest.mark.parametrize("op", [OpType.ALLREDUCE, OpType.ALLGATHER, OpType.SCATTER])
def test_larger_calls_take_longer_and_batches_never_more(op: OpType) -> None:
    made = simulate_job(hetccl(vendor_clusters_of(MIXED), op), MIXED, [1 << 12, 1 << 20, 1 << 27])
    times = [run.time for run in made.runs]
    assert times == sorted(times)
    assert all(run.time <= run.one for run in made.runs)


def test_micro_batches_overlap_the_lanes_where_that_pays() -> None:
    small, large = simulate_job(JOB, MIXED, [1 << 10, 1 << 28]).runs
    assert small.batches == 1
    assert large.batches > 1 and large.time < 0.9 * large.one


def test_an_explanation_has_the_lanes_and_the_borders() -> None:
    said = explain_job(JOB, MIXED, 1 << 26)
    assert said.crossing() == {(0, 1): float(1 << 26)}
    assert "over the border 0 to 1: 64 MiB" in said.text()
    assert set(said.by_kind()) == {"broadcast", "c2c_cpy"}


def test_a_call_of_nothing() -> None:
    with pytest.raises(UserError) as caught:
        simulate_job(JOB, MIXED, [0])
    assert caught.value.problem.code == "E415"


def test_a_vendor_cluster_whose_node_is_not_the_first() -> None:
    """The meshes of other nodes have none of its GPUs."""
    three = "define network = RoCE\ndefine node1 = 3 * 2\ndefine device = MI300X\n"
    of = [(name, [2 * k, 2 * k + 1], [2 * k, 2 * k + 1], [1, 1]) for k, name in enumerate("abc")]
    job, t = hetccl(vendor_clusters(of), OpType.ALLREDUCE), parse(Source("three", three))
    (run,) = simulate_job(job, t, [1 << 20]).runs
    assert 0 < min(run.library) <= max(run.library) <= run.time
