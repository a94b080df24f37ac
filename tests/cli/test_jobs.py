"""Jobs on the command line: checked, simulated, explained, drawn, run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commandline import Hccc

CLUSTER = ("--cluster", "hetccl-snu")


@pytest.fixture
def job(hccc: Hccc, tmp_path: Path) -> Path:
    path = tmp_path / "job.rccl"
    assert hccc("builtin", "hetccl", *CLUSTER, "-o", path)[0] == 0
    return path


def test_check(hccc: Hccc, job: Path, tmp_path: Path) -> None:
    code, out, err = hccc("check", job, *CLUSTER)
    assert (code, err) == (0, "")
    assert "hetccl_allreduce: Allreduce over 16 ranks, a job over 2 vendor clusters" in out
    assert "vendor cluster 1: amd, ranks 8–15, border 8–15; sends 2 parts, gets 2" in out
    saved = tmp_path / "job.json"
    assert hccc("builtin", "hetccl", *CLUSTER, "-o", saved)[0] == 0
    assert hccc("check", saved)[1] == out
    assert json.loads(hccc("check", saved, "--json")[1])["crossings"] == [[0, 2], [2, 0]]


def test_sim_and_explain(hccc: Hccc, job: Path) -> None:
    _, out, _ = hccc("sim", job, *CLUSTER, "-b", "1M", "-e", "4M")
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert [row[0] for row in rows] == ["1048576", "4194304"]
    facts = json.loads(hccc("sim", job, *CLUSTER, "-b", "1M", "-e", "1M", "--json")[1])
    assert f"{facts['results'][0]['time']:.2f}" == rows[0][1]
    _, out, _ = hccc("explain", job, *CLUSTER, "-b", "1M")
    assert "over the border 0 to 1: 1 MiB" in out


def test_blocks_of_their_own_lengths(hccc: Hccc, tmp_path: Path) -> None:
    """Fewer bytes cross the border than where all are as long as the longest."""
    path, saved = tmp_path / "job.rccl", tmp_path / "job.json"
    assert hccc("builtin", "hetccl", "--collective", "alltoallv", *CLUSTER, "-o", path)[0] == 0
    assert 'OpType="Alltoallv"' in path.read_text()
    assert "Alltoallv over 16 ranks" in hccc("check", path, *CLUSTER)[1]
    hccc("builtin", "hetccl", "--collective", "alltoallv", *CLUSTER, "-o", saved)
    assert hccc("check", saved)[1] == hccc("check", path, *CLUSTER)[1]

    def facts(*skew: str) -> tuple[float, float]:
        words = (path, *CLUSTER, "-b", "16M", *skew, "--json")
        found = json.loads(hccc("explain", *words)[1])
        row = json.loads(hccc("sim", *words, "-e", "16M")[1])["results"][0]
        assert row["time"] == found["time"]
        return found["time"], sum(moved for *_, moved in found["crossing"])

    even, skewed, empty = facts(), facts("--skew", "zipf"), facts("--skew", "empty")
    assert even[1] == 2 * 8 * 8 * (1 << 20) > skewed[1] > empty[1] == 0
    assert even[0] > skewed[0] > empty[0]


def test_a_wrong_job_has_its_place(hccc: Hccc, job: Path) -> None:
    job.write_text(job.read_text().replace("    c2cRed(1, 0, part(0))\n", ""))
    code, _, err = hccc("check", job, *CLUSTER)
    assert code == 1 and "error[E205]" in err and "^^^^" in err


UNLIKE = "hetccl-pku-nvidia+v1"  # of GPUs of two vendors

REFUSED = [
    (("check", "JOB"), "E482"),
    (("check", "JOB", *CLUSTER, "--channels", "2"), "E416"),
    (("sim", "JOB"), "E482"),
    (("sim", "JOB", *CLUSTER, "--vs"), "E416"),
    (("explain", "JOB", *CLUSTER, "--window", "2"), "E416"),
    (("JOB", *CLUSTER), "E415"),
    (("JOB", "-o", "TABLE"), "E482"),
    (("JOB", "-o", "TABLE", *CLUSTER, "--target", "cpu"), "E416"),
    (("JOB", "-o", "TABLE", *CLUSTER, "--emit", "plan"), "E416"),
    (("JOB", "JOB", "-o", "DIR", *CLUSTER), "E321"),
    (("run", "JOB"), "E482"),
    (("run", "JOB", *CLUSTER, "--window", "2"), "E416"),
    (("run", "JOB", *CLUSTER, "--vendors", "own:8"), "E473"),
    (("run", "JOB", *CLUSTER, "--vendors", "own:4,mpich:12"), "E473"),
    (("run", "JOB", *CLUSTER, "-o", "odds: a + b + a * b"), "E416"),
    (("sim", "JOB", *CLUSTER, "--skew", "zipf"), "E415"),
    (("run", "JOB", *CLUSTER, "--skew", "zipf"), "E415"),
    (("run", "JOB", *CLUSTER, "--procs", "99"), "E473"),
]


@pytest.mark.parametrize(("words", "code"), REFUSED)
def test_what_it_refuses(
    hccc: Hccc, job: Path, tmp_path: Path, words: tuple[str, ...], code: str
) -> None:
    places = {"JOB": job, "DIR": tmp_path / "kernels", "TABLE": tmp_path / "job.table"}
    status, _, err = hccc(*(places.get(word, word) for word in words))
    assert status == 1 + (code in ("E415", "E416")) and code in err, err


@pytest.mark.slow
def test_its_table(hccc: Hccc, tmp_path: Path) -> None:
    """It says in how many micro-batches calls are fastest on the cluster."""
    job, table, cluster = tmp_path / "job.rccl", tmp_path / "job.table", ("--cluster", UNLIKE)
    hccc("builtin", "hetccl", "--collective", "allreduce", *cluster, "-o", job)
    status, out, _ = hccc("compile", job, *cluster, "-o", table)
    lines = table.read_text().splitlines()
    assert status == 0 and out.startswith(f"{table}: {table.stat().st_size:,} bytes, the table of ")
    assert lines[0] == "hccc job 1" and lines[2].startswith("collective Allreduce ")
    at = next(k for k, line in enumerate(lines) if line.startswith("micro_batches "))
    assert lines[at + 1] == "0 1" and int(lines[at].split()[1]) == len(lines) - at - 2 > 1
    shown = hccc("compile", job, *cluster, "-o", "-")[1]
    assert shown == table.read_text()
    facts = json.loads(hccc("compile", job, *cluster, "-o", table, "--json")[1])
    assert facts["bytes"] == table.stat().st_size


def test_a_file_of_another_number_of_ranks(hccc: Hccc, tmp_path: Path) -> None:
    saved = tmp_path / "job.json"
    hccc("builtin", "hetccl", *CLUSTER, "-o", saved)
    assert "E130" in hccc("check", saved, "--cluster", "dgx-h100")[2]
    assert "E424" in hccc("sim", saved)[2]


def test_show(hccc: Hccc, job: Path, tmp_path: Path) -> None:
    picture = tmp_path / "job.svg"
    code, out, err = hccc("show", job, *CLUSTER, "-o", picture)
    assert (code, err) == (0, "") and str(picture) in out
    drawn = picture.read_text()
    assert "homColl(0, reduce, part(0))" in drawn and "over the border: reduce" in drawn
    assert "E433" in hccc("show", job, *CLUSTER, "-o", tmp_path / "job.html")[2]
    assert "E433" in hccc("show", job, *CLUSTER, "-o", picture, "--what", "dag")[2]


@pytest.mark.slow
def test_builtin_takes_the_faster_vendor_clusters(hccc: Hccc, tmp_path: Path) -> None:
    """The NICs of nvidia nodes carry twice as much as those of the others."""
    there, path = ("--cluster", "hetccl-pku-nvidia+v3"), tmp_path / "job.rccl"
    assert hccc("builtin", "hetccl", *there, "-o", path)[0] == 0
    assert "nClusters=2" in path.read_text()
    assert "a job over 2 vendor clusters" in hccc("check", path, *there)[1]
    path.write_text(path.read_text().replace(", nClusters=2", ""))
    assert "E205" in hccc("check", path, *there)[2], "over three, rank 32 and on lack a step"
    path.write_text(path.read_text().replace("nParts=2", "nParts=2, nClusters=4"))
    code, _, err = hccc("check", path, *there)
    assert code == 1 and "E120" in err and "the cluster has 3 or 2 vendor clusters" in err
