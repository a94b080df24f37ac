"""Communicators run libraries of protocol LL: results, calls that differ, ranks that die."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.runtime.communicator import Communicator
from tests.communicator.conftest import Library
from tests.communicator.test_faults import OTHERS, VICTIM, other_calls, wrong_once
from tests.communicator.world import Lost, run, start
from tests.emit import plans
from tests.marks import slow


@pytest.fixture(scope="module")
def packets(library: Library) -> Path:
    """Builds an AllReduce of three ranks that exchange packets."""
    plan = driver.compile_program(plans.mesh_allreduce(3), Options(protocol="ll")).plan
    return library(replace(plan, max_bytes=1 << 20))  # as large as the tests' calls


def sums(c: Communicator, place: Path) -> bool:
    """Makes calls of many lengths, from memory of hccc's and from any other."""
    c.load(place, ["float32"], ["sum"])
    right = True
    for k, count in enumerate([1, 50_000, 2, 0, 900, 3, 50_000, 0, 0, 7] * 20):
        x = np.full(count, c.rank + k, np.float32) if k % 2 else c.empty(count)
        x[:] = c.rank + k + np.arange(count) % 5
        c.all_reduce(x)
        right &= bool((x == 3 + 3 * k + 3 * (np.arange(count) % 5)).all())
    return right


def test_sums_of_many_lengths(packets: Path) -> None:
    assert run(3, sums, packets) == [True] * 3


def test_another_call_at_one_rank_costs_nothing(packets: Path) -> None:
    found = start(3, other_calls, packets).outcomes()
    assert found[0] == found[1] == found[2]
    for text, said in zip(found[0], (*OTHERS.values(), "of 0 float32"), strict=True):
        assert said in text and "rank 1 calls" in text, text


@pytest.mark.parametrize("how", [slow("die"), "stall"])
def test_every_rank_is_told(packets: Path, how: str) -> None:
    silent = [VICTIM] if how == "die" else []
    found = start(3, wrong_once, packets, how).outcomes(silent=silent)
    for rank in (0, 2):
        lost = found[rank]
        assert isinstance(lost, Lost) and lost.seconds < 4
        said = "rank 1 is gone" if how == "die" else "rank 1 has not started the call"
        assert said in lost.text, lost.text
