"""Records of kernels: every micro-batch of every primitive once, in the plan's order."""

from __future__ import annotations

import ctypes
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.analysis.waits import enforced
from hccc.base.diagnostics import UserError
from hccc.driver.compilation import compile_text
from hccc.driver.compiled import Compiled, LoadedPlans
from hccc.driver.options import Options
from hccc.ir.arrays import I8
from hccc.ir.transport import Transport
from hccc.lang.transfer import load as transfer
from hccc.launch import tracing
from hccc.launch.measure import RunOptions, measure
from hccc.launch.tracing import Traced, Tracer
from hccc.runtime.build import Variant, build_library
from hccc.runtime.recording import RECORD, STRIDE, LaunchRecording, Recorder, joined, recording
from tests.emit import catalogues
from tests.emit.catalogues import BORDER
from tests.marks import slow
from tests.runtime.handwritten import INCLUDE, PROGRAMS

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZE = 20_000  # no multiple of anything


def compiled(name: str, transport: Transport, channels: int = 1) -> Compiled:
    """Compiles an example; its launches have several micro-batches."""
    options = Options(transport=transport, channels=channels, tune="off", prove=False)
    return compile_text(transfer.read(EXAMPLES / f"{name}.rccl"), options)


def traced(made: Compiled, procs: int = 0, window: int = 0) -> list[Traced]:
    """Runs one launch out of place and one in place."""
    options = RunOptions(
        SIZE,
        SIZE,
        iters=2,
        warmup_iters=1,
        micro_batch=512,
        procs=procs,
        window=window,
        trace=Path("trace.json"),
    )
    tracer = Tracer(made.catalogue)
    rows = list(measure(made, options, tracer=tracer))
    assert not any(row.wrong for row in rows)
    assert [one.request.in_place for one in tracer.launches] == [False, True]
    return tracer.launches


def rows_of(one: Traced) -> I8:
    """Returns each record's primitive in the plan: i8[n]."""
    plan, found = one.plan, one.recording
    first = np.cumsum(plan.n_tb) - plan.n_tb
    block = first[found.rank] + found.block // plan.channels
    return np.asarray(plan.tb_ptr[block] + found.records["primitive"], np.int64)


def check_complete(one: Traced) -> None:
    """Checks that each micro-batch of each primitive is there exactly once in each channel."""
    plan, found = one.plan, one.recording
    assert found.lost == 0
    batch, channel = found.records["micro_batch"], found.block % plan.channels
    instance = (rows_of(one) * plan.channels + channel) * one.sizes.batches + batch
    every = len(plan) * plan.channels * one.sizes.batches
    assert np.array_equal(np.sort(instance), np.arange(every))


def check_order(one: Traced) -> None:
    """Checks that a thread block does one thing after the other, in order of windows, primitives
    and micro-batches, and that nothing is ready before its awaited primitives have ended."""
    plan, found = one.plan, one.recording
    begin, ready, end = (found.records[name].astype(np.int64) for name in ("begin", "ready", "end"))
    assert (begin <= ready).all() and (ready <= end).all()
    same = (np.diff(found.rank) == 0) & (np.diff(found.block) == 0)
    assert (begin[1:] >= end[:-1])[same].all()
    batch = found.records["micro_batch"].astype(np.int64)
    keys = np.stack([batch // one.window, found.records["primitive"], batch])
    told = (keys[0] * len(plan) + keys[1]) * one.sizes.batches + keys[2]
    assert (np.diff(told) > 0)[same].all()
    shape = len(plan), plan.channels, one.sizes.batches
    ended, became = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    at = rows_of(one), found.block % plan.channels, batch
    ended[at], became[at] = end, ready
    waits = enforced(plan)
    assert (became[waits.owner()] >= ended[waits.index]).all()


CASES = [
    ("ring_allreduce", Transport.STAGED, 2, 0, 0),
    ("ring_allreduce", Transport.STAGED, 1, 4, 2),
    slow("hm_allreduce", Transport.AUTO, 1, 0, 2),  # with a network
    slow("binomial_broadcast", Transport.AUTO, 2, 2, 0),
]


@pytest.mark.quick(1)
@pytest.mark.parametrize("name, transport, channels, procs, window", CASES)
def test_every_primitive_of_every_micro_batch(
    name: str, transport: Transport, channels: int, procs: int, window: int
) -> None:
    """In this process, over a network, and of several processes that are joined."""
    for one in traced(compiled(name, transport, channels), procs, window):
        assert one.sizes.batches > 1 and len(enforced(one.plan).index)
        check_complete(one)
        check_order(one)


@pytest.mark.slow
@pytest.mark.parametrize("procs", [0, 2])
def test_the_plan_that_a_catalogue_picks(procs: int) -> None:
    """Plans of a library have different numbers of thread blocks."""
    catalogue = catalogues.both()
    made = LoadedPlans.of(catalogue)
    options = RunOptions(
        BORDER // 8,
        BORDER * 8,
        stepfactor=8,
        iters=1,
        warmup_iters=0,
        procs=procs,
        trace=Path("trace.json"),
    )
    tracer = Tracer(made.catalogue)
    assert not any(row.wrong for row in measure(made, options, tracer=tracer))
    assert {one.plan.name for one in tracer.launches} == {one.name for one in catalogue.plans}
    for one in tracer.launches:
        check_complete(one)
        check_order(one)


def test_rings_that_are_too_short_lose_the_earliest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MOST_RECORDS", 64)
    made = compiled("ring_allreduce", Transport.STAGED)
    for one in traced(made):
        plan, found = one.plan, one.recording
        every = len(plan) * plan.channels * one.sizes.batches
        assert 0 < len(found) <= 64 and len(found) + found.lost == every
        last = np.flatnonzero(np.diff(np.append(found.block + found.rank * 1000, -1)))
        assert (found.records["micro_batch"][last] == one.sizes.batches - 1).all()


@pytest.fixture(scope="module")
def ring() -> Iterator[dict[bool, Path]]:
    """Yields two builds of a library: with recording (True) and without (False)."""
    source = PROGRAMS / "ring_cpu.cpp"
    yield {
        trace: build_library(source, Variant("float32", trace=trace), include=[INCLUDE])
        for trace in (False, True)
    }


def test_the_default_build_has_nothing_of_it(ring: dict[bool, Path]) -> None:
    said = {
        trace: subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout
        for trace, path in ring.items()
    }
    assert " V hccc_tracing\n" in said[True] and "trac" not in said[False]
    assert b"tracing" not in ring[False].read_bytes()


def test_the_compiler_sees_nothing_of_it_by_default(tmp_path: Path) -> None:
    """The text that is compiled is the same with the macros and the include taken out."""
    plain = tmp_path / "hccc"
    plain.mkdir()
    for header in (INCLUDE / "hccc").iterdir():
        if header.name not in ("trace.h", "tracing.h", "span.h"):
            lines = header.read_text().splitlines()
            kept = [x for x in lines if "HCCC_TRACED(" not in x and 'tracing.h"' not in x]
            kept = [x for x in kept if x != '#include "span.h"']
            (plain / header.name).write_text("\n".join(kept))
    texts = []
    for include in (INCLUDE, tmp_path):
        command = ["g++", "-std=c++17", "-E", "-P", f"-I{include}", f"-I{PROGRAMS}"]
        done = subprocess.run(
            [*command, PROGRAMS / "staged_cpu.cpp"], capture_output=True, text=True, check=True
        )
        texts.append("".join(done.stdout.split()))
    assert texts[0] == texts[1] and "hccc_record" not in texts[0]


def test_a_library_that_cannot_record_is_refused(ring: dict[bool, Path]) -> None:
    with (
        pytest.raises(UserError, match="built without HCCC_TRACE"),
        recording(ring[False], range(1), 1, 1),
    ):
        pass


def test_a_library_records_only_meanwhile(ring: dict[bool, Path]) -> None:
    pointer = ctypes.c_void_p.in_dll(ctypes.CDLL(str(ring[True])), "hccc_tracing")
    assert pointer.value is None
    with recording(ring[True], range(2, 4), 3, 8) as recorder:
        assert pointer.value == ctypes.addressof(recorder.trace)
    assert pointer.value is None and len(recorder.read()) == 0


@given(st.lists(st.integers(0, 20), min_size=6, max_size=6), st.integers(0, 3))
def test_a_ring_keeps_the_latest_in_order(written: list[int], bits: int) -> None:
    """As span.h writes: record k at k modulo the slots, whatever was written before."""
    slots, ranks, blocks = 1 << bits, range(5, 8), 2
    recorder = Recorder(ranks, blocks, slots)
    counts = np.ctypeslib.as_array(
        ctypes.cast(recorder.trace.written, ctypes.POINTER(ctypes.c_uint64)), (6 * STRIDE,)
    )
    memory = ctypes.cast(recorder.trace.records, ctypes.POINTER(ctypes.c_uint8))
    size = 6 * slots * RECORD.itemsize
    records = np.ctypeslib.as_array(memory, (size,)).view(RECORD).reshape(6, slots)
    for place, many in enumerate(written):
        counts[place * STRIDE] = many
        for k in range(many):
            records[place, k % slots] = (k, k, k, place, k)
    found = recorder.read()
    wanted = [
        (5 + place // blocks, place % blocks, k)
        for place, many in enumerate(written)
        for k in range(max(0, many - slots), many)
    ]
    times = found.records["micro_batch"]
    assert list(zip(found.rank, found.block, times, strict=True)) == wanted
    assert found.lost == sum(max(0, many - slots) for many in written)
    both = joined([found, LaunchRecording.of(json.loads(json.dumps(found.fields())))])
    assert np.array_equal(both.records[len(found) :], found.records)
    assert len(both) == 2 * len(found) and both.lost == 2 * found.lost
