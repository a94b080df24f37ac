"""compile and check: their files, output and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hccc.base.version import __version__
from hccc.cli.compile import NOTHING_CHOSEN
from hccc.driver import pass_manager
from hccc.driver.options import Output
from hccc.ir import plan_json
from hccc.lang.transfer import load as transfer
from tests.cli.commandline import Hccc

RING = str(Path(__file__).parents[2] / "examples" / "ring_allreduce.rccl")


def test_compile_writes_a_directory_and_says_what(hccc: Hccc, tmp_path: Path) -> None:
    out = tmp_path / "kernels"
    code, stdout, stderr = hccc(RING, "-o", out, "--tune=off")
    assert (code, stderr) == (0, "")
    assert "Allreduce over 8 ranks" in stdout
    for word in ("transfers", "sub-pipelines", "thread blocks", "deadlock, race, result", "files"):
        assert word in stdout
    names = {path.name for path in out.iterdir()}
    assert {"plan.json", "CMakeLists.txt", "ring_allreduce.cu", "ring_allreduce.hip"} <= names


@pytest.mark.slow
def test_compile_is_the_default_command(hccc: Hccc, tmp_path: Path) -> None:
    assert hccc(RING, "--emit=plan")[1] == hccc("compile", RING, "--emit=plan")[1]
    assert hccc("--emit=plan", RING)[1] == hccc(RING, "--emit=plan")[1]
    program = tmp_path / "check"
    program.write_text(Path(RING).read_text())
    assert hccc(program, "--emit=plan")[0] == 0


@pytest.mark.slow
def test_compile_json(hccc: Hccc, tmp_path: Path) -> None:
    code, stdout, stderr = hccc(RING, "-o", tmp_path / "k", "--json", "--target=cpu,cuda")
    facts = json.loads(stdout)
    assert (code, stderr) == (0, "")
    assert facts["hccc"] == __version__
    assert facts["ranks"] == 8 and facts["transfers"] == 112
    assert [proof["name"] for proof in facts["proofs"]] == ["program", "deadlock", "race", "result"]
    for file in facts["files"]:
        assert (tmp_path / "k" / file["path"]).stat().st_size == file["bytes"]
    assert not any(file["path"].endswith(".hip") for file in facts["files"])
    assert set(pass_manager.PHASES) < set(facts["seconds"])


def test_phases_are_timed_on_stderr(hccc: Hccc) -> None:
    _, stdout, stderr = hccc(RING, "--emit=plan", "--time-phases", "--tune=off")
    assert [line.split()[0] for line in stderr.splitlines()] == [*pass_manager.PHASES, "total"]
    json.loads(stdout)


@pytest.mark.parametrize("stop", Output)
def test_every_stop_prints(hccc: Hccc, stop: str) -> None:
    staged = ["--transport", "staged", "--allocator", "connection"] if stop == "msccl-xml" else []
    code, stdout, stderr = hccc(RING, f"--emit={stop}", *staged)
    told = f"note: {NOTHING_CHOSEN}\n" if stop.startswith("msccl") else ""
    assert (code, stderr) == (0, told)
    assert stdout.endswith("\n") and not stdout.endswith("\n\n")
    assert len(stdout.splitlines()) > 10


def test_an_emitted_program_is_the_program(hccc: Hccc, tmp_path: Path) -> None:
    again = tmp_path / "again.rccl"
    again.write_text(hccc(RING, "--emit=program")[1])
    assert hccc(again, "--emit=program")[1] == again.read_text()
    assert len(transfer.load(again)) == 112


@pytest.mark.slow
def test_an_emitted_plan_can_be_compiled_checked_and_run(hccc: Hccc, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(hccc(RING, "--emit=plan", "--plans=1")[1])
    assert hccc(plan, "--emit=cuda")[1] == hccc(RING, "--emit=cuda", "--plans=1")[1]
    assert hccc("check", plan)[0] == 0
    assert hccc(plan, "-o", tmp_path / "k")[0] == 0
    assert plan_json.load(tmp_path / "k" / "plan.json").name == "ring_allreduce"


def test_a_file_that_was_written_is_named_with_its_bytes(hccc: Hccc, tmp_path: Path) -> None:
    file = tmp_path / "ring.json"
    code, stdout, _ = hccc(RING, "--emit=plan", "--tune=off", "-o", file)
    assert (code, stdout) == (0, f"{file}: {file.stat().st_size:,} bytes\n")


@pytest.mark.slow
def test_options_reach_the_plan(hccc: Hccc) -> None:
    def plan(*options: str, of: str = RING) -> Any:
        return json.loads(hccc(of, "--emit=plan", "--tune=off", *options)[1])

    assert plan("--channels=3")["channels"] == 3
    assert plan("--warps=5")["warps"] == 5
    staged = plan("--transport=staged", "--slots=4")
    assert (staged["transport"], staged["queue_slots"]) == ("staged", 4)
    mesh = RING.replace("ring", "hm")
    assert sum(plan("--allocator=connection", of=mesh)["n_tb"]) > sum(plan(of=mesh)["n_tb"])
    assert len(plan("--fuse=none")["chunk"]) > len(plan("--fuse=full")["chunk"])
    assert plan("--scheduler=round-robin", of=mesh)["sub"] != plan(of=mesh)["sub"]


@pytest.mark.slow
def test_check_says_what_it_proved(hccc: Hccc) -> None:
    code, stdout, _ = hccc("check", RING)
    assert code == 0 and "cluster" not in stdout
    assert "  cluster   " in hccc("check", RING, "--cluster=dgx-h100", "--plans=1")[1]
    for word in ("program", "deadlock", "race", "result", "112 transfers"):
        assert word in stdout


def test_check_json(hccc: Hccc) -> None:
    facts = json.loads(hccc("check", RING, "--json")[1])
    assert all(proof["claim"] and proof["detail"] for proof in facts["proofs"])


@pytest.mark.slow
def test_check_of_a_directory_says_what_it_is_about(hccc: Hccc, tmp_path: Path) -> None:
    kernels = tmp_path / "k"
    assert hccc(RING, "-o", kernels, "--target=cpu,hip", "--tune=off")[0] == 0
    lines = hccc("check", kernels)[1].splitlines()
    assert lines[0] == f"ring_allreduce: Allreduce over 8 ranks (proofs of {kernels}/plan.json)"
    n = sum(path.is_file() for path in kernels.rglob("*")) - 1
    assert lines[-4:-2] == [
        f"  sources   {n} files are what this plan emits",
        "            (for cpu, hip)",
    ]
    facts = json.loads(hccc("check", kernels, "--json")[1])
    assert facts["plan"] == f"{kernels}/plan.json"
    assert facts["sources"] == {"files": n, "targets": ["cpu", "hip"]}
    with (kernels / "ring_allreduce.hip").open("a") as file:
        file.write("\n")
    code, stdout, stderr = hccc("check", kernels)
    assert (code, stdout) == (1, "") and "ring_allreduce.hip was not made from" in stderr


def test_check_refuses_a_plan_without_one_of_its_waits(hccc: Hccc, tmp_path: Path) -> None:
    data = json.loads(hccc(RING, "--emit=plan", "--tune=off")[1])
    flag = data["waits"]["index"].pop()
    data["waits"]["index"].insert(0, flag)
    data["waits"]["ptr"][1:] = [p + 1 for p in data["waits"]["ptr"][1:-1]] + [
        data["waits"]["ptr"][-1]
    ]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    code, stdout, stderr = hccc("check", path, "--json")
    assert code == 1
    assert json.loads(stdout)["error"]["code"].startswith("E3")
    assert "error[E3" in stderr
