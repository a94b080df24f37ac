"""An installed wheel works where there is no source tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

import hccc
from tests.test_architecture import PACKAGE
from tests.test_packaging import ROOT, _files

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel and a folder outside the tree to work in."""

    bin: Path
    place: Path

    def run(self, *argv: str) -> str:
        """What a command of the environment prints; it must exit with 0."""
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HCCC"))}
        command = [str(self.bin / argv[0]), *argv[1:]]
        done = subprocess.run(
            command, cwd=self.place, env=plain, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def _pip(*argv: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *map(str, argv)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment of its own, which borrows the dependencies of this one."""
    place = tmp_path_factory.mktemp("installed")
    for name in _files():
        target = place / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target, follow_symlinks=False)
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", place)
    _pip("wheel", *options, place / "tree")
    (wheel,) = place.glob("*.whl")
    shutil.rmtree(place / "tree")
    environment = place / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    _pip("--python", environment / "bin" / "python", "install", "--no-deps", wheel)
    (packages,) = environment.glob("lib/python*/site-packages")
    borrowed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (packages / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    (place / "work").mkdir()
    return Installed(environment / "bin", place / "work")


def test_it_is_the_wheel_that_runs(installed: Installed) -> None:
    where = installed.run("python", "-c", "import hccc; print(hccc.__file__)")
    assert Path(where.strip()).is_relative_to(installed.bin.parent)


def test_version(installed: Installed) -> None:
    assert installed.run("hccc", "--version") == f"hccc {hccc.__version__}\n"


def test_python_m(installed: Installed) -> None:
    if not (PACKAGE / "__main__.py").exists():
        pytest.skip("hccc has no __main__")
    assert installed.run("python", "-m", "hccc", "--version") == f"hccc {hccc.__version__}\n"


def test_check_compile_and_run(installed: Installed) -> None:
    """Grammar, schema, templates and headers are package data."""
    shutil.copy(ROOT / "examples" / "ring_allreduce.rccl", installed.place)
    assert "Allreduce over 8 ranks" in installed.run("hccc", "check", "ring_allreduce.rccl")
    installed.run("hccc", "ring_allreduce.rccl", "-o", "kernels")
    assert "race" in installed.run("hccc", "check", "kernels")
    if shutil.which("g++"):
        printed = installed.run("hccc", "run", "kernels", "-b", "1K", "-e", "1K")
        assert "0 OK" in printed


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_the_device_layer_is_built(installed: Installed) -> None:
    """Its sources, and the description that signatures come from, are package data."""
    code = "from hccc.runtime.device import library as l; l.use('cpu'); print(l.current())"
    assert installed.run("python", "-c", code) == "cpu\n"
