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
from hccc.ir.job_json import dumps, loads
from hccc.lang.transfer import load as transfer
from hccc.synth.builtin.hetccl import hetccl
from hccc.testing import fuzz, fuzz_jobs, is_correct, text

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


CLUSTERS = vendor_clusters([("a", [0, 1], [0, 1], [1, 1]), ("b", [2], [2], [1])])


@pytest.fixture
def job(tmp_path: Path) -> str:
    file = tmp_path / "job.json"
    file.write_text(dumps(hetccl(CLUSTERS, OpType.ALLREDUCE)))
    return str(file)


@pytest.mark.slow
def test_a_job_is_changed_and_run(job: str) -> None:
    code, out = hccc(job, "--examples", "110", "--json")
    assert code == 0, out
    assert json.loads(out)["examples"] == {"job": 60, "saved": 20, "simulated": 10, "lanes": 20}
    code, out = hccc(job, "--examples", "100", "--no-kernels", "--json")
    assert "lanes" not in json.loads(out)["examples"]


@pytest.mark.slow
def test_random_jobs_are_tried_beside_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "ROUND", {"verdict": 2})
    code, out = hccc("--examples", "14", "--no-kernels", "--seed", "3", "--json")
    assert code == 0
    assert json.loads(out)["examples"] == {"verdict": 2, "job": 12}


def test_a_planted_bug_of_jobs_is_found_and_replayed(
    job: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A verify_job that accepts everything. What is found is a job's JSON."""
    monkeypatch.setattr(fuzz_jobs, "verify_job", lambda job: job)
    code, out = hccc(job, "--examples", "60")
    assert code == 1 and "the law of the job is broken" in out and "it is accepted" in out
    command = re.search(r"# replay: hccc fuzz (.*)", out)
    assert command and hccc(*shlex.split(command[1])) == (1, out)
    found = "\n".join(line for line in out.splitlines() if line[0] != "#")
    assert loads(found).collective.op is OpType.ALLREDUCE


def test_where_jobs_are_given_wrongly(job: str, tmp_path: Path) -> None:
    text = tmp_path / "a.rccl"
    text.write_text('HetCCLJob(OpType="Allreduce"):\n    homColl(0, reduce, part(0))\n')
    for arguments, code in (
        ([str(text)], "E482"),  # whose vendor clusters?
        ([str(EXAMPLE), "--cluster", "dgx-h100"], "E415"),
        ([job, "--directories"], "E481"),
        ([job, "--directories", "--cluster", "dgx-h100"], "E415"),
    ):
        done = CliRunner().invoke(cli, ["fuzz", *arguments])
        assert f"error[{code}]" in str(done.exception), (arguments, str(done.exception))
