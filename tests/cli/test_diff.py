"""diff: where and why one algorithm is faster than another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hccc as library
from hccc.driver.options import Options
from tests.cli.commandline import ROOT, Hccc

RING, RHD = (ROOT / "examples" / f"{name}_allreduce.rccl" for name in ("ring", "rhd"))
SIZES = ("-b", "64K", "-e", "256M", "-f", "999", "--sizes=64K..256M")


def test_parts_of_both_add_up_to_their_times(hccc: Hccc) -> None:
    code, out, err = hccc("diff", RING, RHD, "--cluster", "dgx-h100", *SIZES, "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert [one["given"] for one in facts["algorithms"]] == [str(RING), str(RHD)]
    for at in facts["sizes"]:
        one, other = (side["figures"]["time"] for side in at["sides"])
        assert sum(at["parts"].values()) == pytest.approx(other - one, abs=1e-6)
        assert at["faster"] == int(one > other) and at["times"] == pytest.approx(one / other)
    small, large = facts["sizes"]
    assert small["sides"][0]["steps"] > small["sides"][1]["steps"] and small["faster"] == 1
    assert large["sides"][0]["busiest"]["bytes"] > small["sides"][0]["busiest"]["bytes"]


def test_the_text_says_which_is_faster_and_why(hccc: Hccc) -> None:
    code, out, _ = hccc("diff", RING, RHD, "--cluster", "dgx-h100", *SIZES)
    assert code == 0
    assert out.startswith("Allreduce over 8 ranks, simulated on dgx-h100.cluster\n")
    (line,) = (line for line in out.splitlines() if line.startswith("    64 KiB "))
    assert "×  B has " in line and "µs less of latency: 5 steps follow each other, not 13" in line
    assert "thread blocks a rank" in out and "busiest of A  port of rank 0" in out


def test_an_algorithm_is_as_fast_as_itself_on_the_assumed_cluster(hccc: Hccc) -> None:
    code, out, _ = hccc("diff", RING, RING, "-b", "1M", "-e", "1M", "--sizes=1M")
    assert code == 0 and "simulated on 8 H100 (assumed)" in out and "both take as long" in out


def test_two_collectives_are_not_compared(hccc: Hccc) -> None:
    other = ROOT / "examples" / "ring_allgather.rccl"
    code, out, err = hccc("diff", RING, other, "--cluster", "dgx-h100", "--tune=off")
    assert (code, out) == (1, "") and "error[E479]" in err and "Allgather" in err


def test_python_compares_what_was_compiled(tmp_path: Path) -> None:
    options = Options(sizes="1M", plans=1)
    one, other = (library.compile(x, options, cluster="dgx-h100") for x in (RING, RHD))
    library.write(other, tmp_path / "kernels", ["cpu"])
    found = library.diff(one, tmp_path / "kernels", "1M", cluster="dgx-h100")
    times = [library.simulate(x, "1M").results[0].time for x in (one, other)]
    assert [side.figures.time for side in (found.sizes[0].one, found.sizes[0].other)] == times
    assert found.names == ("ring_allreduce", "rhd_allreduce") and len(repr(found)) < 200
