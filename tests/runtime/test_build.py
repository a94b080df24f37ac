"""Builds: cached by content, and clear when they fail."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from hccc.base.diagnostics import UserError
from hccc.runtime import build
from hccc.runtime.build import (
    Piece,
    Variant,
    build_all,
    build_library,
    build_plain,
    find_compiler,
)
from tests.marks import slow
from tests.runtime.handwritten import INCLUDE, PROGRAMS


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory as hccc generates it: the headers beside the source."""
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
    monkeypatch.setattr(build, "processor", lambda path: "another")
    second = build_library(source, Variant("int32"))
    assert first != second and first.exists()
    monkeypatch.undo()
    assert build_library(source, Variant("int32")) == first


def test_the_processor_is_what_the_compiler_makes_of_it(tmp_path: Path) -> None:
    compiler = tmp_path / "c++"
    known = build.processor(find_compiler())
    assert known == build.processor(find_compiler())
    compiler.write_text('#!/bin/sh\necho "#define __SSE9__ 1"\n')
    compiler.chmod(0o755)
    assert build.processor(str(compiler)) != known


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


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(UserError, match="E412"):
        find_compiler()


@pytest.mark.parametrize("bad", [("float8", "sum"), ("int8", "xor"), ("int8 -DX", "sum")])
def test_names_are_checked(bad: tuple[str, str]) -> None:
    with pytest.raises(UserError, match=r"E41[17]"):
        Variant(*bad)


def built_plain(source: str, compiler: str) -> str:
    """What `build_plain` gives with that compiler."""
    os.environ["CXX"] = compiler
    return str(build_plain([Piece(Path(source))]))


def test_processes_that_start_at_once_compile_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for the first."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    source, calls, compiler = (tmp_path / name for name in ("one.cpp", "calls", "compiler"))
    source.write_text('extern "C" __attribute__((visibility("default"))) int one() { return 1; }\n')
    told = f'case "$*" in *-c*one.cpp*) echo >> {calls}; sleep 0.5;; esac'
    compiler.write_text(f'#!/bin/sh\n{told}\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    with ProcessPoolExecutor(4, get_context("spawn")) as pool:
        made = set(pool.map(built_plain, [str(source)] * 4, [str(compiler)] * 4))
    assert len(made) == 1 and Path(made.pop()).is_file()
    assert calls.read_text() == "\n"
