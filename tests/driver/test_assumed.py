"""Clusters of programs that none is given for."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hccc
from hccc.base.diagnostics import UserError
from hccc.driver.assumed import ASSUMED, VARIABLE, common_cluster, host_cluster, text_of, tuned_for
from hccc.driver.options import Options
from hccc.ir.program import Program
from hccc.ir.topology import Level
from hccc.lang.transfer import load as transfer
from tests.test_architecture import ROOT

RING = ROOT / "examples" / "ring_allreduce.rccl"


def program(gpus: int = 8, nics: int = 8) -> Program:
    """Makes a ring of 8 ranks whose header has nodes of so many GPUs and NICs."""
    return replace(transfer.load(RING), gpus_per_node=gpus, nics_per_node=min(gpus, nics))


@pytest.mark.parametrize(
    ("gpus", "nics", "name", "device"),
    [(8, 8, "8 H100", "H100"), (4, 4, "2 nodes of 4 GH200", "GH200"), (4, 2, "", "GH200")],
)
def test_common_nodes_are_those_of_the_header(gpus: int, nics: int, name: str, device: str) -> None:
    made = common_cluster(program(gpus, nics))
    assert np.bincount(made.node).tolist() == [gpus] * (8 // gpus)
    assert name in made.name and made.name.endswith(ASSUMED)
    assert [one.name for one in made.devices] == [device]
    if gpus < 8:
        assert len(set(made.port[Level.NIC].tolist())) == 2 * nics


@pytest.mark.parametrize("gpus", [8, 4])
def test_hosts_are_those_of_the_header(gpus: int) -> None:
    made = host_cluster(program(gpus))
    assert np.bincount(made.node).tolist() == [gpus] * (8 // gpus)
    assert made.name.endswith(ASSUMED) and made.devices[0].vendor == "cpu"
    if gpus == 8:
        assert made.cores.tolist() == [len(os.sched_getaffinity(0))]


def test_a_host_is_as_it_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "host.cluster"
    file.write_text(text_of([8], 3))
    monkeypatch.setenv(VARIABLE, str(file))
    assert host_cluster(program()).cores.tolist() == [3]
    file.write_text(text_of([4], 3))
    with pytest.raises(UserError, match="E424"):
        host_cluster(program())


def test_targets_say_which(monkeypatch: pytest.MonkeyPatch) -> None:
    one = program()

    def name(*targets: str, **options: str) -> str | None:
        made = tuned_for(Options(**options), targets)(one)  # type: ignore[arg-type]
        return made.name.removesuffix(ASSUMED) if made else None

    assert name() == name("cuda", "cpu") == name("hip") == "8 H100"
    assert name("cpu") == "this host"
    assert name("cpu", tune="off") is None
    monkeypatch.setattr("hccc.driver.assumed.MOST_SCHEDULED", len(one) - 1)
    assert name() is None


@pytest.mark.slow
def test_python_and_the_command_line_assume_the_same() -> None:
    compiled = hccc.compile(RING, Options(sizes="1M"))
    simulated = hccc.simulate(RING, "1M", options=Options(sizes="1M"))
    explained = hccc.explain(compiled, "1M")
    assert compiled.topology is not None
    assert compiled.topology.name == simulated.cluster == f"8 H100{ASSUMED}"
    assert simulated.results[0].time == pytest.approx(explained.gap.run.time)
    assert hccc.compile(RING, Options(tune="off")).topology is None
    alone = hccc.compile(RING, Options(sizes="1K"), cluster=hccc.host_cluster)
    assert alone.topology is not None and alone.topology.name == f"this host{ASSUMED}"
