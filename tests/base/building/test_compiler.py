"""A compiler has limits, and no text can give it words."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from hccc.base.building import compiler
from hccc.base.building.build import Piece, build_pieces
from hccc.base.building.compiler import limited, own_options, run_compiler
from hccc.base.diagnostics import UserError
from hccc.runtime.build import Variant, build_library


def run(code: str, memory: int) -> int:
    command = limited([sys.executable, "-c", code], memory)
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode


@pytest.mark.skipif(sys.platform != "linux", reason="no limit of address space")
def test_memory_is_limited_in_all_its_processes() -> None:
    assert run("bytearray(1 << 28)", 1 << 30) == 0
    assert run("bytearray(1 << 30)", 1 << 29) != 0
    child = "import subprocess, sys; c = 'bytearray(1 << 30)'; "
    child += "sys.exit(subprocess.run([sys.executable, '-c', c]).returncode)"
    assert run(child, 1 << 29) != 0


def test_words_reach_no_shell(tmp_path: Path) -> None:
    words = ["$(touch made)", "; touch made", "`touch made`", "a  b", "*", ""]
    code = "import sys; sys.exit(sys.argv[1:] != " + repr(words) + ")"
    command = limited([sys.executable, "-c", code, *words])
    assert subprocess.run(command, cwd=tmp_path).returncode == 0
    assert not list(tmp_path.iterdir())


def test_one_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "TIMEOUT_S", 0.2)
    with pytest.raises(UserError, match="E414"):
        run_compiler(tmp_path / "x.cpp", ["sleep", "60"])


def test_options_of_ones_own_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCC_CXXFLAGS", "-O1 '-DNAME=a b'")
    assert own_options() == ["-O1", "-DNAME=a b"]
    monkeypatch.setenv("HCCC_CXXFLAGS", "-DNAME='a")
    with pytest.raises(UserError, match="HCCC_CXXFLAGS is no list of options: No closing"):
        own_options()


def test_kernels_and_the_runtime_are_built_with_options_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "x.cpp"
    source.write_text(
        'extern "C" __attribute__((visibility("default"))) int value() { return VALUE; }\n'
    )
    for value in (1, 2):
        monkeypatch.setenv("HCCC_CXXFLAGS", f"-DVALUE={value}")
        for made in (build_pieces([Piece(source)]), build_library(source, Variant("int32"))):
            assert ctypes.CDLL(str(made)).value() == value
