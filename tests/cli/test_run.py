"""hccc run: real kernels on real data, and the table of nccl-tests."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from hccc.base.dtypes import NAMES, reduces
from hccc.cli import tables as table
from hccc.driver import outputs
from hccc.emit.targets import Target
from hccc.ir.catalogue import Catalogue
from hccc.ir.collective import OpType
from hccc.lang.transfer import load as transfer
from hccc.launch import measure as bench
from hccc.runtime.measure.perf import PerfRow, PerfTiming
from tests.cli.commandline import Hccc
from tests.marks import slow

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.rccl"))
RING = next(path for path in EXAMPLES if path.stem == "ring_allreduce")
SHORT = ["-n", "2", "-w", "1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [slow(p) if k % 7 else p for k, p in enumerate(EXAMPLES)], ids=lambda p: p.stem
)
def test_every_example_runs_with_nothing_wrong(hccc: Hccc, path: Path) -> None:
    """No bytes, fewer elements than chunks, no multiple of anything, several micro-batches."""
    argv = ["run", path, "-b", "0", "-e", "70001", "-i", "35000", "--micro-batch", "100", *SHORT]
    code, stdout, stderr = hccc(*argv, "--json")
    report = json.loads(stdout)
    assert code == 0 and gives_way(path, stderr)
    assert report["out_of_bounds"] == {"count": 0, "okay": True}
    assert [row["size"] > 0 for row in report["results"]] == [False, True, True]
    for row in report["results"]:
        assert row["out_of_place"]["nwrong"] == row["in_place"]["nwrong"] == 0


def gives_way(path: Path, said: str) -> bool:
    """Tells whether nothing was said but that the header's channels, if it has any, give way."""
    if "nChannels" not in path.read_text():
        return not said
    return said == "" or (said.startswith("warning[W403]") and said.count("\n") == 2)


def test_every_collective_has_an_example() -> None:
    found = {transfer.load(path).collective.op for path in EXAMPLES}
    assert found == set(OpType) - {OpType.CUSTOM}


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--transport=staged", "--channels=3", "--window=1"])
def test_options(hccc: Hccc, option: str) -> None:
    assert hccc("run", RING, option, "-b", "5K", "-e", "5K", "--micro-batch=64", *SHORT)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("path", [RING, *map(slow, EXAMPLES)], ids=lambda p: p.stem)
def test_ranks_in_processes(hccc: Hccc, path: Path) -> None:
    """No bytes, fewer elements than chunks, no multiple of anything, several micro-batches."""
    sizes = ["-b", "0", "-e", "70001", "-i", "35000", "--micro-batch", "100"]
    code, stdout, stderr = hccc("run", path, "--procs", "2", *sizes, *SHORT)
    assert code == 0 and gives_way(path, stderr)
    assert "on cpu, 2 processes" in stdout and "Out of bounds values : 0 OK" in stdout


@pytest.mark.slow
def test_a_report_besides_the_table(hccc: Hccc, tmp_path: Path) -> None:
    """-J, as nccl-tests has it; -r must be the program's."""
    file = tmp_path / "report.json"
    code, stdout, _ = hccc(
        "run", RING, "-b", "4K", "-e", "4K", "-J", file, "--threads", "1", *SHORT
    )
    assert code == 0 and "#wrong" in stdout
    report = json.loads(file.read_text())
    assert [row["size"] for row in report["results"]] == [4096] and report["out_of_bounds"]["okay"]
    assert hccc("run", RING, "-J", tmp_path / "no" / "report.json")[0] == 1


@pytest.mark.slow
def test_the_root_is_the_programs(hccc: Hccc) -> None:
    star = next(path for path in EXAMPLES if path.stem == "binomial_broadcast")
    assert hccc("run", star, "-r", "0", "-b", "4K", "-e", "4K", *SHORT)[0] == 0
    code, _, stderr = hccc("run", star, "-r", "1")
    assert code == 2 and "its root is rank 0" in stderr
    code, _, stderr = hccc("run", RING, "-r", "0")
    assert code == 2 and "has no root" in stderr


@pytest.mark.slow
def test_processes_that_cannot_be(hccc: Hccc) -> None:
    code, _, stderr = hccc("run", RING, "--procs", "3")
    assert code == 1 and "cannot be shared out evenly" in stderr
    code, _, stderr = hccc("run", RING, "--procs", "2", "--network", "1GB/s,1us")
    assert code == 1 and "--procs" in stderr


@pytest.mark.slow
def test_a_reduction_of_ones_own(hccc: Hccc, tmp_path: Path) -> None:
    """By its text, then by its name of a directory that has it; without a check where it rounds."""
    odds, size = "odds: a + b + a * b", ["-b", "999", "-e", "999", *SHORT]
    code, stdout, _ = hccc("run", RING, "--tune=off", "-d", "int16", "-o", odds, *size)
    rows = [line.split() for line in stdout.splitlines() if not line.startswith("#")]
    assert code == 0 and [row[2:4] for row in rows] == [["int16", "odds"]]
    kernels = tmp_path / "k"
    assert hccc(RING, "--tune=off", "--op", odds, "--target", "cpu", "-o", kernels)[0] == 0
    assert "| `odds` | `a + b + a * b` | int, uint, float |" in (kernels / "README.md").read_text()
    assert hccc("run", kernels, "-d", "int16", "-o", "odds", *size)[0] == 0
    code, _, stderr = hccc("run", kernels, "-o", "evens", *size)
    assert code == 1 and "error[E411]" in stderr and "has no reduction `evens`" in stderr
    code, _, stderr = hccc("run", kernels, "-o", odds, *size)
    assert code == 2 and "error[E416]: --op has no effect" in stderr


def between_nodes(place: Path) -> Path:
    """Writes a ring of two nodes of two ranks."""
    path = place / "ring.rccl"
    text = RING.read_text()
    for what, n in (("nRanks", 4), ("GPUPerNode", 2), ("NICPerNode", 2)):
        text = re.sub(rf"\b{what}=\d+", f"{what}={n}", text)
    path.write_text(text)
    return path


def test_what_a_network_carries_is_not_multiplied(hccc: Hccc, tmp_path: Path) -> None:
    put = ["--network-lowering", "put", "--tune=off", *SHORT]
    code, _, stderr = hccc("run", between_nodes(tmp_path), "-o", "premul_sum", *put)
    assert code == 1 and "error[E411]" in stderr and "has no reduction `premul_sum`" in stderr
    assert "--network-lowering slots" in stderr


@pytest.mark.slow
@pytest.mark.parametrize("more", [["--network-lowering", "slots"], ["--procs", "2"]])
def test_sums_of_multiples(hccc: Hccc, tmp_path: Path, more: list[str]) -> None:
    path = between_nodes(tmp_path) if "slots" in more else RING
    types = ["-d", "int8,uint64,half,bfloat16,float32,float8e5m2", "-b", "999", "-e", "8991"]
    argv = ["-o", "premul_sum", *types, "-f", "9", *more, "--tune=off", *SHORT]
    code, stdout, _ = hccc("run", path, *argv)
    rows = [line for line in stdout.splitlines() if not line.startswith("#")]
    assert code == 0 and len(rows) == 12 and all("premul_sum" in row for row in rows)


@pytest.mark.slow
def test_reductions_that_round_are_not_checked(hccc: Hccc) -> None:
    argv = ["run", RING, "--tune=off", "-o", "par: a * b / (a + b)", "-e", "1K", *SHORT]
    code, _, stderr = hccc(*argv)
    assert code == 1 and "error[E458]" in stderr
    assert hccc(*argv, "-c", "0")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["odds: a + b + a * b", "absmin: abs(a) < abs(b) ? a : abs(b) < abs(a) ? b : min(a, b)"]
)
def test_reductions_of_ones_own_of_all_types(hccc: Hccc, text: str) -> None:
    floats = "half,bfloat16,float32,float64,float8e5m2,float8e4m3"
    argv = ["-d", f"int8,uint8,int64,{floats}", "-o", text, "-b", "100", "-e", "9000", *SHORT]
    code, stdout, _ = hccc("run", RING, *argv, "--json")
    assert code == 0 and len(json.loads(stdout)["results"]) > 9


@pytest.mark.slow
def test_types_and_reductions(hccc: Hccc) -> None:
    argv = ["-d", "int8,half,bfloat16", "-o", "sum,avg", "-b", "1001", "-e", "1001", *SHORT]
    code, stdout, _ = hccc("run", RING, *argv)
    rows = [line.split() for line in stdout.splitlines() if not line.startswith("#")]
    assert code == 0
    assert [(r[2], r[3]) for r in rows] == [
        (t, o) for t in ("int8", "half", "bfloat16") for o in ("sum", "avg")
    ]


@pytest.mark.slow
def test_all_types_and_reductions(hccc: Hccc) -> None:
    ops = ("sum", "band", "avg")
    argv = ["-d", "all", "-o", ",".join(ops), "-b", "100", "-e", "9000", "-f", "9", *SHORT]
    code, stdout, _ = hccc("run", RING, *argv, "--json")
    assert code == 0
    pairs = [(dtype, op) for dtype in NAMES for op in ops if reduces(dtype, op)]
    assert len(json.loads(stdout)["results"]) == len(pairs) * 3


@pytest.mark.slow
def test_a_directory_is_built_once_in_the_cache(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kernels = tmp_path / "k"
    assert hccc(RING, "--tune=off", "-o", kernels)[0] == 0
    held = {path: path.read_bytes() for path in kernels.rglob("*") if path.is_file()}
    assert hccc("run", kernels, "-b", "4K", "-e", "4K", *SHORT)[0] == 0
    (library,) = (tmp_path / "cache").rglob("ring_allreduce_cpu-*.so")
    before = library.stat().st_mtime_ns
    assert hccc("run", kernels, "-b", "4K", "-e", "4K", *SHORT)[0] == 0
    assert hccc("run", RING, "--tune=off", "-b", "4K", "-e", "4K", *SHORT)[0] == 0
    assert list((tmp_path / "cache").rglob("ring_allreduce_cpu-*.so")) == [library]
    assert library.stat().st_mtime_ns == before
    assert {path: path.read_bytes() for path in kernels.rglob("*") if path.is_file()} == held


def edit(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Lets hccc emit other kernels for the CPU."""
    emit = outputs.kernels

    def edited(catalogue: Catalogue, targets: Sequence[Target]) -> dict[str, str]:
        made = emit(catalogue, targets)
        assert any(old in text for text in made.values())
        return {name: text.replace(old, new) for name, text in made.items()}

    monkeypatch.setattr(bench, "kernels", edited)


@pytest.mark.parametrize("file", ["ring_allreduce_cpu.cpp", "hccc/layout.h"])
def test_edited_kernels_are_not_run(hccc: Hccc, tmp_path: Path, file: str) -> None:
    kernels = tmp_path / "k"
    assert hccc(RING, "--tune=off", "-o", kernels, "--target=cpu")[0] == 0
    with (kernels / file).open("a") as text:
        text.write("// mine\n")
    code, stdout, stderr = hccc("run", kernels, "-b", "4K", "-e", "4K", *SHORT)
    assert (code, stdout) == (1, "")
    assert f"error[E428]: {kernels / file} was not made from the plan.json beside it" in stderr


def test_wrong_elements_fail(hccc: Hccc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that add the wrong neighbour's chunk: counted, and exit code 1."""
    edit(monkeypatch, "hccc_input(b, peer0, peer0)", "hccc_input(b, rank, peer0)")
    argv = ["--tune=off", "-b", "4K", "-e", "4K", *SHORT]
    code, stdout, _ = hccc("run", RING, *argv)
    assert code == 1
    assert "FAILED" in stdout
    assert hccc("run", RING, "-c", "0", *argv)[0] == 0


@pytest.mark.slow
def test_a_hang_ends_at_its_deadline(hccc: Hccc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that never raise one flag: an error that names the rank that waited."""
    edit(monkeypatch, "hccc_posts(hccc_post(peer1, 0))", "hccc_posts()")
    argv = ["--tune=off", "-b", "4K", "-e", "4K", "--timeout=0.5", *SHORT]
    code, _, stderr = hccc("run", RING, *argv)
    assert code == 1
    assert "error[E420]" in stderr
    assert "rank" in stderr


def test_a_hang_of_packets_ends_at_its_deadline(
    hccc: Hccc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks start with the launch, so nobody waits longer because one may come late."""
    edit(monkeypatch, "hccc_to(hccc_packets_out(b, peer0, 0))", "hccc_to(hccc_output(b, rank, 0))")
    argv = ["--protocol=ll", "--tune=off", "-b", "4K", "-e", "4K", "--timeout=0.5", *SHORT]
    code, _, stderr = hccc("run", RING, *argv)
    assert code == 1
    assert "error[E420]" in stderr
    assert "waited for packets of rank" in stderr


def test_the_table_is_that_of_nccl_tests(hccc: Hccc) -> None:
    """The header lines as nccl-tests 2.19 prints them (src/util.cu, writeResultHeader)."""
    _, stdout, _ = hccc("run", RING, "-b", "32", "-e", "4K", "-f", "2", *SHORT)
    lines = stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if "out-of-place" in line)
    assert lines[first].split() == ["#", "out-of-place", "in-place"]
    names = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
    assert lines[first + 1].split() == ["#", *names.split()]
    assert lines[first + 2].split()[1:3] == ["(B)", "(elements)"]
    rows = [line for line in lines if not line.startswith("#")]
    assert [int(row.split()[0]) for row in rows] == [32 << k for k in range(8)]
    assert _ends(rows[0]) == _ends(lines[first + 1].replace("#  ", "   "))
    assert lines[-3].startswith("# Out of bounds values : 0 OK")


def _ends(line: str) -> list[int]:
    """Lists the end of each word of a line."""
    return [match.end() for match in re.finditer(r"\S+", line)]


def test_numbers_fit_their_columns() -> None:
    def text(time: float, wrong: int | None) -> list[str]:
        half = PerfTiming(time, time / 10, time / 10, wrong)
        return table.line(PerfRow(1, 1, "int8", "sum", -1, half, None)).split()[5:9]

    assert text(1.234, 0) == ["1.23", "0.12", "0.12", "0"]
    assert text(123456.7, None) == ["123457", "12346", "12346", "N/A"]
    assert text(1e9, 10**7) == ["1.0e+09", "1e+08", "1e+08", "1e+07"]


@pytest.mark.slow
def test_memory_is_asked_for_before_it_is_taken(
    hccc: Hccc, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small:
        available = 1 << 20

    monkeypatch.setattr("psutil.virtual_memory", Small)
    assert hccc("run", RING, "-b", "1K", "-e", "1K", *SHORT)[0] == 0
    code, _, stderr = hccc("run", RING, "-b", "1M", "-e", "1M", *SHORT)
    assert code == 1
    assert "error[E429]" in stderr


TWO_NODES = """
ResCCLAlgo(nRanks=4, nChannels=1, nWarps=16, AlgoName="pairs", OpType="Allreduce", GPUPerNode=2):
    for chunk in range(4):
        for step in range(3):
            transfer((chunk + 1 + step) % 4, (chunk + 2 + step) % 4, step, chunk, rrc)
        for step in range(3):
            transfer((chunk + step) % 4, (chunk + 1 + step) % 4, 3 + step, chunk, recv)
"""


@pytest.fixture
def two_nodes(tmp_path: Path) -> Path:
    """Writes a ring of two nodes of two."""
    path = tmp_path / "pairs.rccl"
    path.write_text(TWO_NODES)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        slow([]),
        ["--network-lowering", "slots", "--network", "0.5GB/s,10us"],
        slow(["--network-lowering", "put", "--network", "4Gbps"]),
        slow(["--transport", "staged", "--network", "5us"]),
    ],
    ids=" ".join,
)
def test_what_leaves_a_node_goes_through_a_proxy(
    hccc: Hccc, two_nodes: Path, options: list[str]
) -> None:
    argv = ["run", two_nodes, *options, "-b", "0", "-e", "70001", "-i", "35000", *SHORT]
    code, stdout, stderr = hccc(*argv, "--micro-batch", "1K")
    assert (code, stderr) == (0, "")
    network = next(line for line in stdout.splitlines() if line.startswith("# network"))
    assert "2 memory domains, 4 NICs" in network
    speed = {"0.5GB/s,10us": "each 0.5 GB/s, 10 us", "4Gbps": "each 0.5 GB/s, 0 us"}
    assert speed.get(options[-1] if options else "", "no limit") in network
    code, stdout, _ = hccc(*argv, "--json")
    assert json.loads(stdout)["config"]["network"]["memory_domains"] == 2


@pytest.mark.slow
def test_one_host_needs_no_network(hccc: Hccc, two_nodes: Path) -> None:
    for transport in ("direct", "staged"):
        argv = ["run", two_nodes, "--transport", transport, "-b", "1K", "-e", "1K", *SHORT]
        assert "# network" not in hccc(*argv)[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--transport", "direct"], "reads memory of other nodes"),
        (["--device", "cuda"], "all ranks are on one device"),
    ],
)
def test_where_there_is_no_network(
    hccc: Hccc, two_nodes: Path, options: list[str], said: str
) -> None:
    code, _, stderr = hccc("run", two_nodes, "--network", "1GB/s", *options)
    assert code in (1, 2) and "E436" in stderr and said in stderr


def test_a_plan_of_one_node_has_no_network(hccc: Hccc) -> None:
    code, _, stderr = hccc("run", RING, "--network", "1GB/s")
    assert code in (1, 2) and "has all ranks in one memory domain" in stderr


@pytest.mark.parametrize("speed", ["", "5", "0GB/s", "1GB/s,2GB/s", "fast", "1GB/s;5us", "nan us"])
def test_speeds_that_are_none(hccc: Hccc, speed: str) -> None:
    code, _, stderr = hccc("run", RING, "--network", speed)
    assert (code == 2 and "write 12.5GB/s,5us" in stderr) or "moves nothing" in stderr


@pytest.mark.slow
def test_blocks_of_lengths_of_their_own(hccc: Hccc, tmp_path: Path) -> None:
    """Elements past a block's length must stay as they were: they are compared, too."""
    file = tmp_path / "a.rccl"
    made = hccc("builtin", "direct", "--ranks", "3", "--collective", "alltoallv", "-o", file)
    assert made[0] == 0
    assert 'OpType="Alltoallv"' in file.read_text()
    code, stdout, stderr = hccc("run", file, "--skew", "zipf", "-b", "1K", "-e", "8K", *SHORT)
    assert code == 0, stderr
    assert "0 OK" in stdout
    code, _, stderr = hccc("run", RING, "--skew", "zipf")
    assert code == 2 and "E415" in stderr
    code, stdout, stderr = hccc("run", file, "--procs", "3", "--skew", "random", *SHORT)
    assert code == 0 and "0 OK" in stdout, stderr
