"""The wheel holds the tree's files: no data file forgotten, nothing else along."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from hccc import __version__

ROOT = Path(__file__).parent.parent
FOLDERS = {"compiler": "hccc", "runtime": "hccc/runtime", "templates": "hccc/templates"}
SHIPPED = {
    ("examples", ".rccl"): "algorithms",
    ("examples/clusters", ".cluster"): "clusters",
    ("examples/msccl", ".xml"): "msccl",
}
PREFIXED = PurePosixPath("compiler/downstream/prefix")  # for <prefix>/share/cmake/hccc
INSTALLED = f"hccc-{__version__}.data/data"


def _files() -> list[str]:
    """Lists the files that git has, or would commit."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing says which files belong")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = filter(None, listed.stdout.split("\0"))
    return [n for n in names if (ROOT / n).is_symlink() or (ROOT / n).is_file()]


def _in_wheel(name: str) -> str | None:
    """Returns a file's name in the wheel; None: it must not be there."""
    path = PurePosixPath(name)
    if shelf := SHIPPED.get((str(path.parent), path.suffix)):
        return f"hccc/shipped/{shelf}/{path.name}"
    if path.parent == PREFIXED:
        return f"{INSTALLED}/share/cmake/hccc/{path.name}"
    folder, _, rest = name.partition("/")
    if folder not in FOLDERS or (ROOT / name).is_symlink():
        return None
    return f"{FOLDERS[folder]}/{rest}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Returns the names in a wheel, built offline from a copy without an earlier `build/`."""
    place = tmp_path_factory.mktemp("wheel")
    tree = place / "tree"
    for name in _files():
        source, target = ROOT / name, tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        else:
            target.write_bytes(source.read_bytes())
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "--quiet",
            "--wheel-dir",
            str(place),
            str(tree),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (built,) = place.glob("*.whl")
    return set(zipfile.ZipFile(built).namelist())


def test_the_wheel_is_the_tree(wheel: set[str]) -> None:
    wanted = {place for name in _files() if (place := _in_wheel(name))}
    assert {name for name in wheel if ".dist-info/" not in name} == wanted


def test_data_files_are_there(wheel: set[str]) -> None:
    for name in (
        "py.typed",
        "lang/transfer/transfer.lark",
        "ir/catalogue.schema.json",
        "ir/job.schema.json",
        "ir/plan.schema.json",
        "templates/kernel.jinja",
        "shipped/algorithms/hm_allreduce.rccl",
        "shipped/clusters/resccl-topo4.cluster",
        "shipped/msccl/allgather_recdoubling_n8.xml",
    ):
        assert f"hccc/{name}" in wheel
    assert "hccc/runtime/include/hccc/device.h" in wheel


def test_the_wheel_has_the_license(wheel: set[str]) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel)


def test_the_wheel_installs_the_command(wheel: set[str]) -> None:
    assert any(name.endswith(".dist-info/entry_points.txt") for name in wheel)
