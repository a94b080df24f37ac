"""hccc sim --baseline: times of NCCL and RCCL, as a table and as JSON, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commandline import ROOT, Hccc

CLUSTERS = ROOT / "examples" / "clusters"
DGX, MI300X = CLUSTERS / "dgx-h100.cluster", CLUSTERS / "mi300x.cluster"
NCCL = ("--baseline", "nccl", "--cluster", DGX)


def results(hccc: Hccc, *argv: object) -> Any:
    code, out, err = hccc("sim", *argv, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)["results"]


def test_the_table_says_what_json_says(hccc: Hccc) -> None:
    argv = (*NCCL, "--collective", "all_reduce", "-b", "1K", "-e", "1G", "-f", "32")
    code, out, err = hccc("sim", *argv)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    found = results(hccc, *argv)
    assert [r["size"] for r in found] == [1 << k for k in (10, 15, 20, 25, 30)]
    for row, r in zip(rows, found, strict=True):
        speeds = [f"{r[name]:.2f}" for name in ("time", "algbw", "busbw")]
        assert row == [str(r["size"]), *speeds, r["algorithm"], r["protocol"], str(r["channels"])]
        assert r["busbw"] == pytest.approx(r["size"] / r["time"] / 1000 * 14 / 8)
    assert [r["algorithm"] for r in found] == ["Ring", "Ring", "Ring", "NVLS", "NVLS"]


def test_choices_can_be_forced(hccc: Hccc) -> None:
    forced = ("--algorithm", "tree", "--protocol", "ll128", "--channels", "4")
    argv = (*NCCL, "--collective", "AllReduce", *forced, "-b", "1M", "-e", "1M")
    (row,) = results(hccc, *argv)
    assert (row["algorithm"], row["protocol"], row["channels"]) == ("Tree", "LL128", 4)


def test_registered_buffers(hccc: Hccc) -> None:
    argv = (*NCCL, "--collective", "all_reduce", "--registered", "-b", "8", "-e", "1G", "-f", "512")
    code, out, err = hccc("sim", *argv)
    assert (code, err) == (0, "")
    assert out.startswith("# NCCL with registered buffers, Allreduce over 8 ranks")
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    found = results(hccc, *argv)
    assert [row[5] for row in rows] == [r["protocol"] for r in found]
    assert found[0]["protocol"] == "AGxLLMC_R" and found[-1]["protocol"] == "RSxLDMC_AGxSTMC"
    assert all(r["algorithm"] == "Symmetric" and r["registered"] for r in found)
    code, out, _ = hccc("sim", *NCCL, "--collective", "all_reduce", "-b", "1M", "-e", "1M")
    assert code == 0 and out.startswith("# NCCL as it is by default, Allreduce")


def test_rccl_runs_on_amd_and_nccl_does_not(hccc: Hccc) -> None:
    argv = ("--collective", "allgather", "--cluster", MI300X, "-b", "1G", "-e", "1G")
    (row,) = results(hccc, "--baseline", "rccl", *argv)
    assert row["channels"] == 56
    code, _, err = hccc("sim", "--baseline", "nccl", *argv)
    assert code == 1
    assert "E466" in err


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ((*NCCL, "--collective", "allfoo"), "E465"),
        (NCCL, "E467"),
        (("--baseline", "nccl", "--collective", "reduce"), "E467"),
        ((CLUSTERS.parent / "ring_allreduce.rccl", *NCCL, "--collective", "reduce"), "E467"),
        ((*NCCL, "--collective", "allgather", "--algorithm", "Tree"), "E464"),
        ((*NCCL, "--collective", "reduce", "--window", "2"), "E416"),
        ((*NCCL, "--collective", "reduce", "-b", "0"), "E415"),
        ((*NCCL, "--collective", "allgather", "--registered", "-b", "0"), "E415"),
        ((*NCCL, "--collective", "reduce", "--registered"), "E464"),
        ((*NCCL, "--collective", "allgather", "--registered", "--protocol", "ll"), "E416"),
        ((CLUSTERS.parent / "ring_allreduce.rccl", "--registered"), "E416"),
        (("--collective", "reduce"), "E416"),
        ((), "E467"),
    ],
)
def test_what_makes_no_sense_is_refused(hccc: Hccc, argv: tuple[object, ...], code: str) -> None:
    status, out, err = hccc("sim", *argv)
    assert status != 0
    assert out == ""
    assert code in err


@pytest.mark.parametrize(
    ("site", "collective", "said"),
    [
        ("define device = H20\ndefine node1 = 8", "allreduce", "H20: delivered bandwidth"),
        (
            "define device = V100\ndefine node1 = 8",
            "allgather",
            "V100: steps and channels as of Ampere",
        ),
        (
            "define device = H100\ndefine network = Ethernet\ndefine node1 = 2 * 8",
            "allreduce",
            "Ethernet: latency, delivered bandwidth of fast NICs",
        ),
        ("define device = H100\ndefine node1 = 2 * 8", "allreduce", None),
    ],
)
def test_estimates_are_named(
    hccc: Hccc, tmp_path: Path, site: str, collective: str, said: str | None
) -> None:
    path = tmp_path / "site.cluster"
    path.write_text(site)
    argv = ("--baseline", "nccl", "--cluster", path, "--collective", collective, "-b", "1M")
    code, out, _ = hccc("sim", *argv)
    assert code == 0
    assert (f"\n# estimates: {said}\n" in out) if said else ("# estimates" not in out)
    code, out, _ = hccc("sim", *argv, "--json")
    assert json.loads(out)["estimates"] == ([said] if said else [])
