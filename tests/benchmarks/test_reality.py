"""benchmarks/reality: its tables are the published ones, and the model agrees with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reality import reality, tables
from hccc.predict.nccl.machine import NcclLink, NcclNetwork
from tests.cli.commandline import Hccc
from tests.cli.commandline import hccc as hccc


def test_the_model_agrees_with_machines() -> None:
    """Of each class of sizes, the median error is within 15 %, and eight in ten within 30 %."""
    chosen = [t for t in tables.tables() if not t.context]
    classes = np.concatenate([tables.size_class(t.sizes) for t in chosen])
    error = np.abs(np.concatenate([reality.errors(t) for t in chosen]))
    for k in range(len(tables.CLASSES)):
        assert np.median(error[classes == k]) < 0.15
        assert np.mean(error[classes == k] <= 0.3) > 0.8


def test_a_machine_that_is_left_out_says_nothing() -> None:
    """Slingshot's figures come from GH200's tables only: without them, InfiniBand's stand in."""
    pytest.importorskip("scipy")
    from benchmarks.reality import fit

    ids = {t.id for t in fit.counted() if fit.apart(t, "GH200", "Slingshot")}
    assert ids.isdisjoint({"55", "56", "64"}) and {"24", "39", "17"} <= ids
    own = fit.Fit(t for t in fit.counted() if t.id in ids)
    assert own.figures["hop"]["Slingshot"] == own.figures["hop"]["InfiniBand"]
    assert "Slingshot" not in own.figures["net_ll"] and "Slingshot" not in own.figures["rendezvous"]
    assert not any(key == "Slingshot" for _, key in own.keys)
    h100 = {t.id for t in fit.counted() if fit.apart(t, "H100", "EFA")}
    assert h100.isdisjoint({"08", "24", "90"}) and {"91", "96", "19"} <= h100


def test_every_table_has_a_source_and_ranks_as_its_machine() -> None:
    seen = [t.id for t in tables.tables()]
    assert len(seen) == len(set(seen)) > 90
    assert all(t.source for t in tables.tables())


@pytest.mark.parametrize(
    ("table", "machine"),
    [
        ("24", (8, 1, NcclLink.NVSWITCH, 450, NcclNetwork.INFINIBAND, True, True)),
        ("07", (8, 2, NcclLink.NVSWITCH, 300, NcclNetwork.EFA1, False, True)),
        ("58", (4, 8, NcclLink.NVLINK_MESH, 450, NcclNetwork.SLINGSHOT, False, True)),
        ("12", (72, 1, NcclLink.NVSWITCH, 900, NcclNetwork.INFINIBAND, True, True)),
        ("37", (8, 2, NcclLink.XGMI_MESH, 537.6, NcclNetwork.ROCE, False, True)),
        ("53", (4, 1, NcclLink.PCIE, 31.5, NcclNetwork.ROCE, False, False)),
        ("188", (8, 1, NcclLink.PCIE, 31.5, NcclNetwork.ROCE, False, False)),
        ("155", (1, 2, NcclLink.NVSWITCH, 900, NcclNetwork.INFINIBAND, False, True)),
    ],
)
def test_clusters_are_the_machines(table: str, machine: tuple[object, ...]) -> None:
    m = next(t.machine for t in tables.tables() if t.id == table)
    found = (m.gpus, m.nodes, m.link, pytest.approx(m.wire, rel=1e-3), m.network, m.nvls, m.peer)
    assert found == machine


def test_every_table_is_predicted_through_a_cluster_file() -> None:
    for t in tables.tables():
        assert t.cluster.startswith("define device = ")
        assert t.machine.ranks == t.machine.nodes * t.machine.gpus


def test_the_command_line_predicts_what_the_tables_are_compared_with(
    hccc: Hccc, tmp_path: Path
) -> None:
    table = next(t for t in tables.tables() if t.id == "39")
    cluster = tmp_path / "two.cluster"
    cluster.write_text(table.cluster)
    argv = ("--collective", "allreduce", "--cluster", cluster, "-b", "8", "-e", "4G", "-f", "2")
    code, out, _ = hccc("sim", "--baseline", "nccl", *argv, "--json")
    found = {row["size"]: row["time"] for row in json.loads(out)["results"]}
    assert code == 0
    for p in table.predicted():
        assert found[p.size] == pytest.approx(p.time_us, rel=1e-6)
