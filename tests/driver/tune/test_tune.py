"""Structures that are given up where their calls take long to simulate."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.driver.tune import timing, tune
from hccc.driver.tune.tune import Tuner, TuneRequest
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.lang.cluster.load import load
from hccc.lang.transfer import load as transfer

EXAMPLES = Path(__file__).parents[3] / "examples"
SIZES = (1 << 10, 1 << 20, 1 << 30)


@cache
def site() -> Topology:
    return load(EXAMPLES / "clusters" / "dgx-h100.cluster")


@cache
def plan(algorithm: str) -> Plan:
    options = Options(prove=False, tune="off")
    return driver.compile_text(transfer.read(EXAMPLES / f"{algorithm}.rccl"), options, site()).plan


def tuner() -> Tuner:
    """Returns a Tuner that has tried the direct algorithm, which is faster at all sizes."""
    made = Tuner(site(), TuneRequest(SIZES, 32, kernels=2))
    made.probe("direct", plan("direct_allreduce"))
    return made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every call one that takes long to simulate if its flows share any link."""
    monkeypatch.setattr(timing, "BEHIND", 1)
    monkeypatch.setattr(tune, "BEHIND", 1)


@pytest.mark.usefixtures("impatient")
def test_what_cannot_catch_up_is_given_up_at_the_last_probe() -> None:
    made = tuner()
    best = made.probe("direct again", plan("direct_allreduce"))
    assert math.isinf(made.probe("ring", plan("ring_allreduce"), best=best))
    found = made.finish()
    assert np.isfinite(found.probed[2, :-1]).all() and np.isinf(found.probed[2, -1])
    assert found.candidates[found.best].structure == 0


@pytest.mark.usefixtures("impatient")
def test_what_may_catch_up_is_simulated() -> None:
    made = tuner()
    assert made.probe("ring", plan("ring_allreduce"), best=100.0) < math.inf


def test_without_long_calls_nothing_is_given_up() -> None:
    made = tuner()
    value = made.probe("ring", plan("ring_allreduce"), best=-100.0)
    assert value < math.inf
    assert value == tuner().probe("ring", plan("ring_allreduce"))
