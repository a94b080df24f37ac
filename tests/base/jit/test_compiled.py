"""When a loop is compiled, and how often it looks for what others have compiled."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.caching import FunctionCache

from hccc.base.jit import compiled
from hccc.base.jit.compiled import COMPILE, LOAD, Loop, loop_directory

CALL = LOAD / 10  # s that each call takes


class SlowLoop:
    """A loop whose calls take long, by a clock of their own."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now, self.looks, self.kept = 0.0, 0, False
        patch.setattr(compiled, "form", "")
        patch.setattr(compiled, "thread_time", lambda: self.now)
        patch.setattr(Loop, "spent_by_all", compiled.IMPORT)
        self.loop = Loop(self._body, {}, False, lambda _: 0.0)
        self.loop.forms |= {"plain": self._body, "compiled": lambda _: "compiled"}
        patch.setattr(self.loop, "_kept", self._looked)
        patch.setitem(vars(self.loop), "_reached", [self.loop])

    def _body(self, _: object) -> str:
        self.now += CALL
        return "plain"

    def _looked(self) -> bool:
        self.looks += 1
        return self.kept

    def calls(self, seconds: float) -> list[str]:
        """Calls it for so long; returns the forms that ran."""
        return [self.loop(0) for _ in range(round(seconds / CALL))]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowLoop:
    return SlowLoop(monkeypatch)


def test_a_loop_is_compiled_once_it_has_spent_as_long(slow: SlowLoop) -> None:
    forms = slow.calls(1.5 * COMPILE)
    assert forms.index("compiled") == pytest.approx(COMPILE / CALL, abs=1)
    assert set(forms[forms.index("compiled") :]) == {"compiled"}


def test_it_looks_for_a_file_as_often_as_reading_one_would_have_paid(slow: SlowLoop) -> None:
    slow.calls(0.9 * LOAD)
    assert slow.looks == 0
    slow.calls(8 * LOAD)
    assert slow.looks == 8


def test_a_file_of_others_is_found_in_time(slow: SlowLoop) -> None:
    slow.calls(3 * LOAD)
    slow.kept = True
    forms = slow.calls(1.5 * LOAD)
    assert forms[-1] == "compiled"
    assert slow.now < 4.5 * LOAD


@pytest.mark.parametrize("expected", [False, True])
def test_a_file_is_read_before_numba_has_paid_if_much_is_expected(
    slow: SlowLoop, monkeypatch: pytest.MonkeyPatch, expected: bool
) -> None:
    monkeypatch.delitem(sys.modules, "numba")
    monkeypatch.setattr(Loop, "spent_by_all", 0.0)
    if expected:
        compiled.expect(compiled.IMPORT)
    slow.kept = True
    forms = slow.calls(2 * compiled.IMPORT)
    paid = LOAD if expected else compiled.IMPORT
    assert forms.index("compiled") == pytest.approx(paid / CALL, abs=1)


def test_a_file_that_has_the_loops_it_calls_is_read_as_soon(
    slow: SlowLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(slow.loop), "_reached", [slow.loop] * 6)
    slow.kept = True
    assert slow.calls(2 * LOAD).index("compiled") == pytest.approx(LOAD / CALL, abs=1)


def test_a_file_counts_if_its_sources_are_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    loop = Loop(_sum, {}, False, None)
    code = _sum.__code__
    file = loop_directory(Path(__file__)) / f"test_compiled._sum-{code.co_firstlineno}.x.loop"
    assert not loop._kept()
    file.parent.mkdir()
    file.touch()
    assert loop._kept()
    os.utime(file, (0, 0))
    assert not loop._kept()


@pytest.mark.parametrize("where", ["named", "beside", "user"])
def test_files_are_looked_for_where_numba_keeps_them(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory that is named, beside the source, or in the cache of whoever cannot write."""
    named = str(tmp_path / "named") if where == "named" else ""
    monkeypatch.setenv("NUMBA_CACHE_DIR", named)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("numba.config.CACHE_DIR", named)
    if where == "user":
        monkeypatch.setattr("numba.config.CACHE_LOCATOR_CLASSES", "UserWideCacheLocator")
        monkeypatch.setattr(os, "access", lambda *_: False)
    kept = FunctionCache(_sum).cache_path  # type: ignore[no-untyped-call]
    assert str(loop_directory(Path(__file__))) == kept


def _sum(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    return int(values.sum())
