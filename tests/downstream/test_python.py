"""Packages that hccc's build step makes, of an installed wheel."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from tests.downstream.projects import copied, newer
from tests.installed import Installed, pip, tools

pytestmark = pytest.mark.slow
CHECK = """
import os
os.environ["HCCC_STANDARD"] = "0"  # or a library for int8 would be made
import numpy as np
import {module} as m
arrays = [np.arange(6.0).reshape(2, 3) * (rank + 1) for rank in range(4)]
for dtype in ("float64", "float32"):
    given = [one.astype(dtype) for one in arrays]
    assert all((one == sum(arrays)).all() and one.dtype == dtype for one in m.allreduce(given))
try:
    m.allreduce([one.astype("int8") for one in arrays])
except Exception as error:
    print(error)
print(m.__file__)
"""


@pytest.fixture(autouse=True)
def _compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns off the optimiser, which CMake would use: compiling is most of what these take."""
    monkeypatch.setenv("CMAKE_BUILD_TYPE", "Debug")


PROJECTS = {"python_setuptools": "ring_setuptools", "python_cmake": "ring_cmake"}


def wheel(installed: Installed, source: Path, place: Path) -> Path:
    """Builds the wheel of a project."""
    place.mkdir(exist_ok=True)
    installed.run(
        "python", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", place, source
    )
    (found,) = place.glob("*.whl")
    return found


@pytest.mark.parametrize("folder", PROJECTS)
def test_a_package_has_the_library(tmp_path: Path, installed: Installed, folder: str) -> None:
    tools(["cmake", "c++", "ninja"])
    if folder == "python_cmake":
        pytest.importorskip("scikit_build_core")
    module, source = PROJECTS[folder], copied(folder, tmp_path / "a project")
    made = wheel(installed, source, tmp_path / "wheels")
    assert re.fullmatch(r".*-py3-none-linux_\w+\.whl", made.name)
    names = zipfile.ZipFile(made).namelist()
    files = {name for name in names if ".dist-info/" not in name}
    assert files == {f"{module}/{n}" for n in ("__init__.py", "libfour_sum.so")}
    target = tmp_path / "target"
    pip("install", "--no-deps", "--target", target, made)
    outside = installed.at(tmp_path / "wheels", str(target))
    said = outside.run("python", "-c", CHECK.format(module=module))
    assert "four_sum is not built for int8, sum" in said
    assert str(target) in said


def test_only_what_changed_is_built_again(tmp_path: Path, installed: Installed) -> None:
    tools(["cmake", "c++", "ninja"])
    source = copied("python_setuptools", tmp_path / "a project")
    at = installed.at(source)
    build = ("python", "-c", "from setuptools import setup; setup()", "build")
    assert "Building CXX object" in at.run(*build)
    assert "Building CXX object" not in at.run(*build)
    cluster = source / "node.cluster"
    cluster.write_text(cluster.read_text().replace("A100", "H100"))
    newer(cluster)
    assert "hccc: compiling four_sum" in at.run(*build)
    (library,) = (source / "build").glob("lib*/ring_setuptools/libfour_sum.so")
    built = library.read_bytes()
    algorithm = source / "ring.rccl"
    algorithm.write_text(algorithm.read_text().replace("nWarps=16", "nWarps=8"))
    newer(algorithm)
    assert "Building CXX object" in at.run(*build)
    assert library.read_bytes() != built

    algorithm.write_text(algorithm.read_text().replace("rrc)", "rrx)"))
    newer(algorithm)
    done = at.done(*build)
    assert done.returncode and "error[E014]" in done.stderr and "^^^" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_editable_installation_has_it_in_the_source(
    tmp_path: Path, installed: Installed
) -> None:
    tools(["cmake", "c++", "ninja"])
    source, target = copied("python_setuptools", tmp_path / "a project"), tmp_path / "target"
    installed.run(
        "python",
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        target,
        "-e",
        source,
    )
    assert (source / "ring_setuptools" / "libfour_sum.so").exists()
    outside = installed.at(tmp_path, str(source))
    assert str(source) in outside.run("python", "-c", CHECK.format(module="ring_setuptools"))


def test_a_source_distribution_has_what_it_is_built_of(
    tmp_path: Path, installed: Installed
) -> None:
    source = copied("python_setuptools", tmp_path / "a project")
    at = installed.at(source)
    at.run("python", "-c", "from setuptools import setup; setup()", "-q", "sdist", "-d", "made")
    (made,) = (source / "made").glob("*.tar.gz")
    names = at.run("tar", "-tzf", made)
    assert "/ring.rccl" in names and "/node.cluster" in names


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('package = "ring_setuptools"', 'package = "other"', "there is no 'other'"),
        ('package = "ring_setuptools"', "", "package is missing"),
        ("four_sum]", "4]", "'4' is no name for a library"),
        ("cluster =", "clusters =", "there is no 'clusters'"),
    ],
)
def test_a_wrong_table_is_an_error(
    tmp_path: Path, installed: Installed, before: str, after: str, said: str
) -> None:
    source = copied("python_setuptools", tmp_path / "project")
    file = source / "pyproject.toml"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    build = ("python", "-c", "from setuptools import setup; setup()", "build")
    done = installed.at(source).done(*build)
    assert done.returncode and said in done.stderr
    assert "Traceback" not in done.stderr
