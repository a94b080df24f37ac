"""`hccc config`: where builds of other projects find hccc."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import hccc as package
from hccc.downstream import places
from tests.cli.commandline import Hccc


def test_every_folder_has_what_it_is_asked_for(hccc: Hccc) -> None:
    def answer(option: str) -> str:
        code, out, err = hccc("config", option)
        assert (code, err) == (0, "") and out.endswith("\n")
        return out[:-1]

    assert answer("--version") == package.__version__
    assert (Path(answer("--prefix")) / "__init__.py").samefile(package.__file__)
    assert (Path(answer("--includedir")) / "hccc" / "hccc.h").is_file()
    assert (Path(answer("--cmakedir")) / "hcccConfig.cmake").is_file()
    assert (Path(answer("--pkgconfigdir")) / "hccc.pc").is_file()
    assert (Path(answer("--editordir")) / "package.json").is_file()
    assert answer("--includes") in answer("--cflags")


def test_answers_are_words_of_a_shell(hccc: Hccc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "INCLUDE", Path("/a folder/$HOME"))
    assert shlex.split(hccc("config", "--cflags")[1]) == ["-I/a folder/$HOME", "-pthread"]


def test_several_questions_have_a_line_each(hccc: Hccc) -> None:
    assert hccc("config", "--libs", "--version")[1] == f"{package.__version__}\n-pthread\n"


def test_nothing_asked_is_a_mistake(hccc: Hccc) -> None:
    code, out, err = hccc("config")
    assert (code, out) == (2, "") and "--cmakedir" in err


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config")
def test_pkg_config_says_the_same(hccc: Hccc) -> None:
    def asked(*options: str) -> str:
        path = hccc("config", "--pkgconfigdir")[1].strip()
        done = subprocess.run(
            ["pkg-config", *options, "hccc"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PKG_CONFIG_PATH": path},
        )
        return done.stdout.strip()

    assert asked("--modversion") == package.__version__
    include, threads = shlex.split(asked("--cflags"))
    assert Path(include.removeprefix("-I")).samefile(places.INCLUDE)
    assert (threads, asked("--libs")) == ("-pthread", "-pthread")
    assert Path(asked("--variable=cmakedir")).samefile(places.CMAKE)
