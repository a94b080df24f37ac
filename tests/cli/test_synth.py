"""`hccc synth`: programs that run, kernels that check, and refusals that leave files alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hccc.cli.synth import PRUNINGS
from tests.cli.commandline import COMMAND, Hccc, environment
from tests.marks import slow
from tests.synth.greedy.chunked_clusters import SMALL


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "small.cluster"
    path.write_text(SMALL)
    return path


@pytest.mark.quick(0)
@pytest.mark.parametrize("collective", ["allreduce", *map(slow, ("allgather", "reducescatter"))])
def test_the_program_on_stdout_runs(hccc: Hccc, cluster: Path, collective: str) -> None:
    code, out, err = hccc("synth", cluster, "--collective", collective, "-b", "1M")
    assert code == 0 and "chosen" in err and "lower bound" in err
    argv = ["run", "-", "-b", "0", "-e", "70001", "-i", "35000", "-n", "1", "-w", "1", "--json"]
    done = subprocess.run(
        [*COMMAND, *argv], input=out, capture_output=True, text=True, timeout=120, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)["results"]
    assert rows and all(
        row[place]["nwrong"] == 0 for row in rows for place in ("out_of_place", "in_place")
    )


@pytest.mark.slow
def test_into_a_file_and_as_json(hccc: Hccc, cluster: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.rccl"
    argv = ("synth", cluster, "--collective", "allgather", "-b", "1M", "--seed", 3, "-o")
    code, said, _ = hccc(*argv, out, "--json")
    facts = json.loads(said)
    assert code == 0 and facts["seed"] == 3 and facts["ranks"] == 3 and facts["share"] <= 1 + 1e-9
    again = tmp_path / "y.rccl"
    assert hccc(*argv, again)[0] == 0 and again.read_bytes() == out.read_bytes()
    assert hccc(*argv, "-")[1].encode() == out.read_bytes()


@pytest.mark.slow
def test_into_a_directory_that_checks(hccc: Hccc, cluster: Path, tmp_path: Path) -> None:
    out = tmp_path / "kernels"
    code, said, _ = hccc("synth", cluster, "--collective", "allgather", "-b", "1M", "-o", out)
    assert code == 0 and "chosen" in said
    assert hccc("check", out)[0] == 0


@pytest.mark.slow
def test_within_a_budget_of_sms(hccc: Hccc, cluster: Path, tmp_path: Path) -> None:
    argv = ("synth", cluster, "--collective", "allreduce", "-b", "64M", "--json", "-o")
    free = json.loads(hccc(*argv, tmp_path / "x.rccl")[1])
    least = json.loads(hccc(*argv, tmp_path / "y.rccl", "--max-sms", 1)[1])
    assert least["time"] > 1.2 * free["time"]
    out = tmp_path / "kernels"
    assert hccc(*argv, out, "--max-sms", 2)[0] == 0
    plans = json.loads((out / "plan.json").read_text())["plans"]
    assert plans and all(one["channels"] * max(one["n_tb"]) <= 2 for one in plans)


def test_faults(hccc: Hccc, cluster: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.rccl"
    argv = ("synth", cluster, "--collective", "allgather", "-b", "64M", "--json", "-o", out)
    whole = json.loads(hccc(*argv)[1])
    slower = json.loads(hccc(*argv, "--degrade", "node1.nic=18Gbps")[1])
    fewer = json.loads(hccc(*argv, "--fail", "node2.gpu1")[1])
    assert slower["time"] > 5 * whole["time"] and slower["ranks"] == 3
    assert fewer["ranks"] == 2
    assert cluster.read_text() == SMALL


@pytest.mark.parametrize(
    ("argv", "code"),
    [  # E410 is wrong usage: 2
        (["--fail", "gpu3"], "E410"),
        (["--degrade", "node1.nic"], "E410"),
        (["--fail", "node2.gpu9"], "E132"),
        (["--method", "best"], "E451"),
        (["--root", "3", "--method", "greedy"], "E410"),
        (["--fail", "node2.gpu0", "--fail", "node2.gpu1"], "E451"),
    ],
)
@pytest.mark.parametrize("name", ["x.rccl", "kernels"])
def test_refusals_leave_what_is_there(
    hccc: Hccc, cluster: Path, tmp_path: Path, name: str, argv: list[str], code: str
) -> None:
    out = tmp_path / name
    out.write_text("mine") if out.suffix else out.mkdir()
    before = sorted(tmp_path.rglob("*"))
    exit_code, _, err = hccc("synth", cluster, "--collective", "broadcast", "-o", out, *argv)
    assert exit_code == (2 if code == "E410" else 1) and code in err and "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before
    assert out.is_dir() or out.read_text() == "mine"


SIZES = ("--collective", "allgather", "--sizes", "1K..16M")


@pytest.mark.slow
def test_several_sizes_into_a_directory_that_checks(
    hccc: Hccc, cluster: Path, tmp_path: Path
) -> None:
    out = tmp_path / "kernels"
    code, said, _ = hccc("synth", cluster, *SIZES, "-o", out)
    assert code == 0 and "chosen (*)" in said and "compiled for" in said and "16 MiB" in said
    assert hccc("check", out)[0] == 0


@pytest.mark.slow
def test_several_sizes_as_programs(hccc: Hccc, cluster: Path, tmp_path: Path) -> None:
    out = tmp_path / "programs"
    out.mkdir()
    earlier = "# Allgather\n# Method: old method; seed 0.\n"
    (out / "allgather-old-method-1K-2M-and-4G.rccl").write_text(earlier)
    mine = {"mine.rccl": earlier, "allgather-mine-8.rccl": "mine"}
    for name, text in mine.items():
        (out / name).write_text(text)
    code, said, _ = hccc("synth", cluster, *SIZES, "-o", out / "*.rccl", "--json")
    facts = json.loads(said)
    names = [program["file"] for program in facts["programs"]]
    assert code == 0 and sorted(p.name for p in out.iterdir()) == sorted([*names, *mine])
    for name in names:
        assert hccc("check", out / name)[0] == 0
    assert hccc("synth", cluster, *SIZES, "-o", out / "*.rccl")[0] == 0
    again = tmp_path / "again"
    assert hccc("synth", cluster, *SIZES, "-o", again / "*.rccl")[0] == 0
    assert {p.name: p.read_text() for p in again.iterdir()} == {
        name: (out / name).read_text() for name in names
    }


def test_one_size_as_programs(hccc: Hccc, cluster: Path, tmp_path: Path) -> None:
    out = tmp_path / "programs"
    argv = ("synth", cluster, "--collective", "allgather", "--method", "ring", "-b", "64M")
    assert hccc(*argv, "-o", out / "*.rccl")[0] == 0
    assert [p.name for p in out.iterdir()] == ["allgather-ring-64M.rccl"]


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--sizes", "1K..4M", "-b", "1M", "-o", "kernels"], "E415"),
        (["--sizes", "1K..4M"], "E415"),
        (["--sizes", "1K..4M", "-o", "x.rccl"], "E415"),
        (["--sizes", "1K..4M", "--explain", "-o", "kernels"], "E416"),
        (["--plans", "2", "-o", "kernels"], "E416"),
        (["--sizes", "4M..1K", "-o", "k"], "E410"),
        (["--sizes", "1K..4M", "-o", "no/such/*.rccl"], "E431"),
        (["--sizes", "1K..4M", "-o", "small.cluster/*.rccl"], "E431"),
    ],
)
def test_refusals_of_several_sizes(
    hccc: Hccc, cluster: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], code: str
) -> None:
    monkeypatch.chdir(cluster.parent)
    exit_code, out, err = hccc("synth", cluster, "--collective", "allgather", *argv)
    assert exit_code == (1 if code == "E431" else 2)
    assert code in err and out == "" and "Traceback" not in err
    assert list(cluster.parent.iterdir()) == [cluster]


@pytest.mark.parametrize("output", [[], ["-o", "-"]])
def test_json_and_the_program_do_not_share_stdout(
    hccc: Hccc, cluster: Path, output: list[str]
) -> None:
    code, out, err = hccc("synth", cluster, "--collective", "allgather", "--json", *output)
    assert code == 2 and "E415" in err and json.loads(out)["error"]["code"] == "E415"


def test_the_cluster_is_not_written_over(hccc: Hccc, tmp_path: Path) -> None:
    cluster = tmp_path / "odd.rccl"
    cluster.write_text(SMALL)
    code, _, err = hccc("synth", cluster, "--collective", "allgather", "-o", cluster)
    assert code == 1 and "Traceback" not in err and cluster.read_text() == SMALL


@pytest.mark.parametrize(
    "argv",
    [
        ["--collective", "allgathr"],
        [],
        ["--collective", "allgather", "-b", "x"],
        ["--collective", "allgather", "-b", "-1"],
        ["--collective", "allgather", "-b", "0"],
    ],
)
def test_bad_options(hccc: Hccc, cluster: Path, argv: list[str]) -> None:
    code, out, err = hccc("synth", cluster, *argv)
    assert code == 2 and out == "" and err and "Traceback" not in err


@pytest.mark.slow
def test_a_job_is_weighed_where_there_are_several_vendors(hccc: Hccc, tmp_path: Path) -> None:
    words = ("synth", "hetccl-snu", "--collective", "broadcast", "-b", "64K", "-o")
    code, out, _ = hccc(*words, tmp_path / "x.rccl", "--method", "greedy")
    (line,) = (line for line in out.splitlines() if "as a job" in line)
    assert code == 0 and "over 2 vendor clusters, by their libraries" in line
    facts = json.loads(hccc(*words, tmp_path / "y.rccl", "--method", "greedy", "--json")[1])
    assert facts["job"]["faster"] is (facts["job"]["time"] < facts["time"])
    assert f"{facts['job']['time']:,.2f} µs" in line
    assert ("faster" in line) is facts["job"]["faster"]


@pytest.mark.slow
def test_jobs_of_several_sizes(hccc: Hccc, tmp_path: Path) -> None:
    """Each size has its job, and which is faster."""
    words = ("synth", "hetccl-snu", "--collective", "broadcast", "--sizes", "64K..1M")
    way = ("--method", "greedy", "--json", "-o", f"{tmp_path}/*.rccl")
    facts = json.loads(hccc(*words, *way)[1])
    times = {one["size"]: one["time"] for one in facts["sizes"]}
    assert len(times) > 1 and [one["size"] for one in facts["jobs"]] == list(times)
    for one in facts["jobs"]:
        assert one["faster"] is (one["time"] < times[one["size"]])
    _, out, _ = hccc(*words, *way[:2], *way[3:])
    lines = [line for line in out.splitlines() if "vendor clusters, by their libraries" in line]
    assert lines[0].startswith("  as a job") and len(lines) == len(times)
    for line, one in zip(lines, facts["jobs"], strict=True):
        assert f"{one['time']:,.2f} µs of " in line and ("faster" in line) is one["faster"]


@pytest.mark.slow
def test_sketches_of_ones_own(hccc: Hccc, tmp_path: Path) -> None:
    """The head of a program has its sketch, from which `--sketch` makes the same transfers."""
    site = tmp_path / "site.cluster"
    nics = "define nic = [((0) -> 25), ((1) -> 25)]\n"
    site.write_text(f"define node1 = 3 * 2\ndefine bandwidth = {{port => [((0,1) -> 90)]}}\n{nics}")
    call = ("synth", str(site), "--collective", "allgather", "-b", "1M")
    code, first, said = hccc(*call, "--method", "sketch")
    assert code == 0 and "chosen       sketch, " in said
    head, _, body = first.partition("\ndef ResCCLAlgo")
    text = head.partition("moved to all others:\n")[2]
    mine = tmp_path / "mine.sketch"
    mine.write_text(text.replace("# ", ""))
    code, second, said = hccc(*call, "--method", "sketch", "--sketch", str(mine))
    assert (code, second.partition("\ndef ResCCLAlgo")[2]) == (0, body)
    code, _, said = hccc(*call, "--sketch", str(mine))
    assert code == 0 and "    sketch, " in said and "direct" in said


@pytest.mark.slow
def test_each_pruning_is_a_switch(hccc: Hccc, tmp_path: Path) -> None:
    site = tmp_path / "site.cluster"
    nics = "define nic = [((0) -> 25), ((1) -> 25)]\n"
    site.write_text(f"define node1 = 3 * 2\ndefine bandwidth = {{port => [((0,1) -> 90)]}}\n{nics}")
    call = ("synth", str(site), "--collective", "allgather", "-b", "1M", "--method", "sketch")
    names = [part for name in PRUNINGS for part in ("--unpruned", name)]
    code, _, said = hccc(*call, *names)
    assert code == 0 and "chosen       sketch, " in said
    code, out, said = hccc(*call, "--unpruned", "relays", "--method", "pack")
    assert (code, out) == (2, "") and "--unpruned has no effect" in said


def test_what_sketches_cannot_do_is_one_error(hccc: Hccc, tmp_path: Path) -> None:
    mine = tmp_path / "mine.sketch"
    mine.write_text("sketch:\n    stage:\n        node 0: 0 -> 1-9\n")
    call = ("synth", "syccl-a100-16", "--sketch", str(mine))
    for method, wanted, message in (
        ("sketch", 1, "mine.sketch:3:22: error[E019]: rank 8 is not in node 0"),
        ("pack", 2, "--sketch has no effect"),
    ):
        code, out, err = hccc(*call, "--collective", "allgather", "--method", method)
        assert (code, out) == (wanted, "") and message in err
    mine.write_text("sketch:\n stage:\n  node 0: 0 -> 1-7\n  leaf 0: 0 -> 8-15\n")
    code, out, err = hccc(*call, "--collective", "broadcast")
    assert (code, out) == (1, "") and "sketches do not serve Broadcast" in err
