"""Several algorithms, several plans: one directory, which every command knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commandline import ROOT, Hccc

EXAMPLES = ROOT / "examples"
RING, RHD = EXAMPLES / "ring_allreduce.rccl", EXAMPLES / "rhd_allreduce.rccl"
DGX = EXAMPLES / "clusters" / "dgx-h100.cluster"


def library(hccc: Hccc, place: Path, *more: object) -> str:
    code, out, err = hccc(RING, RHD, "--cluster", DGX, "-o", place, "--target", "cpu", *more)
    assert (code, err) == (0, "")
    return out


@pytest.mark.slow
def test_the_summary_says_what_was_weighed_and_chosen(hccc: Hccc, tmp_path: Path) -> None:
    out = library(hccc, tmp_path / "k")
    assert out.startswith("allreduce: Allreduce over 8 ranks → ")
    count = int(out.split("plans          ")[1].split(",")[0])
    assert count > 1 and ", allreduce_1: " in out
    chosen = [line for line in out.splitlines() if " SMs: " in line]
    assert "from 0 B " in chosen[0] and "rhd_allreduce: " in chosen[0]
    assert f"allreduce_{count}, " in chosen[-1] and "ring_allreduce: " in chosen[-1]
    assert "ring_allreduce: hpds, fuse auto" in out.split("weighed")[1]


@pytest.mark.slow
def test_json_has_every_structure_and_range(hccc: Hccc, tmp_path: Path) -> None:
    facts = json.loads(library(hccc, tmp_path / "k", "--json"))
    tuned = facts["tuned"]
    assert {one["name"].split(":")[0] for one in tuned["structures"]} == {
        "ring_allreduce",
        "rhd_allreduce",
    }
    for kind in (False, True):
        begins = [one["begin"] for one in tuned["ranges"] if one["in_place"] == kind]
        assert begins[0] == 0 and begins == sorted(begins)
    assert all(time["time"] > 0 for one in tuned["ranges"] for time in one["times"])


@pytest.mark.slow
def test_every_command_knows_its_plans(hccc: Hccc, tmp_path: Path) -> None:
    place = tmp_path / "k"
    facts = json.loads(library(hccc, place, "--name", "best", "--json"))
    last = f"best_{len(facts['catalogue']['plans'])}"
    code, out, _ = hccc("sim", place, "-b", "1K", "-e", "1G", "-f", "1000")
    assert code == 0 and "# plans: best_1 from 1 KiB" in out and f", {last} from " in out
    results = json.loads(hccc("sim", place, "-b", "1K", "-e", "1G", "-f", "1000", "--json")[1])
    assert [one["plan"] for one in results["results"]][::2] == ["best_1", last]
    for size, plan in (("1K", "best_1"), ("1G", last)):
        code, out, _ = hccc("explain", place, "-b", size)
        assert code == 0 and out.startswith(f"{plan}: Allreduce")
    code, _, err = hccc("show", place, "--what", "timeline", "-b", "1G", "-o", tmp_path / "t.svg")
    assert (code, err) == (0, "")
    assert last in (tmp_path / "t.svg").read_text(encoding="utf-8")


def test_large_programs_without_a_cluster_are_as_their_header_says(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hccc.driver.assumed.MOST_SCHEDULED", 100)
    code, out, _ = hccc(RING, "-o", tmp_path / "a", "--target", "cpu")
    assert code == 0 and "cluster        none: " in out and "weighed" not in out
    assert "thread blocks  3 per rank\n" in out
    code, out, _ = hccc(RING, "-o", tmp_path / "off", "--target", "cpu", "--tune", "off")
    assert code == 0 and "  cluster  " not in out


@pytest.mark.slow
def test_without_a_cluster_a_line_says_which(hccc: Hccc, tmp_path: Path) -> None:
    for target, name in (("cpu", "this host"), ("cpu,hip", "8 H100")):
        code, out, err = hccc(RING, "-o", tmp_path / "k", "--target", target)
        assert (code, err) == (0, "")
        assert f"  cluster        {name} (assumed)\n" in out
    code, out, _ = hccc("sim", tmp_path / "k", "-b", "1M", "-e", "1M")
    assert code == 0 and "simulated on 8 H100" in out
    code, out, _ = hccc(RING, "-o", tmp_path / "k", "--target", "cpu", "--tune", "off")
    assert "cluster  " not in out and "1 per rank" in out.replace("3 per rank", "1 per rank")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([RING, EXAMPLES / "ring_allgather.rccl"], "E321"),
        ([RING, DGX], "E321"),
        ([RING, RHD, "--name", "1x"], "E410"),
        ([RING, RHD, "--name", "a b"], "E410"),
        ([RING, "--name", "hccc_x"], "E410"),
        ([RING, "--name", "all"], "E410"),
        ([RING, RHD, "--plans", "1"], "E321"),
        ([RING, RHD, "--reschedule"], "E416"),
        (["-", "-"], "E415"),
    ],
)
def test_what_is_refused(hccc: Hccc, tmp_path: Path, argv: list[object], said: str) -> None:
    code, out, err = hccc(*argv, "-o", tmp_path / "k")
    assert (code > 0, out) == (True, "") and err.startswith(f"error[{said}]")
    assert not (tmp_path / "k").exists()


@pytest.mark.slow
def test_as_text_it_is_all_plans(hccc: Hccc) -> None:
    code, out, _ = hccc(RING, RHD, "--cluster", DGX, "--emit=plan")
    assert code == 0
    names = [plan["name"] for plan in json.loads(out)["plans"]]
    assert names == [f"allreduce_{k + 1}" for k in range(len(names))] and len(names) > 1


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--cluster", DGX), ("--tune", "off")])
def test_a_library_of_one_has_the_name_that_is_given(
    hccc: Hccc, tmp_path: Path, options: tuple[object, ...]
) -> None:
    code, _, err = hccc(
        RING, *options, "--name", "best", "-o", tmp_path / "k", "--target", "cpu", "--validate"
    )
    assert (code, err) == (0, "")
    assert (tmp_path / "k" / "best.h").exists() and not list((tmp_path / "k").glob("ring*"))
    assert "race" in hccc("check", tmp_path / "k")[1]
    assert hccc(RING, *options, "-o", tmp_path / "k", "--target", "cpu")[0] == 0
    assert not list((tmp_path / "k").glob("best*"))  # files of the other name
