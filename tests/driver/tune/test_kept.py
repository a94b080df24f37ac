"""Results of simulated calls in the user's cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.driver.tune import kept
from hccc.driver.tune import timing as timing_module
from hccc.driver.tune.kept import KeptCalls, Took, named
from hccc.driver.tune.tune import Tuned, Tuner, TuneRequest
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology, uniform
from hccc.lang.transfer import load as transfer

RING = Path(__file__).parents[3] / "examples" / "ring_allreduce.rccl"
REQUEST = TuneRequest((1 << 12, 1 << 20, 1 << 26), 16, kernels=2)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Makes a directory of this test the user's cache, in which everything is kept."""
    monkeypatch.setattr(kept, "user_directory", lambda name: tmp_path)
    monkeypatch.setattr(kept, "WORTH_S", 0.0)
    yield tmp_path


@pytest.fixture(scope="module")
def site() -> Topology:
    return uniform(8, 8, 1)


@pytest.fixture(scope="module")
def plan(site: Topology) -> Plan:
    options = Options(prove=False, tune="off")
    return driver.compile_text(transfer.read(RING), options, site).plan


def tuned(plan: Plan, site: Topology) -> Tuned:
    tuner = Tuner(site, REQUEST)
    tuner.probe("ring", plan)
    return tuner.finish()


def check_same(one: Tuned, other: Tuned) -> None:
    for name in ("sizes", "candidates", "probes", "instances", "best", "ranges"):
        assert getattr(one, name) == getattr(other, name)
    assert np.array_equal(one.times, other.times) and np.array_equal(one.probed, other.probed)


def refuse(*_: object) -> None:
    raise AssertionError("a call is simulated")


def test_tuning_again_simulates_nothing_and_finds_the_same(
    place: Path, plan: Plan, site: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tuned(plan, site)
    assert len(list(place.iterdir())) == 1
    monkeypatch.setattr(timing_module, "simulate", refuse)
    monkeypatch.setattr(timing_module, "prepare", refuse)
    check_same(tuned(plan, site), first)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "binary", "unchecked"])
def test_a_damaged_file_is_one_that_is_missing(
    damage: str, place: Path, plan: Plan, site: Topology
) -> None:
    first = tuned(plan, site)
    (path,) = place.iterdir()
    whole = path.read_text()
    wrong = {"cut": whole[:-20], "changed": whole.replace("1", "2"), "empty": "", "unchecked": "{}"}
    path.write_bytes(wrong.get(damage, "").encode() or b"\xff\0" * bool(damage == "binary"))
    assert KeptCalls(plan, site).known == {}
    check_same(tuned(plan, site), first)
    assert path.read_text() == whole


def test_a_cache_that_cannot_be_written_is_none(
    place: Path, plan: Plan, site: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tuned(plan, site)
    monkeypatch.setattr(kept, "user_directory", lambda name: place / "missing")
    check_same(tuned(plan, site), first)


def test_what_is_kept_is_of_one_structure_cluster_and_version(
    place: Path, plan: Plan, site: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = KeptCalls(plan, site)
    calls.known["a call"] = Took(1.5, 2.0, 0.25, 0.1, 7)
    calls.known["a longer one"] = None
    calls.save()
    assert KeptCalls(plan, replace(site, name="of another name")).known == calls.known
    assert KeptCalls(plan, uniform(8, 8, 2)).known == {}
    assert KeptCalls(plan, replace(site, launch=site.launch + 1.0)).known == {}
    assert KeptCalls(replace(plan, queue_slots=plan.queue_slots + 1), site).known == {}
    monkeypatch.setattr(kept, "_sources", lambda: b"others")
    assert KeptCalls(plan, site).known == {}


def test_calls_that_differ_have_names_that_differ() -> None:
    words = [(1 << 20, 0, 1, False), (1 << 20, 0, 1, True), (1 << 20, 4, 1, False)]
    calls = [(2, words[0], 5, 1.0), (4, words[0], 5, 1.0), (2, words[0], 6, 1.0)]
    calls += [(2, words[0], 5, 1.5), (2, words[0], 5, float("inf"))]
    calls += [(2, other, 5, 1.0) for other in words[1:]]
    assert len({named(*call) for call in calls}) == len(calls)


def test_files_are_few_and_the_oldest_go(
    place: Path, plan: Plan, site: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MOST_FILES", 3)
    for _ in range(3):
        for k in range(3):
            KeptCalls(replace(plan, queue_slots=k + 1), site).save()
    last = KeptCalls(replace(plan, queue_slots=9), site)
    last.save()
    assert len(list(place.iterdir())) == 3
    monkeypatch.setattr(kept, "KEPT_S", -1.0)
    last.save()
    assert not list(place.iterdir())


def test_a_file_of_too_many_calls_begins_anew(
    place: Path, plan: Plan, site: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = KeptCalls(plan, site)
    calls.known |= {str(k): None for k in range(5)}
    calls.save()
    assert KeptCalls(plan, site).known == calls.known
    monkeypatch.setattr(kept, "MOST_CALLS", 4)
    assert KeptCalls(plan, site).known == {}
