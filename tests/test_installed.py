"""An installed wheel works where there is no source tree."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import hccc
from tests.installed import Installed
from tests.test_architecture import PACKAGE
from tests.test_packaging import ROOT

pytestmark = pytest.mark.slow


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
    code = "from hccc.runtime.device import device_layer as l; l.use('cpu'); print(l.current())"
    assert installed.run("python", "-c", code) == "cpu\n"
