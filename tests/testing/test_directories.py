"""Directories of kernels are attacked at random: nothing planted runs, and mistakes are seen."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from hccc.base.building.compiler import run_compiler
from hccc.emit import compare, kept
from hccc.testing import directories
from hccc.testing.directories import DirectoryTally, attack_directories
from hccc.testing.mutate_directory import CHANGES
from tests.marks import LONG, slow


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets all attacks share one cache: the directory is the same."""
    place = tmp_path_factory.getbasetemp() / "directories-cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    monkeypatch.setattr(directories, "_cache_in", lambda _: nullcontext())


def attacked(examples: int, seed: int = 0) -> DirectoryTally:
    return attack_directories(
        None, examples=examples, seconds=None, seed=seed, on_example=lambda _: None
    )


@pytest.mark.slow
@pytest.mark.parametrize(("examples", "seed"), [(50, 0), slow(300 * LONG, 1000)])
def test_nothing_of_a_directory_runs(examples: int, seed: int) -> None:
    tally = attacked(examples, seed)
    assert tally.finding == "" and tally.examples == examples
    found = tally.by_change()
    assert found.keys() == {*CHANGES, "nothing"}
    assert found["nothing"] == (found["nothing"][0],) * 3  # accepted, all of them
    for change in ("header", "source", "library", "link", "folder link", "special"):
        assert found[change][1:] == (0, 0), change
    if examples >= 300:  # what a build left is refused by `check` alone
        assert found["build"][1] == 0 < found["build"][2]


@pytest.mark.slow
def test_the_same_seed_attacks_the_same() -> None:
    first, second = attacked(12, 7).outcomes, attacked(12, 7).outcomes
    assert first == second and first.total() == 12


def no_stranger_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "_refuse_others", lambda *_, **__: None)


def no_text_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "_hold", lambda *_: None)


def links_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(directory: Path, name: str, most: int) -> bytes | None:
        path = directory / name
        return path.read_bytes()[:most] if path.is_file() else None

    def entries(place: Path, folder: str, _: int) -> list[tuple[str, str]]:
        inside = (place / folder).iterdir()
        return [(path.name, "folder" if path.is_dir() else "file") for path in inside]

    monkeypatch.setattr(compare, "read_plain", read)
    monkeypatch.setattr(compare, "entries_in", entries)


def kernels_are_built_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_place(place: Path, *arguments: Any) -> Path:
        return kept.kept_kernels(place, *arguments) and place

    monkeypatch.setattr(directories, "kept_kernels", in_place)


def a_library_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: Any) -> None:
        ctypes.CDLL(str(self._place / "x.so"))

    monkeypatch.setattr(directories._Attacked, "_run", run)


def a_source_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: Any) -> None:
        run_compiler(self._place / "x.cpp", ["true", str(self._place / "x.cpp")])

    monkeypatch.setattr(directories._Attacked, "_run", run)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sabotage",
    [
        no_stranger_is_refused,
        no_text_is_compared,
        links_are_followed,
        kernels_are_built_in_place,
        a_library_is_loaded,
        a_source_is_compiled,
    ],
)
def test_a_mistake_is_found(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some hundred directories show what is wrong."""
    sabotage(monkeypatch)
    tally = attacked(300)
    assert tally.finding and tally.examples < 300, tally
