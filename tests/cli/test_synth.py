"""hccc synth: a program, a directory, or text for a pipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commandline import ROOT, Hccc

FIG10 = ROOT / "examples" / "clusters" / "heteccl-fig10.cluster"
ASKED = (FIG10, "--collective", "allreduce", "-b", "1M")


def test_a_program_runs_right(hccc: Hccc, tmp_path: Path) -> None:
    program = tmp_path / "a.rccl"
    code, out, err = hccc("synth", *ASKED, "-o", program)
    assert (code, err) == (0, "")
    assert out.startswith("Allreduce over 6 ranks on ") and "  lower bound " in out
    text = program.read_text(encoding="utf-8")
    assert text.startswith("# Allreduce on ") and "seed 0" in text
    code, out, _ = hccc("run", program, "-b", "1K", "-e", "1M", "-f", "32", "--json")
    results = json.loads(out)["results"]
    assert code == 0 and results
    assert hccc("check", program)[0] == 0


def test_without_an_output_the_program_is_on_stdout(hccc: Hccc, tmp_path: Path) -> None:
    code, out, err = hccc("synth", *ASKED, "--method", "greedy", "--seed", "3")
    assert code == 0 and "def ResCCLAlgo(nRanks=6" in out and "seed 3" in out
    assert "  chosen       greedy, " in err
    code, again, _ = hccc("synth", *ASKED, "--method", "greedy", "--seed", "3", "-o", "-")
    assert (code, again) == (0, out)


def test_a_directory_is_kernels(hccc: Hccc, tmp_path: Path) -> None:
    code, out, _ = hccc("synth", *ASKED, "-o", tmp_path / "k", "--json")
    facts = json.loads(out)
    assert code == 0 and 0 < facts["share"] <= 1 and facts["weighed"]
    assert hccc("check", tmp_path / "k")[0] == 0


def test_faults_are_left_out(hccc: Hccc, tmp_path: Path) -> None:
    code, out, _ = hccc("synth", *ASKED, "--fail", "node2.gpu3", "-o", tmp_path / "a.rccl")
    assert code == 0 and out.startswith("Allreduce over 5 ranks")


@pytest.mark.parametrize(
    ("argv", "said"),
    [((*ASKED, "--fail", "gpu3"), "E410"), ((*ASKED, "--degrade", "x=y"), "E410"),
     ((*ASKED, "--method", "magic"), "E451"), ((*ASKED, "--json"), "E415"),
     ((*ASKED, "--fail", "node9.gpu0"), "error[")],
)  # fmt: skip
def test_what_is_wrong_leaves_what_is_there(
    hccc: Hccc, tmp_path: Path, argv: tuple[object, ...], said: str
) -> None:
    program = tmp_path / "a.rccl"
    program.write_text("before", encoding="utf-8")
    place = () if "--json" in argv else ("-o", program)
    code, out, err = hccc("synth", *argv, *place)
    assert code == (2 if said in ("E410", "E415") else 1)
    assert said in out + err and "Traceback" not in out + err
    assert program.read_text(encoding="utf-8") == "before"
