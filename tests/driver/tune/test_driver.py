"""The driver's choices for a cluster, and the choices it leaves to the user."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver import assumed
from hccc.driver import compilation as driver
from hccc.driver.compiled import CompiledProgram
from hccc.driver.options import Options
from hccc.driver.tune import report
from hccc.driver.tune.setting import most_blocks
from hccc.ir import text as words
from hccc.ir.choices import Bits, PlanProtocol
from hccc.ir.collective import OpType
from hccc.ir.digest import digest
from hccc.ir.kernel_shape import slot_bytes
from hccc.ir.topology import Device, Topology, uniform
from hccc.lang.cluster.load import load
from hccc.lang.transfer import load as transfer
from hccc.passes.limit_bytes import MOST_SLOT_BYTES
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate
from hccc.synth.builtin.direct import direct
from tests.marks import slow

EXAMPLES = Path(__file__).parents[3] / "examples"
RING, RHD = EXAMPLES / "ring_allreduce.rccl", EXAMPLES / "rhd_allreduce.rccl"
SIZES = (1 << 12, 1 << 20, 1 << 28)
SHORT = [1 << k for k in range(3, 21)]


@cache
def site(name: str) -> Topology:
    return load(EXAMPLES / "clusters" / f"{name}.cluster")


@cache
def compiled(algorithm: str, on: str = "dgx-h100", **options: object) -> CompiledProgram:
    chosen = Options(prove=False, **options)  # type: ignore[arg-type]
    return driver.compile_text(transfer.read(EXAMPLES / f"{algorithm}.rccl"), chosen, site(on))


def took(made: CompiledProgram, size: int, in_place: bool = False) -> float:
    """Returns µs of a call, as the library runs it."""
    assert made.topology
    plan = made.at(size, in_place).plan
    return simulate(prepare(plan, made.topology), Request(size, in_place=in_place)).time


def test_a_switch_is_weighed_where_any_bits_will_do() -> None:
    """AllReduce of 1 GiB is a quarter faster by it; what only moves, or has no switch, is not."""
    large = 1 << 30
    same, any_bits = compiled("direct_allreduce"), compiled("direct_allreduce", bits="any")
    assert same.plan.multicast is None and any_bits.at(large, False).plan.multicast is Bits.ANY
    assert took(same, large) > 1.2 * took(any_bits, large)
    for algorithm, on in (("ring_allgather", "dgx-h100"), ("direct_allreduce", "mi300x")):
        made = compiled(algorithm, on, bits="any")
        assert made.at(large, False).plan.multicast is None


@pytest.mark.parametrize(
    ("algorithm", "on"),
    [
        ("ring_allreduce", "dgx-h100"),
        ("direct_alltoall", "mi300x"),
        slow("ring_reducescatter", "resccl-topo1"),
    ],
)
def test_what_is_chosen_is_about_as_fast_as_each_thing_it_could_be(algorithm: str, on: str) -> None:
    made = compiled(algorithm, on)
    fixed = [
        compiled(algorithm, on, network_lowering="put", fuse=fuse, channels=n, tune="off")
        for fuse in ("none", "full")
        for n in (1, 4)
    ]
    for size in SIZES:
        each = [
            took(one, size) for one in fixed if one.plan.blocks_per_rank <= most_blocks(site(on))
        ]
        assert took(made, size) <= 1.05 * min(each)


def test_a_ring_fills_the_links_though_its_header_has_one_channel() -> None:
    """The same program with one channel takes 20 times longer."""
    one = compiled("ring_allreduce", tune="off")
    best = compiled("ring_allreduce")
    assert one.plan.channels == 1
    assert took(best, 1 << 30) < took(one, 1 << 30) / 15


@pytest.mark.parametrize("most", [1, 2, 4, 12, 33])
def test_the_budget_of_sms_holds_for_every_plan(most: int) -> None:
    made = compiled("ring_allreduce", max_sms=most)
    assert all(plan.blocks_per_rank <= most for plan in (*made.catalogue.plans, made.plan))
    assert made.options.channels == made.plan.channels


def test_channels_and_the_budget_of_sms_hold_together() -> None:
    made = compiled("ring_allreduce", max_sms=5, channels=2)
    assert made.plan.channels == 2 and made.plan.blocks_per_rank <= 5
    with pytest.raises(UserError, match="--channels 6"):
        compiled("ring_allreduce", max_sms=5, channels=6)


def test_calls_too_long_to_simulate_have_no_time_and_are_refused_alone() -> None:
    made = compiled("ring_allreduce", channels=1, sizes="1K..1T")
    assert made.tuned
    assert not np.isfinite(made.tuned.probed[:, -1]).any()
    json.dumps(report.facts(made.tuned), allow_nan=False)
    assert all(line.endswith("  -") for line in list(report.structure_lines(made.tuned))[1:])
    with pytest.raises(UserError, match="cut too often"):
        compiled("ring_allreduce", channels=1, sizes="1T")


def test_structures_of_the_same_times_are_one_line_and_the_chosen_are_marked() -> None:
    made = compiled("ring_allreduce", sizes="1K..64M")
    assert made.tuned
    lines = list(report.structure_lines(made.tuned))[1:]
    times = [line.split()[-len(made.tuned.probes) :] for line in lines]
    assert len({tuple(line) for line in times}) == len(lines) < len(made.tuned.names)
    more = sum(int(line.partition(" (")[2].split()[0]) for line in lines if " more alike)" in line)
    assert len(lines) + more == len(made.tuned.names)
    used = {
        made.tuned.names[made.tuned.candidates[r.candidate].structure] for r in made.tuned.ranges
    }
    marked = [line[2:].partition(" (")[0].split("  ")[0] for line in lines if line.startswith("* ")]
    assert marked and set(marked) <= used


@pytest.mark.parametrize(
    ("devices", "taken"),
    [
        (("nvidia", "nvidia"), "32 SMs"),
        (("amd",), "32 CUs"),
        (("nvidia", "amd"), "32 blocks"),
        (("any",), "32 blocks"),  # as a profile of a host has it
        ((), "32 blocks"),
    ],
)
def test_blocks_are_counted_by_what_they_take(devices: tuple[str, ...], taken: str) -> None:
    known = tuple(Device(vendor=vendor) for vendor in devices)
    t = replace(uniform(2, 2, 2), devices=known) if known else None
    assert words.count(32, report.what_blocks_take(t)) == taken


def test_algorithms_of_one_name_are_told_apart_by_file() -> None:
    text = RING.read_text()
    names = ["a/one.rccl", "a/two.rccl"]
    made = driver.compile_library(
        [Source(name, text) for name in names], Options(prove=False, sizes="1M"), site("dgx-h100")
    )
    assert made.tuned
    assert {name.partition(":")[0] for name in made.tuned.names} == {"one.rccl", "two.rccl"}


def test_what_is_given_is_not_chosen() -> None:
    made = compiled("ring_allreduce", channels=5, fuse="none", scheduler="list")
    assert {plan.channels for plan in made.catalogue.plans} == {5}
    assert made.options.scheduler == "list" and made.tuned
    assert all("fuse none" in name and "list" in name for name in made.tuned.names)


def test_off_leaves_everything_to_the_header() -> None:
    made = compiled("ring_allreduce", tune="off")
    assert (made.tuned, made.catalogue.alone, made.plan.window) == (None, True, 0)
    unasked = driver.compile_text(transfer.read(RING), Options(prove=False))
    assert (unasked.tuned, unasked.plan.channels) == (None, 1)


def test_one_plan_where_one_is_asked_for() -> None:
    made = compiled("ring_allreduce", plans=1)
    assert made.catalogue.alone and made.tuned and len(made.tuned.ranges) == 2
    assert made.plan.window == made.tuned.candidates[made.tuned.best][1].window


def test_only_the_sizes_asked_for_count() -> None:
    small, large = (compiled("ring_allreduce", sizes=s, plans=1) for s in ("1K..4K", "1G"))
    assert took(small, 1 << 11) <= took(large, 1 << 11)
    assert took(large, 1 << 30) <= took(small, 1 << 30)
    assert large.tuned and large.tuned.sizes == (1 << 30,)


@pytest.mark.slow
def test_ranges_are_whole_and_each_size_has_about_its_best() -> None:
    made = compiled("hm_allreduce", "resccl-topo4")
    tuned = made.tuned
    assert tuned
    for kind in (False, True):
        begins = [one.begin for one in tuned.ranges if one.in_place == kind]
        assert begins[0] == 0 and begins == sorted(set(begins))
    best = tuned.times.min(1)
    for s, size in enumerate(tuned.sizes):
        assert took(made, size) == pytest.approx(best[0, s], rel=0.1)
    assert np.isfinite(best).all()


@pytest.mark.slow
def test_the_same_is_chosen_every_time() -> None:
    one, two = (
        driver.compile_text(transfer.read(RING), Options(prove=False), site("dgx-h100")).tuned
        for _ in range(2)
    )
    assert one and two
    assert (one.candidates, one.ranges, one.best) == (two.candidates, two.ranges, two.best)


@cache
def library(*names: str, on: str = "dgx-h100") -> CompiledProgram:
    sources = [
        Source(f"{name}.rccl", (EXAMPLES / f"{name}.rccl").read_text(encoding="utf-8"))
        for name in names
    ]
    return driver.compile_library(sources, Options(prove=False), site(on))


@pytest.mark.slow
def test_a_library_takes_the_best_algorithm_for_each_size() -> None:
    """Halving and doubling has few steps, the ring is faster from some size on."""
    made = library("ring_allreduce", "rhd_allreduce")
    assert not made.catalogue.alone and made.catalogue.name == "allreduce"
    sources = [plan.source for plan in made.catalogue.plans]
    assert set(sources) == {"rhd_allreduce.rccl", "ring_allreduce.rccl"}
    assert made.at(1 << 10, False).plan.source == "rhd_allreduce.rccl"
    assert made.at(1 << 30, False).plan.source == "ring_allreduce.rccl"
    for size in SIZES:
        alone = min(took(compiled("ring_allreduce"), size), took(compiled("rhd_allreduce"), size))
        assert took(made, size) <= 1.03 * alone


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (("ring_allreduce", "ring_allgather"), {}, "ring_allgather is Allgather of 8 ranks"),
        (("ring_allreduce", "hm_allreduce"), {}, "of 32 ranks"),
        (("ring_allreduce", "rhd_allreduce"), {"tune": "off"}, "nothing to choose"),
        (("ring_allreduce", "rhd_allreduce"), {"plans": 1}, "nothing to choose"),
    ],
)
def test_what_is_no_library(names: tuple[str, ...], options: dict[str, object], said: str) -> None:
    sources = [
        Source(f"{name}.rccl", (EXAMPLES / f"{name}.rccl").read_text(encoding="utf-8"))
        for name in names
    ]
    with pytest.raises(UserError) as caught:
        driver.compile_library(sources, Options(**options), assumed.common_cluster)  # type: ignore[arg-type]
    assert caught.value.problem.code == "E321" and said in caught.value.problem.message


def test_without_a_cluster_it_is_the_most_common_node() -> None:
    made = driver.compile_text(
        transfer.read(EXAMPLES / "hm_allreduce.rccl"),
        Options(prove=False, sizes="1M"),
        assumed.common_cluster,
    )
    assert made.topology and made.topology.name == "4 nodes of 8 H100 (assumed)"
    assert made.plan.provenance and made.plan.provenance.cluster
    assert made.tuned


def test_large_programs_are_tried_less(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(prove=False, sizes="1M")
    monkeypatch.setattr("hccc.driver.structures.MOST_TRIED", 100)
    some = driver.compile_text(transfer.read(RING), options, site("dgx-h100")).tuned
    monkeypatch.setattr("hccc.driver.structures.MOST_SCHEDULED", 100)
    one = driver.compile_text(transfer.read(RING), options, site("dgx-h100")).tuned
    assert some and one
    assert (len(some.names), len(one.names)) == (2, 1)


def test_large_programs_of_many_steps_are_list_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hccc.driver.structures.MOST_TRIED", 10)
    monkeypatch.setattr("hccc.driver.structures.MOST_SCHEDULED", 10)
    for hops, first in ((14, "list"), (15, "hpds")):  # of a ring's Allreduce over 8 ranks
        monkeypatch.setattr("hccc.driver.structures.HOPS", hops - 1)
        tuned = driver.compile_text(
            transfer.read(RING), Options(prove=False, sizes="1M"), site("dgx-h100")
        ).tuned
        assert tuned and [name.split(",")[0] for name in tuned.names] == [first]


def test_a_large_alltoall_is_list_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hccc.driver.structures.MOST_TRIED", 10)
    monkeypatch.setattr("hccc.driver.structures.MOST_SCHEDULED", 10)
    t, options = site("dgx-h100"), Options(prove=False, sizes="1M")
    for op, first in ((OpType.ALLTOALL, "list"), (OpType.ALLGATHER, "hpds")):  # of few steps each
        tuned = driver.compile_program(direct(t, op), options, t).tuned
        assert tuned and [name.split(",")[0] for name in tuned.names] == [first]


def test_a_header_that_gives_way_is_told() -> None:
    text = RING.read_text(encoding="utf-8").replace("nChannels=1", "nChannels=2")
    made = driver.compile_text(Source("a.rccl", text), Options(), site("dgx-h100"))
    assert "W403" in [problem.code for problem in made.warnings]
    for kept in (Options(channels=2), Options(tune="off")):
        again = driver.compile_text(Source("a.rccl", text), kept, site("dgx-h100"))
        assert "W403" not in [problem.code for problem in again.warnings]
        assert again.plan.channels == 2


def test_alike_structures_are_searched_once() -> None:
    """All orders of halving and doubling come to the same primitives."""
    tuned = compiled("rhd_allreduce", sizes="1M").tuned
    assert tuned and len(tuned.names) > 2
    by_name = dict(zip(tuned.names, tuned.probed.tolist(), strict=True))
    other = next(name for name in tuned.names if name.startswith("list"))
    assert by_name[other] == by_name[other.replace("list", "hpds", 1)]
    structures = {structure for structure, _ in tuned.candidates}
    assert not {tuned.names[k] for k in structures} >= {other, other.replace("list", "hpds", 1)}


@pytest.mark.slow
def test_protocol_auto_takes_packets_for_short_calls_only() -> None:
    made, simple = (compiled("direct_allreduce", protocol=name) for name in ("auto", "simple"))
    known = {plan.name: plan.protocol for plan in made.catalogue.plans}
    assert known[made.at(8, False).plan.name] is PlanProtocol.LL
    assert made.plan.protocol is PlanProtocol.SIMPLE  # it would serve all sizes
    for plan in made.catalogue.plans[:-1]:
        of = [part for part in made.catalogue.ranges if made.catalogue.plans[part.plan] is plan]
        # Its slots hold the longest call that it gets, and no longer one.
        assert plan.max_bytes == max(made.catalogue.end(part) or math.inf for part in of)
        assert slot_bytes(plan) <= MOST_SLOT_BYTES
    for in_place in made.catalogue.modes:
        now, before = ([took(one, size, in_place) for size in SHORT] for one in (made, simple))
        assert all(a <= 1.01 * b for a, b in zip(now, before, strict=True))
        assert now[0] < 0.7 * before[0]
    lines = [*report.structure_lines(made.tuned)] if made.tuned else []
    assert any("* hpds, fuse auto, packets" in line and "too long" in line for line in lines)
    short, middle = (made.made_with[made.at(size, False).plan.name] for size in (8, 1 << 18))
    assert short.protocol == middle.protocol == "ll"
    assert (short.fuse, middle.fuse) == ("auto", "full"), "one shot, and two for longer calls"


def test_protocol_auto_serves_calls_that_are_longer_than_those_asked_for() -> None:
    made = compiled("direct_allreduce", protocol="auto", sizes="1K..4K")
    assert made.at(1 << 30, False).plan.protocol is PlanProtocol.SIMPLE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "on"),
    [("binomial_broadcast", "dgx-h100"), slow("hm_allreduce", "resccl-topo4")],
)
def test_protocol_auto_is_simple_where_there_are_no_packets(algorithm: str, on: str) -> None:
    made, simple = (compiled(algorithm, on, protocol=name) for name in ("auto", "simple"))
    assert [*map(digest, made.catalogue.plans)] == [*map(digest, simple.catalogue.plans)]


def test_protocol_auto_says_what_it_cannot_do() -> None:
    with pytest.raises(UserError, match="nothing to choose by") as without:
        compiled("direct_allreduce", protocol="auto", tune="off")
    assert without.value.problem.code == "E410"
    text = transfer.read(EXAMPLES / "direct_allreduce.rccl")
    with pytest.raises(UserError, match="packets between processes") as on_cpus:
        driver.compile_text(text, Options(protocol="auto"), assumed.cluster_of([8], "cpu"))
    assert on_cpus.value.problem.code == "E323"
