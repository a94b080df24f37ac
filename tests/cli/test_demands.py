"""A demand of one's own, from its file to a checked run, and what is said of a wrong one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hccc as python
from tests.cli.commandline import Hccc
from tests.synth.greedy.chunked_clusters import SMALL

TEXT = "# three ranks\n0 -> 1,2\n1,2 -> 0\nsum 0-2 -> 1\nsum 0,1 -> 2\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    cluster, demand = tmp_path / "small.cluster", tmp_path / "mine.demand"
    cluster.write_text(SMALL)
    demand.write_text(TEXT)
    return cluster, demand


@pytest.mark.slow
def test_a_demand_is_made_proved_and_run(
    hccc: Hccc, files: tuple[Path, Path], tmp_path: Path
) -> None:
    cluster, demand = files
    out = tmp_path / "x.rccl"
    code, said, _ = hccc("synth", cluster, "--demand", demand, "-b", "1M", "-o", out, "--json")
    facts = json.loads(said)
    assert code == 0 and facts["collective"] == "custom" and 0 < facts["share"] <= 1 + 1e-9
    assert 'Demand="0 -> 1-2; 1-2 -> 0; sum 0-2 -> 1; sum 0-1 -> 2"' in out.read_text()
    code, said, _ = hccc("check", out)
    assert code == 0 and "every rank ends with the collective's result, out of place" in said
    argv = ("-b", "0", "-e", "70001", "-i", "35000", "-n", "1", "-w", "1", "--json")
    for procs in ((), ("--procs", 3)):
        code, said, _ = hccc("run", out, *argv, *procs)
        rows = json.loads(said)["results"]
        assert code == 0 and rows and all(row["out_of_place"]["nwrong"] == 0 for row in rows)
    kernels = tmp_path / "kernels"
    assert hccc(out, "-o", kernels)[0] == 0
    code, said, _ = hccc("check", kernels)
    assert code == 0 and "not imported" not in said


def test_a_wrong_program_of_a_demand_is_refused_where_it_is_wrong(
    hccc: Hccc, tmp_path: Path
) -> None:
    path = tmp_path / "x.rccl"
    path.write_text(
        'ResCCLAlgo(nRanks=3, OpType="custom", Demand="0,1 -> 2; sum 0-2 -> 0"):\n'
        "    transfer(1, 2, 0, 0, recv)\n"
        "    transfer(1, 0, 0, 1, rrc)\n"
    )
    code, _, err = hccc("check", path)
    assert code == 1 and "error[E205]: at the end rank 0 lacks the piece of rank 2" in err
    path.write_text(path.read_text().replace("(1, 2, 0, 0, recv)", "(1, 0, 0, 0, rrc)"))
    code, _, err = hccc("check", path)
    assert code == 1 and "error[E203]" in err and f"{path}:2:" in err


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ('OpType="custom"', "1:29: error[E012]: a custom collective needs a demand"),
        ('OpType="Broadcast", Demand="0 -> 1"', "a demand says what is done, and so does"),
        ('OpType="custom", Demand="0 -> 1; 0 -> 3"', "1:60: error[E017]: there is no rank 3"),
        ('OpType="custom", Demand=3', "Demand must be a string in quotes"),
        ('OpType="custom", Demand="0 -> 1; 1 -> 2", nChunks=3', "not a multiple of 2"),
        ('OpType="custom", Demand="0 -> 1", Root=1', "custom has no root"),
    ],
)
def test_a_wrong_header_is_told(hccc: Hccc, tmp_path: Path, header: str, error: str) -> None:
    path = tmp_path / "x.rccl"
    path.write_text(f"ResCCLAlgo(nRanks=3, {header}):\n    transfer(0, 1, 0, 0, recv)\n")
    code, out, err = hccc("check", path)
    assert (code, out) == (1, "") and error in err


def test_a_wrong_file_is_told_and_nothing_written(
    hccc: Hccc, files: tuple[Path, Path], tmp_path: Path
) -> None:
    cluster, demand = files
    demand.write_text("0 -> 1\n# and\nsum 0-7 -> 2\n")
    out = tmp_path / "x.rccl"
    code, _, err = hccc("synth", cluster, "--demand", demand, "-o", out)
    assert code == 1 and not out.exists()
    assert f"{demand}:3:7: error[E017]: there is no rank 7" in err and "^" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["synth", "bound"])
def test_a_collective_and_a_demand_are_one_too_many(
    hccc: Hccc, files: tuple[Path, Path], command: str
) -> None:
    cluster, demand = files
    code, _, err = hccc(command, cluster, "--demand", demand, "--collective", "allgather")
    assert code == 2 and "error[E415]: give either" in err


def test_synth_needs_one_of_them(hccc: Hccc, files: tuple[Path, Path]) -> None:
    code, _, err = hccc("synth", files[0])
    assert code == 2 and "error[E415]: give either a collective or a demand" in err


def test_the_bound_of_a_demand(hccc: Hccc, files: tuple[Path, Path]) -> None:
    cluster, demand = files
    code, out, _ = hccc("bound", cluster, "--demand", demand, "-b", "1M", "--json")
    (found,) = json.loads(out)["bounds"]
    assert code == 0 and found["time"] > 0 and found["collective"] == "custom"
    demand.write_text("0 -> 0-2\n1 -> 0-2\n2 -> 0-2\n")
    pages = [
        hccc("bound", cluster, *what, "--json")[1]
        for what in (("--demand", demand), ("--collective", "allgather"))
    ]
    times = [json.loads(page)["bounds"][0]["time"] for page in pages]
    assert times[0] == times[1]


def test_python_takes_a_text_or_a_file(files: tuple[Path, Path]) -> None:
    cluster, path = files
    demand = python.load_demand(path, 3)
    assert demand == python.load_demand(TEXT, 3)
    assert demand == python.load_demand(demand.text(), 3)
    assert python.bound(cluster, demand).found[0].bound.time > 0
    with pytest.raises(python.UserError) as caught:
        python.load_demand("0 -> 9", 3)
    assert caught.value.problem.code == "E017" and str(caught.value.problem.span) == "<text>:1:6"
    with pytest.raises(python.UserError, match="E401"):
        python.load_demand("missing.demand", 3)
