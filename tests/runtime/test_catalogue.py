"""Catalogues on the CPU: sizes on both sides of a border, in any order, in and out of place."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hccc.driver.outputs import kernels
from hccc.emit.targets import CPU, TARGETS
from hccc.ir.catalogue import Catalogue, Range
from hccc.ir.micro_batch import GRAIN
from hccc.ir.primitives import Transport
from hccc.ir.program import Program
from hccc.launch.measure import between
from hccc.runtime.cpu import CpuCatalogueLauncher
from hccc.runtime.fault import LaunchError
from hccc.runtime.measure import patterns, perf
from hccc.runtime.measure.patterns import Pattern
from hccc.runtime.network import Wire
from hccc.runtime.picks import picks_of
from hccc.runtime.request import LaunchRequest
from hccc.validate.validate import validate
from hccc.validate.validated import Validated
from tests.emit import catalogues, plans
from tests.emit.catalogues import BORDER, FIRST

pytestmark = pytest.mark.slow  # kernels of two plans take seconds to compile
AROUND = [b // 4 + off for b in (FIRST, BORDER, 4 * BORDER) for off in (-1, 0, 1)]


def communicator(
    catalogue: Catalogue, place: Path, wire: Wire | None = None
) -> CpuCatalogueLauncher:
    catalogues.written(catalogue, place, (CPU,))
    network = None if wire is None else between(catalogue.plans[0], wire)
    source = place / f"{catalogue.name}_cpu_dispatch.cpp"
    return CpuCatalogueLauncher(source, catalogue, network=network)


def wrong(group: CpuCatalogueLauncher, request: LaunchRequest, seed: int) -> int:
    """Returns how many elements one launch gets wrong, in all ranks' buffers and around them."""
    p = Pattern(group.collective, request.dtype, request.op, request.count, seed)
    ranks = range(group.collective.n_ranks)
    memory = [perf.allocate(p, rank, request.in_place) for rank in ranks]
    for rank, m in enumerate(memory):
        patterns.poison(m.slab)
        m.send[...] = patterns.inputs(p, rank)
    sends = [m.send if m.sends else None for m in memory]
    group.launch(sends, [m.receive if m.receives else None for m in memory], request)
    return perf.wrong_elements(p, memory)


def launches(group: CpuCatalogueLauncher, counts: Sequence[int], rounds: int) -> None:
    """Checks sizes in any order, and both kinds of call, in one communicator: flags go on."""
    rng = np.random.default_rng(3)
    for seed in range(rounds):
        for count in rng.permutation(counts):
            in_place = bool(rng.integers(2))
            assert wrong(group, LaunchRequest(int(count), "float32", "sum", in_place), seed) == 0


def flags_used(group: CpuCatalogueLauncher, catalogue: Catalogue) -> list[bool]:
    """Tells of each plan whether anything was counted in its flags."""
    picks = picks_of(catalogue)
    at = [picks.flags_at(k) for k in range(len(catalogue.plans) + 1)]
    assert len(group.flags[0]) == at[-1]
    return [bool(group.flags[0][a:b].any()) for a, b in itertools.pairwise(at)]


@pytest.mark.parametrize("transport", [Transport.DIRECT, Transport.STAGED])
def test_sizes_in_any_order(tmp_path: Path, transport: Transport) -> None:
    catalogue = catalogues.both(4, transport)
    group = communicator(catalogue, tmp_path)
    assert wrong(group, LaunchRequest(FIRST // 4 - 1, "float32", "sum", in_place=True), 0) == 0
    assert flags_used(group, catalogue) == [True, False]
    assert wrong(group, LaunchRequest(FIRST // 4, "float32", "sum", in_place=True), 0) == 0
    assert flags_used(group, catalogue) == [True, True]
    launches(group, [0, 1, 3, *AROUND, 300_001], 12)


def test_a_hang_names_the_plan(tmp_path: Path) -> None:
    """The second of two plans does not raise a flag: calls of its sizes hang, calls of the first's
    sizes run before and after."""
    catalogue = catalogues.both()
    group = communicator(catalogue, tmp_path)
    second = tmp_path / f"{catalogue.plans[1].name}{CPU.suffix}"
    text = second.read_text(encoding="utf-8")
    edited = re.sub(r"hccc_posts\(hccc_post\([^;]*?\)\)\)", "hccc_posts())", text, count=1)
    assert edited != text
    second.write_text(edited, encoding="utf-8")
    assert wrong(group, LaunchRequest(FIRST // 4 - 1, "float32", "sum", in_place=True), 0) == 0
    with pytest.raises(LaunchError) as caught:
        wrong(group, LaunchRequest(BORDER, "float32", "sum", timeout=0.5), 0)
    assert f"in {catalogue.plans[1].name}: " in str(caught.value)
    group.reset()
    assert wrong(group, LaunchRequest(FIRST // 4 - 1, "float32", "sum", in_place=True), 1) == 0


OTHERS = [plans.broadcast(4), plans.ring_allgather(5), plans.alltoall(4)]


@pytest.mark.parametrize("program", OTHERS, ids=lambda p: p.name)
def test_other_collectives_and_transports(tmp_path: Path, program: Program) -> None:
    """A direct plan, and a staged plan with windows bounded by its queues; validated as well."""
    direct = plans.compiled(program)
    staged = replace(plans.compiled(program, transport=Transport.STAGED), max_window=2)
    ranges = [
        Range(False, 0, 1, 0, GRAIN),
        Range(False, BORDER, 0, 0, GRAIN),
        Range(True, 0, 0, 3, GRAIN),
        Range(True, BORDER, 1, 1, GRAIN),
    ]
    catalogue = catalogues.made("mixture", (direct, staged), ranges)
    group = communicator(catalogue, tmp_path)
    texts = {name: text.encode() for name, text in kernels(catalogue, TARGETS).items()}
    assert isinstance(validate(texts, catalogue, TARGETS), Validated)
    per = 4 * catalogue.collective.most_blocks()
    launches(group, [0, 1, BORDER // per - 1, BORDER // per, BORDER // per + 1, 30_001], 4)


def test_dtypes_and_reductions_are_built_as_asked(tmp_path: Path) -> None:
    group = communicator(catalogues.both(), tmp_path)
    requests = [LaunchRequest(0, "int8", "max"), LaunchRequest(0, "float64", "avg")]
    group.build(requests)
    built = {path.name for path in (tmp_path / "build").iterdir()}
    assert len(built) == 6 and sum(name.endswith(".so") for name in built) == 2
    for request in requests:
        for size in (FIRST, BORDER):
            count = size // request.itemsize
            assert wrong(group, LaunchRequest(count, request.dtype, request.op), 1) == 0
    assert {path.name for path in (tmp_path / "build").iterdir()} == built


def test_windows_and_micro_batches_that_are_named(tmp_path: Path) -> None:
    group = communicator(catalogues.both(), tmp_path)
    for window, micro_batch in ((1, 0), (0, 4096), (3, 1 << 20)):
        for count in AROUND:
            request = LaunchRequest(count, "float32", micro_batch=micro_batch, window=window)
            assert wrong(group, request, window) == 0


@pytest.mark.parametrize("lowering", ["slots", "put"])
def test_a_proxy_between_domains(tmp_path: Path, lowering: str) -> None:
    """A proxy raises the flags of the plan that runs."""
    catalogue = catalogues.apart(lowering)
    assert {plan.transport for plan in catalogue.plans} == {Transport.MIXED}
    for wire in (Wire(), Wire(latency=20.0, copy_on_arrival=True)):
        group = communicator(catalogue, tmp_path / "k", wire)
        launches(group, [0, 5, *AROUND], 3)
        assert flags_used(group, catalogue) == [True, True]


def test_a_lost_launch_of_one_plan_ends_those_of_all(tmp_path: Path) -> None:
    group = communicator(catalogues.both(), tmp_path)
    assert wrong(group, LaunchRequest(10, "float32"), 0) == 0
    group._fault.claimed = 1
    for count in (10, BORDER):
        with pytest.raises(Exception, match="E420"):
            wrong(group, LaunchRequest(count, "float32"), 0)
    group.reset()
    launches(group, AROUND, 2)
