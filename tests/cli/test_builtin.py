"""`hccc builtin`: its programs compile and run; impossible ones are refused."""

from pathlib import Path

import pytest

from hccc import assemble, check
from hccc.ir import job_json
from hccc.ir.job import lines
from hccc.synth.builtin.registry import BUILTINS
from tests.cli.commandline import Hccc

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GATHER = EXAMPLES / "direct_allgather.rccl"


def test_every_builtin_is_listed(hccc: Hccc) -> None:
    code, out, err = hccc("builtin", "list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == [*BUILTINS, "hetccl", "assembled"]


def test_a_direct_allgather_is_a_few_lines(hccc: Hccc) -> None:
    code, out, _ = hccc("builtin", "direct", "--ranks", 8, "--collective", "allgather")
    assert code == 0
    assert out.splitlines()[:3] == [
        "# Allgather on 8 ranks, 1 node: built-in `direct`.",
        "# Every chunk straight to where it must end.",
        "# Steps: 1. Transfers: 56.",
    ]
    assert out.splitlines()[4:] == [
        "    for i in range(nRanks):",
        "        for j in range(nRanks - 1):",
        "            transfer(i, (j + i + 1) % nRanks, 0, i, recv)",
    ]


@pytest.mark.quick(1)
@pytest.mark.parametrize("ranks", [8, 256])
def test_a_ring_without_a_cluster_is_in_order(hccc: Hccc, ranks: int) -> None:
    code, out, _ = hccc("builtin", "ring", "--ranks", ranks, "--collective", "allgather")
    assert code == 0
    assert out.splitlines()[4:] == [
        "    for s in range(nRanks - 1):",
        "        for i in range(nRanks):",
        "            transfer(i, (i + 1) % nRanks, s, (i - s) % nChunks, recv)",
    ]


@pytest.mark.parametrize("name", BUILTINS)
def test_what_it_writes_is_proved(hccc: Hccc, tmp_path: Path, name: str) -> None:
    """On 4 + 8 GPUs, and again byte for byte."""
    path, again = tmp_path / "a.rccl", tmp_path / "b.rccl"
    for file in (path, again):
        told = hccc("builtin", name, "--cluster", "heteccl-h20-4+8", "-o", file)
        assert told == (0, "", "")
    assert path.read_bytes() == again.read_bytes()
    assert " on cluster heteccl-h20-4+8.cluster, 2 nodes" in path.read_text().splitlines()[0]
    code, out, _ = hccc("check", path, "--tune", "off", "--cluster", "heteccl-h20-4+8")
    assert code == 0 and "deadlock" in out


@pytest.mark.slow
def test_it_runs(hccc: Hccc, tmp_path: Path) -> None:
    path = tmp_path / "a.rccl"
    assert hccc("builtin", "hierarchical", "--ranks", 6, "--gpus-per-node", 4, "-o", path)[0] == 0
    code, out, err = hccc("run", path, "-b", "64K", "-e", "64K")
    assert (code, err) == (0, "") and "# Out of bounds values : 0 OK" in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["ring"], 2, "either --ranks or --cluster"),
        (["ring", "--ranks", 4, "--cluster", "mi300x"], 2, "either --ranks or --cluster"),
        (["ring", "--gpus-per-node", 4, "--cluster", "mi300x"], 2, "belongs to --ranks"),
        (["direct", "--ranks", 3, "--root", 3], 2, "3 is no rank of 3"),
        (["rings", "--ranks", 3], 1, "no built-in algorithm 'rings'"),
        (["tree", "--ranks", 3, "--collective", "gather"], 1, "tree does not serve Gather"),
        (["direct", "--ranks", 60_000, "--collective", "alltoall"], 1, "E452"),
    ],
)
def test_what_it_refuses(hccc: Hccc, words: list[object], code: int, said: str) -> None:
    got, out, err = hccc("builtin", *words)
    assert (got, out) == (code, "") and said in err


def test_hetccl_is_a_job(hccc: Hccc, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    options = ("--cluster", "hetccl-snu", "--collective", "gather", "--root", 9)
    assert hccc("builtin", "hetccl", *options, "-o", file)[0] == 0
    job = job_json.loads(file.read_text())
    assert (len(job.clusters), job.collective.root) == (2, 9)
    _, printed, _ = hccc("builtin", "hetccl", *options)
    assert printed.endswith("\n".join(["", *lines(job), ""]))
    assert "# Vendor cluster 1: amd, ranks 8–15, border 8–15." in printed


def test_hetccl_over_nodes(hccc: Hccc) -> None:
    _, printed, _ = hccc("builtin", "hetccl", "--ranks", 5, "--gpus-per-node", 2)
    assert 'OpType="Allreduce", nParts=3' in printed


def test_hetccl_does_not_send_around(hccc: Hccc) -> None:
    code, _, said = hccc("builtin", "hetccl", "--ranks", 4, "--collective", "sendrecv")
    assert code == 1 and "E451" in said


def test_the_command_and_python_make_the_same(hccc: Hccc, tmp_path: Path) -> None:
    made = tmp_path / "made.rccl"
    code, _, err = hccc("builtin", "assembled", "--of", GATHER, "-o", made)
    assert code == 0, err
    assert check(assemble(GATHER)).plan.name == "direct_allreduce"
    code, out, err = hccc("run", made, "-b", "1K", "-e", "1K", "-n", "1")
    assert code == 0, err
    assert "Out of bounds values : 0 OK" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["assembled"], "assembled and --of belong together"),
        (["ring", "--of", GATHER, "--ranks", 4], "assembled and --of belong together"),
        (["assembled", "--of", GATHER, "--ranks", 4], "assembled has the ranks of --of"),
        (["assembled", "--of", GATHER, "--collective", "broadcast"], "E451"),
        (["assembled", "--of", EXAMPLES / "msccl" / "allreduce_ring_n8.xml"], "E321"),
    ],
)
def test_wrong_words(hccc: Hccc, words: list[object], said: str) -> None:
    code, _, err = hccc("builtin", *words)
    assert code in (1, 2) and said in err
