"""The projects of examples/downstream/, copied to where there is no tree of hccc, and built."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.installed import Installed
from tests.test_packaging import ROOT

EXAMPLES = ROOT / "examples" / "downstream"


@dataclass(frozen=True)
class Project:
    """A CMake project: its sources, where it is built, and the environment that builds it."""

    source: Path
    build: Path
    hccc: Installed

    def configure(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Runs cmake, with nothing said about where hccc is but its folder."""
        place = self.hccc.run("hccc", "config", "--cmakedir").strip()
        return self.hccc.done(
            "cmake", "-S", self.source, "-B", self.build, f"-Dhccc_DIR={place}", *options
        )

    def configure_by_path(self) -> subprocess.CompletedProcess[str]:
        """Runs cmake with nothing said about where hccc is: its command is on PATH."""
        return self.hccc.done("cmake", "-S", self.source, "-B", self.build)

    def make(self) -> subprocess.CompletedProcess[str]:
        """Builds the outdated files."""
        return self.hccc.done("cmake", "--build", self.build)

    def built(self) -> str:
        """Returns the output of a build that ends well."""
        done = self.make()
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def edit(self, name: str, before: str, after: str) -> None:
        """Replaces text in a source, which is then newer than its builds."""
        path = self.source / name
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))
        newer(path)


def newer(path: Path) -> None:
    """Makes a file newer than all that is there, whatever the resolution of its clock."""
    later = time.time_ns() + 10**9
    os.utime(path, ns=(later, later))
    time.sleep(1.1)  # the next build must be newer still


def copied(name: str, place: Path) -> Path:
    """Copies a project's sources to a folder that does not exist yet."""
    return Path(shutil.copytree(EXAMPLES / name, place))


def project(place: Path, installed: Installed, *options: str, name: str = "cmake") -> Project:
    """Configures and builds a C project."""
    made = Project(copied(name, place / "a project"), place / "its build", installed)
    done = made.configure(*options)
    assert done.returncode == 0, done.stdout + done.stderr
    made.built()
    return made
