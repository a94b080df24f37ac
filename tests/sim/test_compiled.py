"""The engine of C++ and the one that numba compiles: the same layout, and the same results."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from hccc.base.building.compiler import find_compiler
from hccc.base.diagnostics import Source, UserError
from hccc.driver.assumed import common_cluster
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.lang.transfer import load as transfer
from hccc.sim import compiled, engine, library, state
from hccc.sim.costs import Costs
from hccc.sim.machine import Machine, prepare
from hccc.sim.simulate import ENDLESS, Request, simulate
from hccc.testing.clusters import cluster
from tests.sim.test_simulate import drawn, law

ROOT = Path(__file__).parents[2]
BROKEN = ("exit 1", 'echo no library > "$(echo "$*" | sed "s/.*-o //")"')
C_TYPES = {"<f8": "double", "<i8": "int64_t", "<i4": "int32_t"}
RECORDS = {
    "Primitive": state.PRIMITIVE,
    "Block": state.BLOCK,
    "Resource": state.RESOURCE,
    "Use": state.USE,
    "Queue": state.QUEUE,
    "Instance": state.INSTANCE,
    "Transfer": state.TRANSFER,
    "Pair": state.PAIR,
    "Item": state.ITEM,
    "Entry": state.ENTRY,
}
Engine = Callable[[state.State, float], compiled.Engine]


def test_records_lie_alike_in_both(tmp_path: Path) -> None:
    """Every field has the same type at the same place, and there are no others."""
    lines = [f'#include "{library.SOURCE}"', "#include <cstddef>", "#include <type_traits>"]
    for name, record in RECORDS.items():
        lines.append(f'static_assert(sizeof({name}) == {record.itemsize}, "{name}");')
        for field, (kind, offset, *_) in (record.fields or {}).items():
            of = f"{name}, {field}"
            lines.append(f'static_assert(offsetof({of}) == {offset}, "{of}");')
            c_type = C_TYPES[kind.str]
            lines.append(
                f'static_assert(std::is_same<decltype({name}::{field}), {c_type}>::value, "{of}");'
            )
    for i, name in enumerate(state.State._fields):
        lines.append(f'static_assert(offsetof(State, {name}) == {8 * i}, "{name}");')
    tables: dict[str, type[ctypes.Structure]]
    tables = {"State": compiled.Tables, "Progress": compiled.Progress}
    for name, table in tables.items():
        lines.append(f'static_assert(sizeof({name}) == {ctypes.sizeof(table)}, "{name}");')
        for field, *_ in table._fields_:
            at = getattr(table, field).offset
            lines.append(f'static_assert(offsetof({name}, {field}) == {at}, "{field}");')
    source = tmp_path / "layout.cpp"
    source.write_text("\n".join(lines) + "\n")
    command = [find_compiler(), "-std=c++17", "-fsyntax-only", "-w", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_lists_and_kinds_are_numbered_alike(tmp_path: Path) -> None:
    names = ["IDLE", "FIXED", "MOVING", "MESSAGE", "CREDIT", "FLAG", "SAME_TIME"]
    names += ("TODO", "DIRTY", "NEW", "RESOURCES", "BLOCKS", "GROWING", "STOPPED", "DUE", "HEAP")
    lines = [f'#include "{library.SOURCE}"']
    lines += [f'static_assert({n} == {getattr(state, n)!r}, "{n}");' for n in names]
    source = tmp_path / "numbers.cpp"
    source.write_text("\n".join(lines) + "\n")
    command = [find_compiler(), "-std=c++17", "-fsyntax-only", "-w", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def in_cpp(s: state.State, channels: float) -> compiled.Engine:
    """Returns the engine of C++."""
    found = library.library()
    assert not isinstance(found, UserError)
    return compiled.InCpp(found, s, channels)


def outcome(
    begin: Engine, machine: Machine, request: Request, work: int = ENDLESS, limit: float = math.inf
) -> list[object]:
    """Returns all that a run leaves, to the byte, and the result of `simulate`."""
    found: list[object] = []

    def watched(s: state.State, channels: float, limit: float) -> compiled.Ended:
        ended = compiled.ended(begin(s, channels), s, limit)
        for table in (s.instance, s.item, s.flag, s.waiting, s.queue, s.pair, s.length, s.work):
            found.append(table.tobytes())
        found.extend(s.resource[name].tobytes() for name in ("carried", "active", "demand"))
        found.extend(s.block[name].tobytes() for name in ("prim", "batch", "rate", "left", "since"))
        found.append(ended)
        return ended

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "run", watched)
        try:
            found.append(simulate(machine, request, work, limit).time)
        except UserError as error:
            found.append(str(error))
    return found


def check_alike(machine: Machine, request: Request) -> None:
    """Checks that both engines do the same, to the end and where a limit ends them half-way."""
    whole = outcome(in_cpp, machine, request)
    assert whole == outcome(engine.InNumba, machine, request)
    if isinstance(time := whole[-1], float):
        for limits in ({"limit": 0.9 * time}, {"limit": time / 2}, {"work": 5}):
            part = outcome(in_cpp, machine, request, **limits)
            assert part == outcome(engine.InNumba, machine, request, **limits)


CALLS = [
    Request(1 << 20, 1 << 12, window=1),
    Request(3_000_000, 1 << 14, window=2, in_place=True),
    Request(1 << 22, 1 << 13, costs=Costs(step=0.5, efficiency=120 / 128, contention=0.3)),
]
PROGRAM = """ResCCLAlgo(nRanks=8, AlgoName="x", OpType="Allgather", GPUPerNode=4, NICPerNode=2):
    for r in range(nRanks):
        for d in range(1, nRanks):
            transfer(r, (r + d) % nRanks, 0, r, recv)
"""
GPUS = """define nodenum = 2
define node1 = 2 * 4
define device = H100
define network = InfiniBand
define bandwidth = {port => [((0..3) -> (360, 1, 1))]}
define nic = [((0, 1) -> (45, 1, 3)), ((2, 3) -> (45, 1, 3))]
"""
PROCESSES = """define node1 = 8
define device = {vendor => cpu, name => CPU, block => 5, reduce => 4, cache => [(1 MiB -> (5, 30))]}
define bandwidth = {mesh => [((0..7) -> (12.5, 1, 0.25))]}
define cores = 3
define launch = {base => 3, entry => 2, wake => 50, small => 64 KiB}
"""


@pytest.mark.slow
@pytest.mark.parametrize("network_lowering", ["put", "slots"])
@pytest.mark.parametrize("where", [GPUS, PROCESSES])
@pytest.mark.parametrize("call", CALLS)
def test_both_engines_do_the_same(where: str, network_lowering: str, call: Request) -> None:
    """With proxies and queues, with cores and memory that are shared, with contention."""
    t = cluster(where)
    options = Options(tune="off", fuse="none", network_lowering=network_lowering, channels=2)
    check_alike(prepare(compile_text(Source("x", PROGRAM), options, t).plan, t), call)


def check_bound(machine: Machine, request: Request) -> None:
    """Checks that a limit ends a run early only if it would end late, and changes no other run."""
    whole = outcome(in_cpp, machine, request)
    if not isinstance(whole[-1], float):
        return
    ended = next(each for each in whole if isinstance(each, compiled.Ended))
    launched = simulate(machine, request).launch
    if ended.now == 0:  # all blocks are empty: nothing can be late
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "LOOK", 1)
        for part in (0.3, 0.9, 0.999, 1 - 1e-9):
            limit = launched + part * ended.now
            assert isinstance(outcome(in_cpp, machine, request, limit=limit)[-1], str)
        limit = launched + ended.now * (1 + 1e-9)
        assert outcome(in_cpp, machine, request, limit=limit) == whole


@pytest.mark.parametrize("where", [GPUS, PROCESSES])
@pytest.mark.parametrize("call", CALLS)
def test_what_a_run_takes_at_least_is_never_more_than_it_takes(where: str, call: Request) -> None:
    t = cluster(where)
    options = Options(tune="off", fuse="none", channels=2)
    check_bound(prepare(compile_text(Source("x", PROGRAM), options, t).plan, t), call)


def test_what_cannot_be_kept_ends_a_run_before_it_begins() -> None:
    """Half the bytes' time at the link is too little, whatever else happens."""
    t = cluster(GPUS)
    plan = compile_text(Source("x", PROGRAM), Options(tune="off"), t).plan
    machine, request = prepare(plan, t), Request(1 << 26)
    limit = simulate(machine, request).time / 2
    ended = outcome(in_cpp, machine, request, limit=limit)[-2]
    assert isinstance(ended, compiled.Ended) and ended.late and ended.now == 0.0


@law(40)
def test_the_bound_holds_for_random_plans(data: st.DataObject) -> None:
    """Without the launch, beside which limits of a short run can be one number."""
    machine, request = drawn(data)
    check_bound(machine, replace(request, costs=replace(request.costs, launch=0.0)))


@law(60)
def test_both_engines_do_the_same_with_random_plans(data: st.DataObject) -> None:
    check_alike(*drawn(data))


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.rccl")), ids=lambda p: p.stem)
def test_both_engines_do_the_same_with_the_examples(path: Path) -> None:
    compiled = compile_text(transfer.read(path), Options(tune="off", prove=False), common_cluster)
    assert compiled.topology is not None
    for size in (1 << 12, 1 << 24):
        check_alike(prepare(compiled.plan, compiled.topology), Request(size))


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yields an empty cache to build in, with nothing built or reported before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget = (library._built.cache_clear, compiled._tell.cache_clear)
    for each in forget:
        each()
    yield tmp_path / "cache"
    for each in forget:
        each()


def small_call() -> float:
    t = cluster(GPUS)
    plan = compile_text(Source("x", PROGRAM), Options(tune="off"), t).plan
    return simulate(prepare(plan, t), Request(1 << 20)).time


@pytest.mark.slow
def test_without_a_compiler_numba_compiles_the_engine_and_says_so(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = small_call()
    assert len(list(fresh.rglob("engine-*.so"))) == 1
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh / "empty"))
    monkeypatch.setenv("CXX", "/nowhere/c++")
    library._built.cache_clear()
    assert [small_call(), small_call()] == [built, built]
    said = capsys.readouterr().err
    assert said.count("note: the simulator is compiled without C++") == 1
    assert "/nowhere/c++" in said


@pytest.mark.slow
@pytest.mark.parametrize("compiler", BROKEN)
def test_a_broken_compiler_is_as_none(
    fresh: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    compiler: str,
) -> None:
    path = tmp_path / "c++"
    path.write_text(f"#!/bin/sh\n{compiler}\n")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    assert small_call() > 0
    assert "note: the simulator is compiled without C++" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh.write_text("no directory")
    monkeypatch.setenv("HOME", str(fresh))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert small_call() > 0
    assert len(list(tmp_path.glob("hccc-*/built/engine-*.so"))) == 1
    assert capsys.readouterr().err == ""


def test_a_command_builds_while_it_reads(fresh: Path) -> None:
    library.begin_building()
    assert not isinstance(library.library(), UserError)
