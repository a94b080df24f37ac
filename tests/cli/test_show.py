"""hccc show, and hccc compile --report: their files, and their refusals."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from matplotlib.image import imread

from tests.cli.commandline import Hccc
from tests.marks import LONG, slow

EXAMPLES = Path(__file__).parents[2] / "examples"
RING = EXAMPLES / "ring_allreduce.rccl"
MI300X = EXAMPLES / "clusters" / "mi300x.cluster"


def _svg(path: Path) -> str:
    ET.parse(path)
    return path.read_text(encoding="utf-8")


@pytest.mark.quick(1)
@pytest.mark.parametrize("what", [slow("topology"), "dag", slow("pipeline"), "timeline"])
def test_one_picture(hccc: Hccc, tmp_path: Path, what: str) -> None:
    out = tmp_path / "out.svg"
    code, stdout, stderr = hccc("show", RING, "-o", out, "--what", what, "--cluster", MI300X)
    assert (code, stderr) == (0, "")
    assert stdout == f"{out}: {out.stat().st_size:,} bytes\n"
    named = {"topology": "mi300x: 8 ranks in 1 node, amd MI300X", "timeline": "64 MiB in "}
    assert named.get(what, "ring_allreduce: ") in _svg(out)


@pytest.mark.slow
def test_a_picture_of_pixels(hccc: Hccc, tmp_path: Path) -> None:
    out = tmp_path / "out.PNG"
    code, stdout, stderr = hccc("show", MI300X, "-o", out)
    assert (code, stderr) == (0, "") and stdout == f"{out}: {out.stat().st_size:,} bytes\n"
    assert imread(out, format="png").shape[1] > 1000
    first = out.read_bytes()
    assert hccc("show", RING, "--what", "topology", "--cluster", MI300X, "-o", out)[0] == 0
    assert imread(out, format="png").shape[1] > 1000
    assert hccc("show", MI300X, "-o", out)[0] == 0 and out.read_bytes() == first
    code, _, stderr = hccc("show", MI300X, "-o", out, "--what", "dag")
    assert code == 2 and "error[E434]" in stderr and out.read_bytes() == first


@pytest.mark.slow
def test_the_page_of_a_program(hccc: Hccc, tmp_path: Path) -> None:
    out, trace = tmp_path / "out.html", tmp_path / "trace.json"
    argv = ["show", RING, "-o", out, "--cluster", MI300X, "-b", "1M", "--trace", trace]
    code, stdout, _ = hccc(*argv, "--fuse", "none", "--json")
    assert code == 0
    assert [f["path"] for f in json.loads(stdout)["files"]] == [str(out), str(trace)]
    page = out.read_text(encoding="utf-8")
    assert page.count("<svg ") == 6  # five pictures, and the view of the timeline
    for text in (
        "Share of the bound",
        "Limited by",
        'aria-label="Program"',
        ">4 GiB<",
        "lower bound, 1 KiB: ",
        "ring_allreduce: Allreduce over 8 ranks",
        "no wait is in vain",
        "<td>none</td>",
        "Over sizes",
        "Critical path",
        "what would help",
        "1 MiB in ",
        "thread blocks per rank",
        ">sub-pipelines<",
    ):
        assert text in page
    assert json.loads(trace.read_text())["otherData"]["bytes"] == 1 << 20
    first = out.read_bytes()
    hccc(*argv, "--fuse", "none")
    assert out.read_bytes() == first


@pytest.mark.slow
def test_without_a_cluster_there_are_no_times(hccc: Hccc, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    assert hccc("show", RING, "--tune=off", "-o", out)[0] == 0
    page = out.read_text(encoding="utf-8")
    assert page.count("<svg ") == 3
    assert "Predicted timeline: Times are a cluster" in page
    assert "rates are nominal" in page
    for more in (["--what", "timeline", "-o", tmp_path / "x.svg"], ["--trace", tmp_path / "t"]):
        code, _, stderr = hccc("show", RING, "--tune=off", *more)
        assert code == 2 and "error[E424]" in stderr
        assert hccc("show", RING, *more)[0] == 0


def test_a_cluster_is_known_by_what_it_holds(hccc: Hccc, tmp_path: Path) -> None:
    site = tmp_path / "site.txt"
    site.write_bytes(b"\xef\xbb\xbf\n# define nothing\n" + MI300X.read_bytes())
    for name in ("out.svg", "out.html"):
        assert hccc("show", site, "-o", tmp_path / name)[0] == 0
        assert "MI300X" in (tmp_path / name).read_text(encoding="utf-8")
    code, _, stderr = hccc("show", site, "-o", tmp_path / "no.svg", "--what", "dag")
    assert code == 2 and "error[E434]" in stderr and "no dag" in stderr


@pytest.mark.slow
def test_plans_have_no_dag(hccc: Hccc, tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.json", tmp_path / "out.html"
    plan.write_text(hccc(RING, "--emit=plan")[1])
    assert hccc("show", plan, "-o", out, "--cluster", MI300X)[0] == 0
    page = out.read_text(encoding="utf-8")
    assert page.count("<svg ") == 4
    assert "Dependencies: the input is a plan already" in page
    code, _, stderr = hccc("show", plan, "-o", tmp_path / "no.svg", "--what", "pipeline")
    assert code == 2 and "error[E434]: no pipeline" in stderr
    xml = tmp_path / "x.xml"
    xml.write_text(
        hccc(RING, "--transport", "staged", "--allocator", "connection", "--emit=msccl-xml")[1]
    )
    assert hccc("show", xml, "-o", out, "--cluster", MI300X)[0] == 0
    assert "fifo" in out.read_text(encoding="utf-8")


def test_inputs_are_never_overwritten(hccc: Hccc, tmp_path: Path) -> None:
    program, site = tmp_path / "in.svg", tmp_path / "in.html"
    program.write_bytes(RING.read_bytes())
    site.write_bytes(MI300X.read_bytes())
    before = {path: path.read_bytes() for path in (program, site)}
    for argv in (
        ["show", program, "-o", program],
        ["show", site, "-o", site],
        ["show", program, "--cluster", site, "-o", site],
        ["show", program, "--cluster", site, "--trace", site],
        [program, "--cluster", site, "-o", tmp_path / "k", "--report", site],
    ):
        code, _, stderr = hccc(*argv)
        assert code == 1 and "error[E431]" in stderr and "read, too" in stderr
    same = tmp_path / "out.svg"
    code, _, stderr = hccc("show", RING, "--cluster", MI300X, "-o", same, "--trace", same)
    assert code == 2 and "error[E415]" in stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["out.pdf", "out", "out.svg.gz", ".svg"])
def test_other_suffixes_are_refused_before_any_work(hccc: Hccc, tmp_path: Path, name: str) -> None:
    code, stdout, stderr = hccc("show", "no-such-file", "-o", tmp_path / name)
    assert (code, stdout) == (2, "")
    assert stderr.startswith("error[E433]") and stderr.count("error") == 1
    assert list(tmp_path.iterdir()) == []


def test_errors_leave_files_as_they_were(hccc: Hccc, tmp_path: Path) -> None:
    out, wrong = tmp_path / "out.svg", tmp_path / "wrong.rccl"
    out.write_text("before")
    wrong.write_text(RING.read_text().replace("rrc)", "recv)"))
    code, _, stderr = hccc("show", wrong, "-o", out)
    assert code == 1 and "error[E2" in stderr
    assert out.read_text() == "before"
    assert hccc("show", RING)[0] == 2  # nowhere to write to
    code, _, stderr = hccc("show", RING, "-o", tmp_path / "no" / "x.svg")
    assert code == 1 and "error[E431]" in stderr


@pytest.mark.slow
def test_names_in_paths_are_escaped(hccc: Hccc, tmp_path: Path) -> None:
    odd = tmp_path / "a<script>alert(1)<b>.cluster"
    odd.write_bytes(MI300X.read_bytes())
    for input in (odd, RING):
        argv = ["show", input, *(["--cluster", odd] if input == RING else [])]
        assert hccc(*argv, "-o", tmp_path / "out.html")[0] == 0
        page = (tmp_path / "out.html").read_text(encoding="utf-8")
        assert page.count("<script") == 1 and "a&lt;script&gt;" in page
        assert hccc(*argv, "-o", tmp_path / "out.svg")[0] == 0
        assert "<script" not in _svg(tmp_path / "out.svg")


@pytest.mark.slow
def test_many_ranks_are_a_small_page(hccc: Hccc, tmp_path: Path) -> None:
    """32 nodes of 8, or 128: two million transfers."""
    nodes = 128 if LONG > 1 else 32
    text = (EXAMPLES / "hm_allreduce.rccl").read_text()
    for old, new in (("nRanks=32", f"nRanks={nodes * 8}"), ("nNodes = 4", f"nNodes = {nodes}")):
        assert old in text
        text = text.replace(old, new)
    big, site, out = (tmp_path / name for name in ("big.rccl", "site.cluster", "out.html"))
    big.write_text(text)
    nics = ", ".join(f"(({i}) -> (50,1))" for i in range(8))
    site.write_text(
        f"define nodenum = {nodes}\ndefine node1 = {nodes} * 8\n"
        f"define bandwidth = {{port => [((0..7) -> (450,1))]}}\ndefine nic = [{nics}]\n"
    )
    trace = tmp_path / "trace.json"
    assert hccc("show", big, "-o", out, "--cluster", site, "--trace", trace)[0] == 0
    page = out.read_text(encoding="utf-8")
    assert len(page) < 1_000_000 and page.count("<svg ") == 6
    others, chunks = f"× {nodes - 1} more: node2–node{nodes}", f"All {nodes * 8:,} chunks are alike"
    for words in (others, chunks, " used<", "alike<"):
        assert words in page
    assert "ranks 0 to" in json.loads(trace.read_text())["otherData"]["notes"][-1]


@pytest.mark.slow
def test_a_compilation_reports(hccc: Hccc, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    argv = [RING, "-o", tmp_path / "kernels", "--target", "cpu", "--cluster", MI300X]
    assert hccc(*argv, "--report", page)[0] == 0
    assert (tmp_path / "kernels" / "plan.json").exists()
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg ") == 6 and "every rank ends with the collective" in text
    assert hccc(RING, "--emit=dag", "--report", page)[0] == 0
    code, _, stderr = hccc(RING, "-o", tmp_path / "other", "--report", tmp_path / "x.pdf")
    assert code == 2 and "error[E433]" in stderr
    nowhere = tmp_path / "no" / "x.html"
    code, _, stderr = hccc(RING, "-o", tmp_path / "other", "--report", nowhere)
    assert code == 1 and "error[E431]" in stderr
    assert not (tmp_path / "other").exists()
    inside = tmp_path / "new" / "x.html"  # a directory that comes with the kernels
    assert hccc(RING, "-o", inside.parent, "--target", "cpu", "--report", inside)[0] == 0
    assert inside.exists()


def test_a_plan_is_drawn_on_a_cluster_of_its_size_only(hccc: Hccc, tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.json", tmp_path / "x.svg"
    plan.write_text(hccc(RING, "--emit=plan")[1])
    other = EXAMPLES / "clusters" / "resccl-topo4.cluster"
    code, _, stderr = hccc("show", plan, "--cluster", other, "-o", out)
    assert code == 1 and "8 ranks, the cluster 32 GPUs" in stderr and not out.exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [("x.cluster", "defin nodenum = 2\n"), ("x.txt", "node1 = 2\ndefine node2 = 4\n")],
)
def test_a_cluster_whose_first_word_is_wrong_is_told_what_a_cluster_is(
    hccc: Hccc, name: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    code, _, stderr = hccc("show", tmp_path / name, "-o", tmp_path / "out.svg")
    assert code == 1
    assert "a cluster is a list of `define`s" in stderr


@pytest.mark.slow
def test_the_commands_of_an_emitted_readme_run(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it lies; and the directory takes another compilation afterwards."""
    kernels = tmp_path / "kernels"
    assert hccc(RING, "-o", kernels, "--target", "cpu")[0] == 0
    monkeypatch.chdir(kernels)
    shown = re.findall(r"`hccc ([^`]+)`", (kernels / "README.md").read_text(encoding="utf-8"))
    assert {command.split()[0] for command in shown} == {"check", "run", "show"}
    for command in [*shown, *shown]:
        code, _, stderr = hccc(*command.split(), *(["-e", "1K"] if command == "run ." else []))
        assert (code, stderr) == (0, ""), command
    assert hccc(EXAMPLES / "ring_allgather.rccl", "-o", kernels, "--target", "cpu")[0] == 0
