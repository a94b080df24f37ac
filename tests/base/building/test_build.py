"""Builds kept in a cache: made once while other processes wait, and found without a compiler."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import pytest

from hccc.base.building.build import Piece, build_alone, build_pieces, digest_of_folder
from hccc.base.building.compiler import TIMEOUT_S, find_compiler
from hccc.base.diagnostics import UserError
from hccc.base.files.libraries import name_of
from hccc.runtime.build import Variant, build_several

ONE = 'extern "C" __attribute__((visibility("default"))) int one() { return 1; }\n'


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a source file; what is built from it goes to a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "one.cpp"
    path.write_text(ONE)
    return path


def telling(place: Path, shell: str = "") -> tuple[Path, Path]:
    """Makes a compiler that logs each compilation of one.cpp: (the compiler, its log)."""
    compiler, calls = place / "compiler", place / "calls"
    told = f'case "$*" in *one.cpp*) echo >> {calls}; {shell or ":"};; esac'
    compiler.write_text(f'#!/bin/sh\n{told}\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    calls.touch()
    return compiler, calls


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(UserError, match="E412"):
        find_compiler()


def test_what_was_built_needs_no_compiler(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_alone(source, ["-O1"])
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert build_alone(source, ["-O1"]) == first
    with pytest.raises(UserError, match="E412"):
        build_alone(source, ["-O2"])
    source.write_text(ONE + "int more;\n")
    with pytest.raises(UserError, match="E412"):
        build_alone(source, ["-O1"])


def test_a_piece_knows_the_digest_of_a_folder(source: Path) -> None:
    """Of what it was compiled with: a file that changes changes it, in a library built anew."""
    headers = source.parent / "headers"
    headers.mkdir()
    (headers / "a.h").write_text("// first\n")
    source.write_text(
        'extern "C" __attribute__((visibility("default"))) const char *\n'
        "digest() { return HEADERS; }\n"
    )
    piece = Piece(source, include=(headers,), digests=(("HEADERS", headers),))

    def told() -> str:
        digest = ctypes.CDLL(str(build_pieces([piece]))).digest
        digest.restype = ctypes.c_char_p
        return str(digest().decode())

    first = told()
    assert first == digest_of_folder(headers) and len(first) == 16
    (headers / "a.h").write_text("// second\n")
    assert told() == digest_of_folder(headers) != first


def test_what_does_not_compile(source: Path) -> None:
    source.write_text("int x = nonsense;\n")
    with pytest.raises(UserError, match=r"E414(.|\n)*nonsense"):
        build_alone(source, ["-O1"])
    assert not list((source.parent / "cache").rglob("*one*"))


def test_the_same_source_elsewhere_is_not_built_again(source: Path) -> None:
    """Environments that have the same hccc share what is built."""
    one, other = (source.parent / name / source.name for name in ("one", "other"))
    for path in (one, other):
        path.parent.mkdir()
        path.write_text(ONE)
    assert build_alone(one, []) == build_alone(other, [])
    assert build_pieces([Piece(one)]) == build_pieces([Piece(other)])
    (other.parent / "read.h").touch()
    assert build_pieces([Piece(one)]) != build_pieces([Piece(other)])


def test_what_was_cut_short_is_built_again(source: Path) -> None:
    first = build_alone(source, [])
    whole = first.read_bytes()
    first.write_bytes(whole[: len(whole) // 2])
    assert build_alone(source, []).read_bytes() == whole
    assert len(list(first.parent.iterdir())) == 1


def test_what_was_built_long_ago_goes(source: Path) -> None:
    old = build_alone(source, ["-O1"])
    os.utime(old, (0, 0))
    build_alone(source, ["-O2"])
    assert not old.exists()


def alone(source: str, compiler: str) -> str:
    """Returns the path that `build_alone` gives with that compiler."""
    os.environ["CXX"] = compiler
    return str(build_alone(Path(source), ["-O1"]))


def plain(source: str, compiler: str) -> str:
    """Returns the path that `build_pieces` gives with that compiler."""
    os.environ["CXX"] = compiler
    return str(build_pieces([Piece(Path(source))]))


def kernels(source: str, compiler: str) -> str:
    """Returns the path of a library of kernels of that file, built with that compiler."""
    os.environ["CXX"] = compiler
    dispatch = Path(source).with_name("two.cpp")
    dispatch.touch()
    return str(build_several(dispatch, [Path(source)], [Variant("int8")]))


@pytest.mark.slow
@pytest.mark.parametrize("build", [alone, plain, kernels])
def test_processes_that_start_at_once_compile_once(
    source: Path, build: Callable[[str, str], str]
) -> None:
    """The others wait for the first."""
    compiler, calls = telling(source.parent, "sleep 0.5")
    with ProcessPoolExecutor(4, get_context("spawn")) as pool:
        made = set(pool.map(build, [str(source)] * 4, [str(compiler)] * 4))
    assert len(made) == 1 and Path(made.pop()).is_file()
    assert calls.read_text() == "\n"
    assert not list(source.parent.rglob("*.lock"))


def test_the_lock_of_a_process_that_was_killed_keeps_nobody(source: Path) -> None:
    """The file of its lock stays."""
    compiler, _ = telling(source.parent, "sleep 9")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        made = pool.submit(alone, str(source), str(compiler))
        while not (locks := list(source.parent.rglob("*.lock"))) and not made.done():
            time.sleep(0.01)
        (process,) = pool._processes.values()
        process.kill()
        with pytest.raises(BrokenProcessPool):
            made.result()
    assert locks[0].exists()
    started = time.monotonic()
    assert build_alone(source, ["-O1"]).is_file() and time.monotonic() - started < TIMEOUT_S
    assert not locks[0].exists()


def test_what_others_have_planted_is_not_loaded(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user knows every name: the folder in a shared TMPDIR, the file, and its content's
    hash."""
    planted = source.parent / "planted"
    monkeypatch.setenv("XDG_CACHE_HOME", str(planted))
    known = build_alone(source, ["-O1"])
    evil = known.with_name(name_of(known.stem.rpartition("-")[0], ".so", b"evil"))
    evil.write_bytes(b"evil")
    known.unlink()
    assert build_alone(source, ["-O1"]) == evil  # as a place of this user's it would be found
    shared = source.parent / "tmp"
    shared.mkdir(mode=0o777)
    (shared / f"hccc-{os.getuid()}").symlink_to(planted / "hccc")
    (source.parent / "none").touch()
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(source.parent / "none"))
    monkeypatch.setenv("TMPDIR", str(shared))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(UserError, match=r"E413(.|\n)*is no directory"):
        build_alone(source, ["-O1"])
