"""Compiled loops on disk: found again, and never believed when something is wrong with them."""

from __future__ import annotations

import errno
import importlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import caching, config
from numba.core.codegen import JITCPUCodegen

from hccc.base.jit import loop_cache

LOOPS = """
from hccc.base.jit.compiled import njit
from called import FACTOR, once

@njit
def loop(values):
    total = 0
    for value in values:
        total += FACTOR * once(value)
    return total
"""
CALLED = """
from hccc.base.jit.compiled import njit

FACTOR = 2

@njit(inline="{inline}")
def once(value):
    return value + {added}
"""
OF_A_PAIR = """
from hccc.base.jit.compiled import njit

@njit
def loop(pair):
    return pair.a - pair.b
"""
OF_ARRAYS = """
import numpy as np
from hccc.base.jit.compiled import njit

@njit
def loop(values):
    found = [np.sort(values)[1:].sum()]
    found.append(values.argmax())
    if values[0] < 0:
        raise ValueError("below 0")
    return found

@njit
def unknown(values):
    return np.sort(values)[::-1].copy()
"""
IN_A_PROCESS_OF_ITS_OWN = """
import sys
import numpy as np
import loops

values = np.array([5, 3, 1, 4])
assert loops.loop.compiled(values) == [12, 0]
assert loops.loop.compiled.stats.cache_hits, "it was compiled"
assert not {"numba.np.arraymath", "numba.np.linalg"} & {*sys.modules}
try:
    loops.loop.compiled(-values)
except ValueError as error:
    assert str(error) == "below 0"
else:
    raise AssertionError("no error was raised")
assert loops.unknown.compiled(values).tolist() == [5, 4, 3, 1]  # compiles afterwards
assert loops.loop.compiled(values.astype(np.int32)) == [12, 0]
"""
VALUES = np.arange(5)  # with FACTOR 2 and 1 added: 30


class Place:
    """A directory with two modules, and one where their loops are kept."""

    def __init__(self, path: Path) -> None:
        self.path, self.kept = path, path / "kept"
        self.write()

    def write(self, added: int = 1, factor: int = 2, inline: str = "never") -> None:
        """Writes the modules, with a constant in each place where one can be."""
        called = CALLED.format(added=added, inline=inline)
        (self.path / "called.py").write_text(called.replace("FACTOR = 2", f"FACTOR = {factor}"))
        (self.path / "loops.py").write_text(LOOPS)

    def start(self) -> Any:
        """Returns the compiled loop as a newly started process has it."""
        for name in ("loops", "called"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        loop_cache._content.cache_clear()
        return importlib.import_module("loops").loop.compiled

    def found(self, expected: int = 30, values: Any = VALUES) -> bool:
        """Tells whether the loop was on disk; its result must be right anyway."""
        loop = self.start()
        assert loop(values) == expected
        hits, misses = loop.stats.cache_hits, loop.stats.cache_misses
        assert sum(hits.values()) + sum(misses.values()) == 1
        return bool(hits)

    def files(self) -> list[Path]:
        """Lists the files kept of `loop`."""
        return sorted(self.kept.rglob("loops.loop-*"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "kept"))
    yield Place(tmp_path)
    for name in ("loops", "called", "pairs"):
        sys.modules.pop(name, None)


def test_a_loop_is_compiled_once(place: Place) -> None:
    assert [place.found(), place.found(), place.found()] == [False, True, True]
    assert not place.found(30, VALUES.astype(np.int32))
    assert place.found() and place.found(30, VALUES.astype(np.int32))
    assert len(place.files()) == 2


def _start_with_others(path: str, barrier: Any, found: Any) -> None:
    """Compiles or finds the loop when all processes are ready; puts whether it was on disk."""
    sys.path.insert(0, path)
    setattr(config, "CACHE_DIR", f"{path}/kept")  # noqa: B010  numba's stubs do not know it
    loop = importlib.import_module("loops").loop.compiled
    barrier.wait(60)
    assert loop(VALUES) == 30
    found.put(bool(loop.stats.cache_hits))


@pytest.mark.slow
def test_processes_that_start_at_once_compile_a_loop_once(place: Place) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, found = context.Barrier(3), context.Queue()
    arguments = (str(place.path), barrier, found)
    started = [context.Process(target=_start_with_others, args=arguments) for _ in range(3)]
    for process in started:
        process.start()
    assert sorted(found.get(timeout=60) for _ in started) == [False, True, True]
    for process in started:
        process.join()
    assert [path.suffix for path in place.files()] == [".loop"]


def _machine_code(data: bytes) -> bytes:
    at = data.index(b"\x7fELF") + 200
    return data[:at] + bytes(byte ^ 0x55 for byte in data[at : at + 1000]) + data[at + 1000 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "digest only": lambda data: data[:32],
    "cut": lambda data: data[: len(data) // 2],
    "last byte": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
    "garbage": lambda data: b"garbage" * 1000,
    "pickle of something": lambda data: data[:32] + b"\x80\x04N.",
    "machine code": _machine_code,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_compiled_again(place: Place, damage: str) -> None:
    """Believed, the last of these ends the process."""
    assert not place.found()
    (file,) = place.files()
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert [place.found(), place.found()] == [False, True]
    assert place.files() == [file]


def test_a_file_that_cannot_be_read_or_replaced_is_done_without(place: Place) -> None:
    assert not place.found()
    (file,) = place.files()
    file.unlink()
    file.mkdir()
    loop_cache._tell.cache_clear()
    assert [place.found(), place.found()] == [False, False]
    assert not list(place.kept.rglob("*.tmp"))


def test_reading_a_loop_imports_nothing_that_only_compiling_needs(place: Place) -> None:
    (place.path / "loops.py").write_text(OF_ARRAYS)
    assert place.start()(np.array([5, 3, 1, 4])) == [12, 0]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(place.kept)}
    environment["PYTHONPATH"] = os.pathsep.join([str(place.path), *sys.path])
    command = [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN]
    subprocess.run(command, env=environment, check=True)


@pytest.mark.parametrize("inline", ["never", "always"])
def test_a_change_of_a_called_loop_is_a_change(place: Place, inline: str) -> None:
    """In another file, which numba's own cache does not look at."""
    place.write(inline=inline)
    assert [place.found(), place.found()] == [False, True]
    place.write(added=3, inline=inline)
    assert [place.found(50), place.found(50)] == [False, True]
    place.write(added=3, factor=1, inline=inline)
    assert [place.found(25), place.found(25)] == [False, True]
    assert len(place.files()) == 1


def test_the_fields_of_a_named_tuple_are_part_of_what_it_is_given(place: Place) -> None:
    """Compiled code knows them by position; its class may be in a file that a loop never names."""
    (place.path / "loops.py").write_text(OF_A_PAIR)
    found = []
    for fields in ("a b", "a b", "b a"):
        module = place.path / "pairs.py"
        module.write_text(
            f'import collections\nPair = collections.namedtuple("Pair", "{fields}")\n'
        )
        sys.modules.pop("pairs", None)
        loop = place.start()
        assert loop(importlib.import_module("pairs").Pair(a=7, b=2)) == 5
        found.append(bool(loop.stats.cache_hits))
    assert found == [False, True, False]


def test_options_are_part_of_a_loop(place: Place) -> None:
    loop = place.start()
    before = loop_cache.stamp(loop)
    loop.targetoptions["nogil"] = False
    assert loop_cache.stamp(loop) != before


def test_every_processor_has_its_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a tree copied to, or shared with, another machine."""
    assert not place.found()
    real: Callable[[JITCPUCodegen], tuple[str, ...]] = JITCPUCodegen.magic_tuple
    monkeypatch.setattr(JITCPUCodegen, "magic_tuple", lambda self: (*real(self)[:2], "+another"))
    assert [place.found(), place.found()] == [False, True]
    monkeypatch.undo()
    assert len(list(place.files())) == 2


def _fill(place: Place, kind: str, gate: Any, out: Any) -> None:
    gate.wait()
    loop = place.start()
    out.put(int(loop(VALUES.astype(kind))))


@pytest.mark.slow
def test_processes_that_fill_it_at_once(place: Place) -> None:
    context = multiprocessing.get_context("fork")
    kinds = ["i2", "i4", "i8", "u4"]
    gate, out = context.Barrier(8), context.Queue()
    fillers = [context.Process(target=_fill, args=(place, k, gate, out)) for k in kinds * 2]
    for filler in fillers:
        filler.start()
    assert [out.get(timeout=60) for _ in fillers] == [30] * 8
    for filler in fillers:
        filler.join(60)
    assert len(place.files()) == len(kinds)
    assert all(place.found(30, VALUES.astype(kind)) for kind in kinds)


@pytest.mark.slow
def test_a_full_disk_is_told_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    loop_cache._tell.cache_clear()
    monkeypatch.setattr(os, "replace", full)
    assert [place.found(), place.found()] == [False, False]
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("note: compiled loops cannot be kept (No space left on device)")
    assert not [path for path in place.kept.rglob("*") if path.is_file()]


@pytest.mark.slow
def test_nowhere_to_write_is_told_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A read-only installation, and no home."""
    loop_cache._tell.cache_clear()
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    assert place.start()(VALUES) == 30
    assert place.start()(VALUES) == 30
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and "NUMBA_CACHE_DIR" in err


def test_loops_that_are_not_compiled_are_not_kept() -> None:
    """As NUMBA_DISABLE_JIT leaves them: functions, which stay as they are."""

    def loop() -> int:
        return 30

    loop_cache.keep(loop)
    assert not vars(loop) and loop() == 30
