"""Headers include the headers they use, and no two include each other."""

from __future__ import annotations

import re
import shutil
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import hccc
from tests.runtime.handwritten import INCLUDE

ROOT = Path(hccc.__path__[0]).resolve()
SOURCES = [
    path.resolve()
    for folder in (ROOT / "runtime", ROOT / "validate")
    for path in Path(folder).resolve().rglob("*")
    if path.suffix in (".h", ".cpp", ".inc")
]
DEVICE = INCLUDE / "hccc"
OF_A_GPU = re.compile(r"gpu_|port_(cuda|hip|gpu)")  # these need a GPU's compiler
SHAPE = ("RANKS", "SUB", "CHANNELS", "BLOCKS", "THREADS", "FLAGS", "SCRATCH", "STAGE", "QUEUES")
CONSTANTS = {**dict.fromkeys(SHAPE, 1), "SENDS": 1, "SLOTS": 1, "GRAIN": 8192, "NETWORK": 1}

OF_PACKETS = {"PACKETS": 1, "LINES": 1, "NETWORK": 0}


def included(path: Path) -> list[Path]:
    """Lists the files of the tree that a file includes; files of its own folder come first."""
    found = []
    for name in re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', path.read_text(), re.M):
        near = (path.parent / name).resolve()
        ends = [near] if near in SOURCES else [p for p in SOURCES if p.match(name)]
        found += ends
    return found


def test_no_header_includes_itself_through_others() -> None:
    graph = {path: included(path) for path in SOURCES}
    assert sum(map(len, graph.values())) > 100
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_each_device_header_includes_what_it_uses() -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("no C++ compiler")
    command = [compiler, "-std=c++17", "-fsyntax-only", f"-I{INCLUDE}"]
    headers = [path.name for path in DEVICE.glob("*.h") if not OF_A_GPU.match(path.name)]
    assert len(headers) > 20
    for name in headers:
        constants = CONSTANTS | (OF_PACKETS if name == "packets.h" else {})
        macros = [f"-DHCCC_{name}={value}" for name, value in constants.items()]
        done = subprocess.run(
            [*command, *macros, "-x", "c++", "-"],
            input=f'#include "hccc/{name}"\n',
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"
