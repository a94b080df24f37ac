"""Programs of NCCL's that nobody here wrote, and one in C, run on host memory."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hccc.runtime.nccl.library import HERE, NAMES, folder
from tests.cli.commandline import COMMAND
from tests.nccl.ranks import run

pytestmark = pytest.mark.slow
PLACE = Path(__file__).parent
REMOTE_ERROR = 6
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]


def together(commands: Sequence[Sequence[object]], **variables: str) -> list[str]:
    """Runs commands at the same time with the library preloaded, and returns what they print.
    Raises AssertionError where one fails."""
    environment = {**os.environ, "HCCC_TIMEOUT": "30", "LD_PRELOAD": str(folder() / NAMES[0])}
    started = [
        subprocess.Popen(
            list(map(str, command)),
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command in commands
    ]
    try:
        texts = [one.communicate(timeout=120)[0] for one in started]
    finally:
        for one in started:
            one.kill()
    assert not any(one.returncode for one in started), "\n".join(texts)
    return texts


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiles the C program, linked with a library of NCCL's name."""
    made = tmp_path_factory.mktemp("client") / "client"
    words = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{HERE / 'include'}"]
    command = [*words, str(PLACE / "client.c"), str(folder() / NAMES[0]), "-o", str(made)]
    subprocess.run(command, check=True)
    return made


def test_processes(client: Path, tmp_path: Path) -> None:
    printed = together([[client, tmp_path / "id", 4, rank] for rank in range(4)])
    assert all(text.splitlines()[-1] == "right" for text in printed)


def test_ranks_of_one_thread(client: Path, tmp_path: Path) -> None:
    assert together([[client, tmp_path / "id", 4, "all"]])[0].splitlines()[-1] == "right"


def test_a_path_instead_of_a_preload(client: Path, tmp_path: Path) -> None:
    """`hccc nccl --path` is what LD_LIBRARY_PATH needs."""
    asked = subprocess.run([*COMMAND, "nccl", "--path"], capture_output=True, text=True, check=True)
    path = asked.stdout.strip()
    assert {one.name for one in Path(path).iterdir()} >= {*NAMES, "libhccc.so"}
    command = [client, tmp_path / "id", 4, "all"]
    (printed,) = together([command], LD_PRELOAD="", LD_LIBRARY_PATH=path)
    assert printed.splitlines()[-1] == "right"


def test_a_rank_that_gives_up_is_said() -> None:
    found, _ = run("lost")
    assert found["results"] == [REMOTE_ERROR] * 2
    ((code, text),) = found["errors"]
    assert code == REMOTE_ERROR and text.startswith("rank 1 has ")


def installed(place: Path, package: str) -> str:
    """Installs a package without what it needs on a GPU, and returns its folder. Skips the test
    where it cannot be installed."""
    words = [*PIP, str(place), package, "cuda-pathfinder"]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip(f"{package} cannot be installed here")
    return str(place)


@pytest.fixture(scope="session")
def nccl4py(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Installs NVIDIA's bindings."""
    return installed(tmp_path_factory.mktemp("nccl4py"), "nccl4py==0.6.0")


@pytest.fixture
def cupy(tmp_path: Path) -> Iterator[str]:
    """Installs CuPy, where it is not there: 300 MB, which do not stay."""
    if importlib.util.find_spec("cupy"):
        yield ""
    else:
        yield installed(tmp_path / "cupy", "cupy-cuda12x==14.2.0")
        shutil.rmtree(tmp_path / "cupy")


def test_nvidias_bindings(nccl4py: str, tmp_path: Path) -> None:
    command = [sys.executable, PLACE / "bindings.py", tmp_path / "id", 2]
    printed = together([[*command, rank] for rank in range(2)], PYTHONPATH=nccl4py)
    assert all(text.splitlines()[-1] == "right" for text in printed)


def test_cupy(cupy: str) -> None:
    (printed,) = together([[sys.executable, PLACE / "cupy_nccl.py"]], PYTHONPATH=cupy)
    assert printed.splitlines()[-1] == "right"
