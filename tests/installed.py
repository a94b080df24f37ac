"""The wheel of this tree in an environment of its own, shared by the tests of one session."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.test_packaging import ROOT, _files

TIMEOUT_S = 300


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and a folder outside the tree to work in. path: folder of
    modules that are not installed in it.

    path: where modules are that are not installed in it.
    """

    bin: Path
    place: Path
    path: str = ""

    def environment(self) -> dict[str, str]:
        """Returns a shell's variables with the environment active and nothing of this tree's, but
        how much is optimised."""
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HCCC"))}
        if flags := os.environ.get("HCCC_CXXFLAGS"):
            plain["HCCC_CXXFLAGS"] = flags
        plain["PATH"] = f"{self.bin}{os.pathsep}{plain.get('PATH', os.defpath)}"
        return plain | ({"PYTHONPATH": self.path} if self.path else {})

    def done(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs a command of the environment, or any other, and returns it once it has ended."""
        own = self.bin / str(argv[0])
        command = [str(own) if own.exists() else str(argv[0]), *map(str, argv[1:])]
        return subprocess.run(
            command,
            cwd=self.place,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def run(self, *argv: str | Path) -> str:
        """Returns the output of a command; it must exit with 0."""
        done = self.done(*argv)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def at(self, place: Path, path: str = "") -> Installed:
        """Returns the same environment in another folder."""
        return replace(self, place=place, path=path)


def pip(*argv: str | Path) -> None:
    """Runs pip, which must exit with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *map(str, argv)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def shared(folder: Path) -> Installed:
    """Returns the environment in `folder`, made by the first of pytest's workers to ask."""
    folder.mkdir(exist_ok=True)
    made = folder / "made"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _make(folder)
            made.touch()
    return Installed(folder / "environment" / "bin", folder / "work")


def _make(place: Path) -> None:
    """Installs the wheel in an environment of its own."""
    for name in _files():
        target = place / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target, follow_symlinks=False)
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", place)
    pip("wheel", *options, place / "tree")
    (wheel,) = place.glob("*.whl")
    shutil.rmtree(place / "tree")
    install(wheel, place)


def install(wheel: Path, place: Path) -> Installed:
    """Installs a wheel in an environment of its own that borrows this one's dependencies."""
    environment = place / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip("--python", environment / "bin" / "python", "install", "--no-deps", wheel)
    (packages,) = environment.glob("lib/python*/site-packages")
    borrowed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (packages / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    (place / "work").mkdir()
    return Installed(environment / "bin", place / "work")


def root_of(factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of the session, the same for all of pytest's workers."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def tools(names: Sequence[str]) -> None:
    """Skips a test where one of these commands is not there."""
    if missing := [name for name in names if not shutil.which(name)]:
        pytest.skip(f"no {', '.join(missing)}")
