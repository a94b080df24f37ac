"""Builds: cached by content, and clear when they fail."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import hccc.runtime.build as build
from hccc.base.building.compiler import find_compiler
from hccc.base.diagnostics import UserError
from hccc.runtime.build import Variant, build_all, build_library
from tests.marks import slow
from tests.runtime.handwritten import INCLUDE, PROGRAMS


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Makes a directory as hccc generates it: the headers beside the source."""
    shutil.copytree(INCLUDE / "hccc", tmp_path / "hccc")
    for name in ("mesh_cpu.cpp", "mesh.inc", "entry.h"):
        shutil.copy(PROGRAMS / name, tmp_path)
    return tmp_path / "mesh_cpu.cpp"


def test_a_library_is_built_once(source: Path) -> None:
    first = build_library(source, Variant("int32"))
    made = first.stat().st_mtime_ns
    assert build_library(source, Variant("int32")) == first
    assert first.stat().st_mtime_ns == made
    header = source.parent / "hccc" / "types.h"
    header.write_text(header.read_text() + "\n// changed\n")
    assert build_library(source, Variant("int32")) != first


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "damage",
    [
        lambda good: b"",
        slow(lambda good: good[: len(good) // 2]),
        slow(lambda good: good[:-1]),
        slow(lambda good: b"not a library" * 1000),
        lambda good: good[:-9] + b"something",
    ],
)
def test_a_damaged_library_is_built_again(source: Path, damage: Callable[[bytes], bytes]) -> None:
    first = build_library(source, Variant("int32"))
    first.write_bytes(damage(first.read_bytes()))
    again = build_library(source, Variant("int32"))
    ctypes.CDLL(str(again))
    assert list(first.parent.iterdir()) == [again]


@pytest.mark.slow
def test_a_library_of_another_processor_is_not_used(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines that share a disk: `-march=native` means something else on each."""
    first = build_library(source, Variant("int32"))
    monkeypatch.setattr(build, "processor", lambda: "another")
    second = build_library(source, Variant("int32"))
    assert first != second and first.exists()
    monkeypatch.undo()
    assert build_library(source, Variant("int32")) == first


def test_without_a_compiler_what_was_built_is_used(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build_library(source, Variant("int32"))
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert build_library(source, Variant("int32")) == built
    with pytest.raises(UserError, match="E412"):
        build_library(source, Variant("int64"))


def test_another_compiler_builds_its_own(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_library(source, Variant("int32"))
    other = source.parent / "g++"
    other.symlink_to(find_compiler())
    monkeypatch.setenv("CXX", str(other))
    assert build_library(source, Variant("int32")) != first


def test_several_variants_at_once(source: Path) -> None:
    variants = [Variant("int32"), Variant("float32", "max")]
    built = build_all(source, variants)
    assert list(built) == variants
    assert len({path.name for path in built.values()}) == 2


def test_a_failed_compile_shows_the_compiler(source: Path) -> None:
    (source.parent / "mesh.inc").write_text("int x = nonsense;\n")
    with pytest.raises(UserError, match=r"E414(.|\n)*nonsense"):
        build_library(source, Variant("int32"))
    assert not list(source.parent.rglob("*.so"))


@pytest.mark.parametrize("bad", [("float8", "sum"), ("int8", "xor"), ("int8 -DX", "sum")])
def test_names_are_checked(bad: tuple[str, str]) -> None:
    with pytest.raises(UserError, match=r"E41[17]"):
        Variant(*bad)
