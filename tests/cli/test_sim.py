"""hccc sim: the table, JSON, rivals, refusals."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commandline import COMMAND, ROOT, Hccc, environment, process

EXAMPLES = ROOT / "examples"
XML = EXAMPLES / "msccl" / "allreduce_ring_n8.xml"
RING, HM = EXAMPLES / "ring_allreduce.rccl", EXAMPLES / "hm_allreduce.rccl"
CLUSTERS = EXAMPLES / "clusters"
DGX, TOPO4 = CLUSTERS / "dgx-h100.cluster", CLUSTERS / "resccl-topo4.cluster"
PAIR = ROOT / "tests" / "interop" / "data" / "allreduce_pair_n2.xml"
TWO = "define nodenum = 1\ndefine node1 = 2\ndefine bandwidth = {mesh => [((0..1) -> (25,1))]}\n"


def simulated(hccc: Hccc, *argv: object) -> Any:
    code, out, err = hccc("sim", *argv, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.slow
def test_the_table_says_what_json_says(hccc: Hccc) -> None:
    sizes = ("-b", "1K", "-e", "1M", "-f", "32", "--micro-batch", "1M")
    argv = (RING, "--cluster", DGX, *sizes)
    code, out, err = hccc("sim", *argv)
    assert (code, err) == (0, "")
    assert out.startswith(f"# ring_allreduce: Allreduce over 8 ranks, simulated on {DGX}\n")
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    results = simulated(hccc, *argv)["results"]
    assert [r["size"] for r in results] == [1 << 10, 1 << 15, 1 << 20]
    for row, result in zip(rows, results, strict=True):
        figures = (f"{result['time']:.2f}", f"{result['algbw']:.2f}", f"{result['busbw']:.2f}")
        assert row[:4] == [str(result["size"]), *figures]
    assert re.search(r"critical path of 1,048,576 bytes: \d+ steps", out.splitlines()[-1])


@pytest.mark.slow
def test_figures_are_consistent(hccc: Hccc) -> None:
    """Time grows with size, shares are shares, busbw is nccl-tests', the path is the time."""
    last, argv = (
        0.0,
        (HM, "--cluster", TOPO4, "--channels", "4", "-b", "0", "-e", "64M", "-f", "64"),
    )
    for r in simulated(hccc, *argv)["results"]:
        assert r["time"] >= last
        last = r["time"]
        assert r["algbw"] == pytest.approx(r["size"] / r["time"] / 1000)
        assert r["busbw"] == pytest.approx(r["algbw"] * 2 * 31 / 32)
        assert 0 <= r["utilisation"] <= max((x["most"] for x in r["links"]), default=0.0) <= 1
        assert r["blocks"]["busy"] + r["blocks"]["idle"] == pytest.approx(1)
        assert sum(r["critical_path"].values()) == pytest.approx(r["time"])


@pytest.mark.slow
def test_rivals_leave_hcccs_row_as_it_is(hccc: Hccc) -> None:
    argv = (RING, "--cluster", DGX, "-b", "1M", "-e", "1M", "--channels", "4")
    alone, beside = simulated(hccc, *argv), simulated(hccc, *argv, "--vs")
    (row,) = beside["results"]
    rivals = {r["name"]: r for r in row.pop("vs")}
    assert row == alone["results"][0]
    others = ["NCCL ring", "NCCL tree", "MSCCL", "stage-level", "round-robin"]
    library = ["NCCL", "NCCL registered"]
    assert list(rivals) == [*library, *others]
    assert beside["missing"] == {} and list(beside["notes"]) == ["hccc", *others, *library]
    assert rivals["NCCL"]["algorithm"] in ("Ring", "Tree", "NVLS", "NVLSTree")
    text = hccc("sim", *argv, "--vs")[1]
    assert f"{rivals['MSCCL']['time'] / row['time']:.2f}×" in text
    assert "# NCCL tree: NCCL's double binary trees for this cluster" in text


@pytest.mark.slow
def test_the_best_micro_batch_is_the_best(hccc: Hccc) -> None:
    argv = (HM, "--cluster", TOPO4, "--tune", "off", "-b", "8M", "-e", "8M")
    (best,) = simulated(hccc, *argv, "--micro-batch", "best")["results"]
    tried = [simulated(hccc, *argv, "--micro-batch", f"{16 << k}K") for k in range(0, 8, 2)]
    tried.append(simulated(hccc, *argv))
    assert best["time"] == min(t["results"][0]["time"] for t in tried)


@pytest.mark.slow
def test_plans_and_kernels_take_what_their_program_takes(hccc: Hccc, tmp_path: Path) -> None:
    plan, call = tmp_path / "plan.json", ("--cluster", DGX, "-b", "1M", "-e", "1M")
    plan.write_text(hccc(RING, "--cluster", DGX, "--emit=plan")[1])
    assert hccc(RING, "--cluster", DGX, "-o", tmp_path / "kernels", "--target", "cpu")[0] == 0
    wanted = simulated(hccc, RING, *call)["results"]
    assert simulated(hccc, plan, *call)["results"] == wanted
    assert simulated(hccc, tmp_path / "kernels", *call)["results"] == wanted


def test_plans_of_one_kind_of_call(hccc: Hccc, tmp_path: Path) -> None:
    site = tmp_path / "two.cluster"
    site.write_text(TWO)
    code, _, err = hccc("sim", PAIR, "--cluster", site, "-e", "1K")
    assert code == 1 and "error[E460]" in err and "give --in-place" in err
    assert len(simulated(hccc, PAIR, "--cluster", site, "-e", "1K", "--in-place")["results"]) == 1


@pytest.mark.parametrize("option", ["--launch", "--step", "--interpret", "--contention", "-f"])
@pytest.mark.parametrize("value", ["nan", "inf", "1e308", "-1"])
def test_impossible_numbers(hccc: Hccc, option: str, value: str) -> None:
    code, out, err = hccc("sim", RING, "--cluster", DGX, option, value, "--json")
    assert code == 2 and option in json.loads(out)["error"]["message"]
    assert err.startswith("error[E400]") and err.count("error") == 1


def test_a_launch_is_the_cluster_s_unless_given(hccc: Hccc, tmp_path: Path) -> None:
    site = tmp_path / "site.cluster"
    site.write_text(TWO)
    call = (PAIR, "--cluster", site, "-b", "1K", "-e", "1K", "--in-place")
    bare = simulated(hccc, *call)["results"][0]["time"]
    site.write_text(TWO + "\ndefine launch = 43\n")
    times = [
        simulated(hccc, *call, *more)["results"][0]["time"]
        for more in ((), ("--launch", "0"), ("--launch", "5"))
    ]
    assert times == [bare + 43, bare, bare + 5]
    shown = hccc("explain", PAIR, "--cluster", site, "-b", "1K", "--in-place", "--json")[1]
    assert json.loads(shown)["parts"]["launch"] == 43


REFUSED: dict[str, tuple[list[object], str]] = {
    "no cluster": ([XML], "E424"),
    "missing cluster": ([RING, "--cluster", "no-such-file"], "E401"),
    "a program as cluster": ([RING, "--cluster", RING], "E030"),
    "a cluster as program": ([DGX, "--cluster", DGX], "E416"),
    "another number of ranks": ([RING, "--cluster", TOPO4], "E130"),
    "too many sizes": ([RING, "--cluster", DGX, "-f", "1.00001"], "E418"),
    "too many micro-batches": ([RING, "--cluster", DGX, "--micro-batch", "1", "-b", "1G"], "E461"),
    "not a size": ([RING, "--cluster", DGX, "--micro-batch", "worst"], "E400"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(hccc: Hccc, case: str) -> None:
    argv, error = REFUSED[case]
    code, out, err = hccc("sim", *argv)
    assert (code, out) == (2 if error in ("E400", "E416", "E418", "E424") else 1, "")
    assert re.findall(r"error\[(E\d+)\]", err) == [error]


def test_a_plan_of_another_number_of_ranks(hccc: Hccc, tmp_path: Path) -> None:
    plan, one = tmp_path / "plan.json", tmp_path / "one.cluster"
    plan.write_text(hccc(RING, "--emit=plan")[1])
    code, _, err = hccc("sim", plan, "--cluster", TOPO4)
    assert code == 1 and "error[E130]" in err
    one.write_text("define nodenum = 1\ndefine node1 = 1\n")
    code, _, err = hccc("sim", RING, "--cluster", one)
    assert code == 1 and "the cluster has 1 GPU\n" in err and "nRanks=1," not in err


@pytest.mark.slow
def test_an_interrupt_is_heard_while_simulating(hccc: Hccc) -> None:
    argv = ["sim", str(RING), "--cluster", str(DGX), "-b", "1024G", "-e", "1024G"]
    assert hccc("sim", RING, "--cluster", DGX, "-e", "1K")[0] == 0  # its loops are compiled
    with subprocess.Popen(
        [*COMMAND, *argv, "--micro-batch", "16K"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as running:
        time.sleep(4)  # of minutes
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
        assert out == "" and not err.strip()
        assert running.returncode == 130


@pytest.mark.slow
def test_stdout_of_any_encoding_and_none() -> None:
    argv = ["sim", RING, "--cluster", DGX, "-e", "1K", "--vs"]
    done = process(*argv, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "") and "1.00?" in done.stdout
    shell = ["bash", "-c", 'exec "$@" >&-', "bash", *COMMAND, *map(str, argv)]
    closed = subprocess.run(shell, stderr=subprocess.PIPE, env=environment(), timeout=120)
    assert closed.returncode == 1  # the table could not be printed
    assert closed.stderr == b"error[E440]: standard output: Bad file descriptor\n"


@pytest.mark.slow
def test_a_direct_plan_says_why_it_has_no_rivals(hccc: Hccc, tmp_path: Path) -> None:
    """Rivals with the same algorithm need the program; NCCL's rings do not."""
    plan = tmp_path / "plan.json"
    plan.write_text(hccc(RING, "--emit=plan", "--tune=off")[1])
    code, stdout, _ = hccc(
        "sim", plan, "--cluster", CLUSTERS / "mi300x.cluster", "-b", "1M", "-e", "1M", "--vs"
    )
    assert code == 0 and "NCCL ring" in stdout
    assert "# MSCCL: none, ring_allreduce cannot be rescheduled: a direct plan" in stdout


@pytest.mark.slow
def test_estimates_are_named(hccc: Hccc, tmp_path: Path) -> None:
    """In the table, in JSON and in explain; none where the file gives every figure."""
    site = tmp_path / "site.cluster"
    site.write_text("define node1 = 8\ndefine device = H20\n")
    argv = (RING, "--cluster", site, "-b", "1M", "-e", "1M")
    said = (
        "H20: reduction, latency, delivered bandwidth, launch, stores of a block, loads of a block"
    )
    code, out, _ = hccc("sim", *argv)
    assert code == 0 and f"\n# estimates: {said}\n" in out
    assert simulated(hccc, *argv)["estimates"] == [said]
    assert "launch" not in simulated(hccc, *argv, "--launch", "1")["estimates"][0]
    code, out, _ = hccc("explain", RING, "--cluster", site, "-b", "1M")
    assert code == 0 and f"\n  estimates    {said}\n" in out
    site.write_text(
        "define node1 = 8\ndefine device = {vendor => x, reduce => 100, block => 9}\n"
        "define bandwidth = {port => [((0..7) -> (100, 1, 2))]}\n"
    )
    assert "# estimates" not in hccc("sim", *argv)[1]
    assert simulated(hccc, *argv)["estimates"] == []


UNEVEN = """
def ResCCLAlgo(nRanks=4, AlgoName="direct", OpType="Alltoallv", nChunks=16):
    for i in range(nRanks):
        for j in range(nRanks):
            if i != j:
                transfer(i, j, 0, i * nRanks + j, recv)
"""


@pytest.mark.slow
def test_blocks_with_lengths_of_their_own(hccc: Hccc, tmp_path: Path) -> None:
    """They take less than where all are as long as the longest, and waits where all are empty."""
    file = tmp_path / "direct.rccl"
    file.write_text(UNEVEN)
    four = tmp_path / "four.cluster"
    four.write_text(TWO.replace("node1 = 2", "node1 = 4").replace("0..1", "0..3"))
    call = (file, "--cluster", four, "-b", "64M", "-e", "64M")
    took = {
        skew: simulated(hccc, *call, *(["--skew", skew] if skew else []))["results"][0]["time"]
        for skew in ("", "random", "zipf", "one", "empty")
    }
    assert took[""] > took["random"] > took["empty"] > 0
    assert took[""] >= took["zipf"] > took["empty"]
    code, _, err = hccc("sim", RING, "--cluster", DGX, "--skew", "zipf")
    assert code == 2 and "error[E415]: --skew: the blocks of Allreduce are alike" in err


@pytest.mark.slow
def test_plans_of_packets(hccc: Hccc, tmp_path: Path) -> None:
    """Sizes end where their calls do."""
    code, plan, _ = hccc(
        "compile", EXAMPLES / "direct_allreduce.rccl", "--protocol", "ll", "--emit", "plan"
    )
    file = tmp_path / "plan.json"
    file.write_text(plan)
    code, out, err = hccc("sim", file, "--cluster", DGX, "-b", "8")
    assert code == 0 and "--channels" in err
    rows = [line.split()[0] for line in out.splitlines() if line[0] != "#"]
    assert int(rows[-1]) <= 64 << 10 < 4 * int(rows[-1])
    code, _, err = hccc("sim", file, "--cluster", DGX, "-e", "1M")
    assert code == 1 and "E460" in err and "65,536 bytes" in err
    code, out, err = hccc("explain", file, "--cluster", DGX)
    assert code == 0 and "65,536 bytes on" in out
    code, _, err = hccc("show", file, "--cluster", DGX, "-o", tmp_path / "ll.html")
    assert (code, err) == (0, "")


def test_a_program_is_compiled_to_packets(hccc: Hccc) -> None:
    """`--protocol ll` is that of `compile`; what is compiled already only costs as LL."""
    words = ("--cluster", DGX, "-b", "8", "-e", "8", "--protocol", "ll")
    code, out, _ = hccc("sim", EXAMPLES / "direct_allreduce.rccl", *words)
    (row,) = [line.split() for line in out.splitlines() if line[0] != "#"]
    assert code == 0 and float(row[1]) < 5  # µs; by counters 7
    assert hccc("sim", XML, *words)[0] == 0
    code, _, err = hccc("sim", HM, "--cluster", TOPO4, *words[2:])
    assert code == 1 and "error[E323]: --protocol ll: ranks of several memory domains" in err


def test_a_table_of_times(hccc: Hccc, tmp_path: Path) -> None:
    """It has the times of stdout's table, and those of NCCL that --baseline says."""
    file = tmp_path / "times.table"
    sizes = ("-b", "1K", "-e", "1M", "-f", "1000")
    argv = (RING, "--cluster", DGX, "--tune", "off", *sizes)
    results = simulated(hccc, *argv, "-o", file)["results"]
    baseline = ("--baseline", "nccl", "--collective", "allreduce", "--cluster", DGX, *sizes)
    theirs = simulated(hccc, *baseline)["results"]
    assert file.read_text() == (
        "hccc times 1\ncollective Allreduce 8 -1\nlibrary nccl\nrows 2\n"
        + "".join(
            f"{one['size']} {one['time']:.6g} {its['time']:.6g}\n"
            for one, its in zip(results, theirs, strict=True)
        )
    )


def test_times_of_nothing(hccc: Hccc, tmp_path: Path) -> None:
    file = tmp_path / "times.table"
    two = tmp_path / "two.cluster"
    two.write_text(TWO)
    code, _, err = hccc("sim", PAIR, "--in-place", "--cluster", two, "-e", "1K", "-o", file)
    assert code == 1 and "error[E463]: the cluster does not say what its devices are" in err
    code, _, err = hccc(
        "sim", PAIR, "--in-place", "--cluster", two, "-o", tmp_path / "none" / "x.table"
    )
    assert code == 1 and "error[E431]" in err
    assert not file.exists()
