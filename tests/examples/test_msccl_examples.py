"""The XML of examples/msccl: as its script writes it, right, and of several shapes."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner

from hccc.base.diagnostics import Source
from hccc.cli.main import cli
from hccc.driver import compilation as driver
from hccc.driver.inputs import XmlInput, opened
from hccc.driver.options import Options
from hccc.interop.import_msccl import import_msccl
from hccc.interop.raise_program import raise_program
from tests.marks import slow

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "msccl"
FILES = sorted(FOLDER.glob("*.xml"))


def test_the_files_are_what_the_script_writes() -> None:
    """`python scripts/msccl_examples.py` writes them anew."""
    written = runpy.run_path(str(ROOT / "scripts" / "msccl_examples.py"))["files"]()
    assert {path.name: path.read_text() for path in FILES} == written


@pytest.mark.parametrize("path", [FILES[0], *map(slow, FILES[1:])], ids=lambda path: path.stem)
def test_each_is_proved_and_runs_right(path: Path) -> None:
    checked = CliRunner().invoke(cli, ["check", str(path), "--json"])
    assert checked.exit_code == 0, checked.output
    proofs = [proof["name"] for proof in json.loads(checked.stdout)["proofs"]]
    assert proofs == ["fifo", "deadlock", "race", "result"]
    run = ["run", str(path), "--json", "-b", "500", "-e", "64K", "-f", "12", "-n", "1", "-w", "1"]
    ran = CliRunner().invoke(cli, run)
    assert ran.exit_code == 0, ran.output
    counted = [
        row[kind]["nwrong"]
        for row in json.loads(ran.stdout)["results"]
        for kind in ("in_place", "out_of_place")
        if row[kind] is not None
    ]
    assert counted and set(counted) == {0}


def xml(path: Path) -> Source:
    """Reads an example."""
    given = opened(path)
    assert isinstance(given, XmlInput)
    return given.xml


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_can_be_scheduled_anew(path: Path) -> None:
    plan, _ = import_msccl(xml(path))
    assert driver.compile_program(raise_program(plan), Options()).proofs


def test_the_shapes_differ() -> None:
    """Both dialects, two protocols, and schedules that short FIFOs bound or do not."""
    texts = {path.stem: path.read_text() for path in FILES}
    assert 'coll="reduce_scatter"' in texts["reducescatter_ring_n8_msccl"]  # only msccl's name
    assert 'proto="LL"' in texts["allreduce_allpairs_n8"]
    limits = {path.stem: import_msccl(xml(path))[1].detail["largest message"] for path in FILES}
    assert limits.pop("allgather_recdoubling_n8") == 8 << 20
    assert set(limits.values()) == {"any"}
