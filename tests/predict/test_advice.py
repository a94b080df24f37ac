"""Warnings about a call on a cluster."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import hccc
from hccc.base.diagnostics import Problem
from hccc.driver import compilation as driver
from hccc.driver.compiled import Compiled
from hccc.driver.options import Options
from hccc.ir.topology import Topology
from hccc.lang.cluster.load import load
from hccc.lang.transfer import load as transfer
from hccc.predict.advice import advice
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def site(name: str = "dgx-h100") -> Topology:
    return load(EXAMPLES / "clusters" / f"{name}.cluster")


@cache
def ring(channels: int) -> Compiled:
    options = Options(channels=channels, tune="off", prove=False)
    return driver.compile_text(transfer.read(EXAMPLES / "ring_allreduce.rccl"), options, site())


def advised(made: Compiled, size: int, on: Topology) -> dict[str, Problem]:
    run = simulate(prepare(made.plan, on), Request(size))
    return {problem.code: problem for problem in advice(made, on, run)}


def test_how_many_blocks_would_do_is_so() -> None:
    told = advised(ring(1), 1 << 28, site())["W401"]
    assert told.help
    channels = int(told.help.split("--channels ")[1].split(",")[0])

    def took(n: int) -> float:
        return simulate(prepare(replace(ring(1).plan, channels=n), site()), Request(1 << 28)).time

    assert f"with {3 * channels} " in told.message
    assert took(channels) < 0.3 * took(1)
    assert took(channels) <= 1.05 * took(11)


@pytest.mark.parametrize(("channels", "size"), [(11, 1 << 28), (1, 1 << 10)])
def test_where_blocks_do_not_matter_nothing_is_said(channels: int, size: int) -> None:
    """Links are full, or latency is all."""
    assert advised(ring(channels), size, site()) == {}


def test_a_plan_for_another_cluster(tmp_path: Path) -> None:
    made = hccc.compile(EXAMPLES / "ring_allreduce.rccl", Options(plans=1), cluster=site())
    hccc.write(made, tmp_path / "k", ["cpu"])
    read = hccc.compile(tmp_path / "k")
    assert "W402" not in advised(read, 1 << 20, site())
    told = advised(read, 1 << 20, site("mi300x"))["W402"]
    assert "dgx-h100" in told.message and "mi300x" in told.message
    assert "W402" not in advised(made, 1 << 20, site("mi300x"))  # it was just compiled


def test_the_simulation_has_them() -> None:
    found = hccc.simulate(ring(1), [1 << 28], cluster=site())
    assert [problem.code for problem in found.warnings] == ["W401"]
    warned = found.facts()["warnings"]
    assert isinstance(warned, list) and warned[0]["code"] == "W401"
    why = hccc.explain(ring(1), 1 << 28, cluster=site())
    assert [problem.code for problem in why.warnings] == ["W401"]
