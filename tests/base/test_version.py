"""hccc's version is the same wherever it has to be written down."""

from __future__ import annotations

import re
import tomllib

from hccc.base.version import __version__
from tests.test_architecture import PACKAGE, ROOT, RUNTIME


def test_every_place_has_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pkgconfig = (PACKAGE / "downstream" / "pkgconfig" / "hccc.pc").read_text(encoding="utf-8")
    header = (RUNTIME / "communicator" / "include" / "hccc_runtime.h").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    major, minor, patch = map(int, project["version"].split("."))
    number = re.search(r"#define HCCC_RUNTIME_VERSION (\d+)", header)
    assert project["version"] == __version__
    assert f"\nVersion: {__version__}\n" in pkgconfig
    assert number and int(number[1]) == 10000 * major + 100 * minor + patch
    assert f"\n## [{__version__}]" in changes
