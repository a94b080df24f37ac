"""MSCCL XML on the command line: written, read back, checked, run, and scheduled anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hccc.cli.main import cli

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DIRECT = ["--transport", "direct"]
STAGED = ["--transport", "staged", "--allocator", "connection"]


def hccc(*arguments: str) -> str:
    done = CliRunner().invoke(cli, list(arguments))
    assert done.exit_code == 0, done.output + str(done.exception)
    return done.stdout


@pytest.fixture
def xml(tmp_path: Path) -> Path:
    path = tmp_path / "ring.xml"
    ring = str(EXAMPLES / "ring_allreduce.rccl")
    path.write_text(hccc("compile", ring, "--emit=msccl-xml", *STAGED))
    return path


def test_what_is_written_can_be_checked(xml: Path) -> None:
    found = json.loads(hccc("check", str(xml), "--json"))
    assert [p["name"] for p in found["proofs"]] == ["fifo", "deadlock", "race", "result"]
    assert found["proofs"][0]["detail"]["largest message"] == "any"


def test_it_runs_in_place_only(xml: Path) -> None:
    rows = json.loads(hccc("run", str(xml), "-b", "4K", "-e", "4K", "-n", "1", "--json"))["results"]
    assert rows[0]["in_place"]["nwrong"] == 0
    assert not rows[0].get("out_of_place")


def test_it_compiles_to_kernels(xml: Path, tmp_path: Path) -> None:
    hccc("compile", str(xml), "-o", str(tmp_path / "kernels"))
    assert (tmp_path / "kernels" / "ring_allreduce.cu").is_file()


@pytest.mark.slow
def test_it_is_scheduled_anew(xml: Path) -> None:
    found = json.loads(hccc("check", str(xml), "--reschedule", "--tune=off", "--json"))
    blocks = found["rescheduled"]["thread blocks per rank"]
    assert blocks["after"] == found["thread_blocks_per_rank"]
    assert found["transport"] == "direct"
    steps = found["rescheduled"]["steps one after the other"]
    assert steps["after"] <= steps["before"]
    run = ("run", str(xml), "--reschedule", "-b", "4K", "-e", "4K", "-n", "1", "--json")
    rows = json.loads(hccc(*run))["results"]
    assert rows[0]["out_of_place"]["nwrong"] == rows[0]["in_place"]["nwrong"] == 0


def test_both_dialects_and_what_they_serve(xml: Path) -> None:
    ring = str(EXAMPLES / "ring_allreduce.rccl")
    text = hccc(
        "compile",
        ring,
        "--emit=msccl-xml",
        "--dialect",
        "msccl",
        *STAGED,
        "--calls",
        "out-of-place",
        "--xml-protocol",
        "LL",
    )
    assert 'proto="LL"' in text and 'inplace="0"' in text
    assert 'inplace="1"' in xml.read_text()


def test_a_size_window_comes_from_the_fifos(tmp_path: Path) -> None:
    """A block that sends three messages before it takes one hangs in two slots."""
    steps = "".join(
        f'<step s="{s}" type="{t}" srcbuf="i" srcoff="{o}" dstbuf="o" dstoff="{o}" cnt="1" '
        'depid="-1" deps="-1" hasdep="0"/>'
        for s, (t, o) in enumerate([("s", 0), ("s", 1), ("s", 2), ("r", 0), ("r", 1), ("r", 2)])
    )
    gpus = "".join(
        f'<gpu id="{r}" i_chunks="3" o_chunks="3" s_chunks="0">'
        f'<tb id="0" send="{1 - r}" recv="{1 - r}" chan="0">{steps}</tb></gpu>'
        for r in range(2)
    )
    path = tmp_path / "deep.xml"
    path.write_text(
        '<algo name="deep" proto="Simple" nchannels="1" nchunksperloop="3" ngpus="2" '
        f'coll="custom" inplace="0">{gpus}</algo>'
    )
    fifo = json.loads(hccc("check", str(path), "--json"))["proofs"][0]
    assert fifo["detail"]["largest message"] == "none"
    assert fifo["detail"]["slots needed"] == 4


def test_direct_plans_are_told_what_to_do() -> None:
    done = CliRunner().invoke(
        cli,
        ["compile", str(EXAMPLES / "ring_allreduce.rccl"), "--emit=msccl-xml", *DIRECT],
    )
    assert "--transport staged" in str(getattr(done.exception, "problem", done.output))


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--cluster", "resccl-topo1"]])
def test_programs_are_staged_for_xml_unless_told_otherwise(more: list[str]) -> None:
    """Of one memory domain or several: one line says so, and the XML is that of a staged plan."""
    ring = str(EXAMPLES / "ring_allreduce.rccl")
    left_open = CliRunner().invoke(cli, ["compile", ring, "--emit=msccl-xml", *more])
    assert left_open.exit_code == 0, left_open.output
    assert left_open.stderr.count("note: ") == 1 and "--transport staged" in left_open.stderr
    told = CliRunner().invoke(cli, ["compile", ring, "--emit=msccl-xml", *STAGED, *more])
    assert told.stdout == left_open.stdout and "MSCCL" not in told.stderr


@pytest.mark.slow
def test_mixed_plans_are_told_what_to_do(tmp_path: Path) -> None:
    ring, plan = str(EXAMPLES / "ring_allreduce.rccl"), tmp_path / "plan.json"
    plan.write_text(hccc("compile", ring, "--emit=plan", "--cluster", "resccl-topo1"))
    for emit, help in (("msccl-xml", "--transport staged"), ("mscclpp-json", "memory domain")):
        done = CliRunner().invoke(cli, ["compile", str(plan), f"--emit={emit}"])
        assert done.exit_code != 0
        assert help in str(getattr(done.exception, "problem", done.output))


def test_only_xml_can_be_rescheduled() -> None:
    ring = str(EXAMPLES / "ring_allreduce.rccl")
    done = CliRunner().invoke(cli, ["check", ring, "--reschedule"])
    assert done.exit_code != 0 and "not MSCCL XML" in str(done.exception)
