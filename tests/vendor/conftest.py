"""Vendors' libraries in environments of their own, and a library in NCCL's place."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hccc.base.building.places import user_directory
from tests.communicator.conftest import library, sums

__all__ = ["library", "sums"]  # fixtures

# In this order: oneccl brings a library of GPUs, and oneccl-cpu puts the CPU's in its place.
PACKAGES = {
    "mpich": ["mpich==5.0.2"],
    "oneccl": ["mpich==5.0.2 oneccl==2022.2.0", "oneccl-cpu==2022.2.0 oneccl-cpu-devel==2022.2.0"],
}
FILES = {"mpich": "lib/libmpi_abi.so.1", "oneccl": "lib/libccl.so.1"}


def installed(vendor: str) -> str:
    """Returns the file of a vendor's library, in an environment that is made once; HCCC_VENDORS
    names the folder of those. Skips the test where it cannot be made."""
    folder = Path(os.environ.get("HCCC_VENDORS") or user_directory("vendors"))
    place = folder / "-".join([vendor, *(one.replace(" ", "-") for one in PACKAGES[vendor])])
    with (folder / f"{vendor}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "whole").exists():
            _install(place, PACKAGES[vendor])
    return str(place / FILES[vendor])


def _install(place: Path, steps: list[str]) -> None:
    words = [sys.executable, "-m", "venv", "--without-pip", str(place)]
    subprocess.run(words, check=True, timeout=60)
    for step in steps:
        pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install"]
        options = ["-q", "--no-deps", "--retries", "0", "--timeout", "10", "--force-reinstall"]
        ended = subprocess.run(
            [*pip, *options, *step.split()], capture_output=True, text=True, timeout=300
        )
        if ended.returncode:
            last = (ended.stderr.strip() or "pip failed").splitlines()[-1]
            pytest.skip(f"{step} cannot be installed: {last}")
    for archive in place.rglob("*.a"):  # hundreds of MB that nobody links
        archive.unlink()
    (place / "whole").touch()


@pytest.fixture(scope="session")
def mpich() -> str:
    """Installs MPICH."""
    return installed("mpich")


@pytest.fixture(scope="session")
def oneccl() -> str:
    """Installs oneCCL for CPUs."""
    return installed("oneccl")


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compiles a library with NCCL's names that works on memory of the host."""
    made = tmp_path_factory.mktemp("nccl") / "libnccl.so.2"
    source = Path(__file__).parent / "stand_in.c"
    words = ["gcc", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", str(source)]
    subprocess.run([*words, "-o", str(made), "-lrt"], check=True)
    return str(made)
