"""`hccc fuzz`: counts its trials, finds a planted bug, shrinks it, and can be replayed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from hccc.base.diagnostics import Source
from hccc.cli.main import cli
from hccc.ir.collective import OpType
from hccc.ir.job import vendor_clusters
from hccc.ir.job_json import dumps
from hccc.lang.transfer import load as transfer
from hccc.synth.builtin.hetccl import hetccl
from hccc.testing import fuzz, is_correct, text

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "rhd_allreduce.rccl"


def hccc(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["fuzz", *arguments])
    return done.exit_code, done.stdout


@pytest.mark.slow
def test_it_finds_nothing_and_says_how_much_it_tried() -> None:
    code, out = hccc("--examples", "30", "--no-kernels", "--seed", "3")
    assert code == 0
    assert out.startswith("nothing found: 30 examples")


@pytest.mark.slow
def test_the_same_seed_tries_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    for _ in range(2):
        tried: list[str] = []
        monkeypatch.setattr(fuzz, "is_correct", lambda p, t=tried: (t.append(text(p)), True)[1])
        monkeypatch.setattr(fuzz, "verify", lambda p: p)
        hccc("--examples", "60", "--no-kernels", "--seed", "8")
        seen.append(tried)
    assert seen[0] == seen[1] and seen[0]


@pytest.mark.slow
def test_a_given_program_is_mutated_and_run() -> None:
    code, out = hccc(str(EXAMPLE), "--examples", "45", "--no-kernels", "--json")
    assert code == 0
    assert json.loads(out)["examples"] == {"result": 40, "verdict": 5}


@pytest.mark.slow
def test_a_kernel_is_built_and_run() -> None:
    code, out = hccc("--collective", "allgather", "--examples", "151", "--json")
    assert code == 0
    assert json.loads(out)["examples"]["kernel"] == 1


@pytest.mark.slow
def test_blocks_of_any_length_are_tried() -> None:
    code, out = hccc("--collective", "alltoallv", "--examples", "126", "--seed", "2", "--json")
    assert code == 0
    assert json.loads(out)["examples"] == {"result": 40, "verdict": 60, "plan": 25, "kernel": 1}


@pytest.mark.slow
def test_a_planted_bug_is_found_shrunk_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verify that accepts everything."""
    monkeypatch.setattr(fuzz, "verify", lambda program: program)
    code, out = hccc("--collective", "allgather", "--examples", "400", "--no-kernels")
    assert code == 1
    program = transfer.parse(Source("found.rccl", out))
    assert not is_correct(program)
    assert program.collective.n_ranks == 2 and len(program) <= 3
    command = re.search(r"# replay: hccc fuzz (.*)", out)
    assert command
    again, replayed = hccc(*shlex.split(command[1]))
    assert again == 1
    assert [x for x in replayed.splitlines() if x[0] != "#"] == [
        x for x in out.splitlines() if x[0] != "#"
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nosuch.rccl"], "cannot read"),
        (["--collective", "ring"], "not one of"),
        ([str(EXAMPLE), "--collective", "reduce"], "not both"),
        (["--time", "ten"], "not a duration"),
    ],
)
def test_what_cannot_be_fuzzed(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(cli, ["fuzz", *arguments])
    assert done.exit_code != 0
    assert says in done.output + str(done.exception)


def test_jobs_are_not_fuzzed(tmp_path: Path) -> None:
    """Neither their text nor their JSON is taken for a program with mistakes."""
    clusters = vendor_clusters([("a", [0, 1], [0, 1], [1, 1]), ("b", [2], [2], [1])])
    text = 'HetCCLJob(OpType="Allreduce"):\n    homColl(0, reduce, part(0))\n'
    for name, content in (
        ("job.json", dumps(hetccl(clusters, OpType.ALLREDUCE))),
        ("a.rccl", text),
    ):
        file = tmp_path / name
        file.write_text(content)
        done = CliRunner().invoke(cli, ["fuzz", str(file)])
        assert "error[E481]" in str(done.exception) and f"{file} is a job" in str(done.exception)
