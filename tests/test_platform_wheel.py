"""A platform wheel: communicators and standard collectives where there is no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

import pytest

from tests.installed import Installed, install
from tests.test_packaging import ROOT

pytestmark = pytest.mark.slow
LIGHT = {"HCCC_CXXFLAGS": "-O0"}  # compiling is most of what this takes
RANKS = 2
LIBRARIES = ("libnccl.so.2", "librccl.so.1", "libhccc.so")
BODY = """
import numpy as np
from hccc.runtime.communicator import Communicator, CommunicatorError
with Communicator.from_environment() as c:
    print(c.can("all_reduce").name, c.can("all_gather").name)
    x = np.full(1000, c.rank + 1, np.float32)
    c.all_reduce(x)
    assert (x == 3).all()
    try:
        c.all_gather(x, np.zeros(2000, np.float32))
    except CommunicatorError as error:
        print(error.text)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds a wheel with one collective of two ranks."""
    place = tmp_path_factory.mktemp("wheel")
    chosen = ("--ranks", str(RANKS), "--collective", "allreduce", "--dtype", "float32")
    command = [sys.executable, str(ROOT / "scripts" / "wheel"), "-o", str(place), *chosen]
    done = subprocess.run(command, env=os.environ | LIGHT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = place.iterdir()
    return made


def ranks(environment: Installed, cache: Path) -> list[str]:
    """Returns what two ranks print, with this cache and without a compiler."""
    commands = f"{environment.bin}"
    job = {"HCCC_JOB": uuid.uuid4().hex, "HCCC_NRANKS": str(RANKS), "XDG_CACHE_HOME": str(cache)}
    variables = environment.environment() | LIGHT | job | {"PATH": commands}
    command = [str(environment.bin / "python"), "-c", BODY]
    made = [
        subprocess.Popen(
            command,
            cwd=environment.place,
            env=variables | {"HCCC_RANK": str(rank), "HCCC_PROGRESS": "off"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    said = [one.communicate(timeout=300)[0] for one in made]
    assert [one.returncode for one in made] == [0] * RANKS
    return said


def test_it_needs_no_compiler(wheel: Path, tmp_path: Path) -> None:
    """A call that it lacks is refused, with what to install; the cache gets nothing of it."""
    assert "-py3-none-manylinux_2_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"hccc/prebuilt/standard/{at}2-allreduce.so" for at in ("", "x86-64-v3/")} < set(names)
    for said in ranks(install(wheel, tmp_path), tmp_path / "cache"):
        first, error = said.splitlines()
        assert first == "LOAD MAKE"
        assert "does allgather" in error and "error[E412]: no C++ compiler found" in error
        assert "install one (apt-get install g++)" in error
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.suffix == ".so"]


def test_nccls_library_needs_none(wheel: Path, tmp_path: Path) -> None:
    """The library that programs of NCCL's load is the wheel's, and so is what it loads."""
    environment = install(wheel, tmp_path)
    variables = environment.environment() | LIGHT | {"PATH": str(environment.bin)}
    command = [str(environment.bin / "hccc"), "nccl", "--path"]
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(command, env=variables | cache, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    places = {(Path(done.stdout.strip()) / name).resolve().parent.name for name in LIBRARIES}
    assert places == {"prebuilt"}
