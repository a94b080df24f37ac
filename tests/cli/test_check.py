"""`hccc check`: the order of sums, of programs, plans and directories."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commandline import Hccc

RHD = Path(__file__).parents[2] / "examples" / "rhd_allreduce.rccl"


def test_deterministic(hccc: Hccc, tmp_path: Path) -> None:
    """Programs, plans and directories, and what is written says so."""
    code, _, err = hccc(RHD, "-o", tmp_path / "k", "--tune=off", "--deterministic")
    assert code == 1 and "error[E322]: rhd_allreduce: " in err and not (tmp_path / "k").exists()
    made = ["--tune=off", "--target=cpu", "--deterministic", "--accumulate=same"]
    assert hccc(RHD, "-o", tmp_path / "k", *made)[0] == 0
    text = json.loads((tmp_path / "k" / "plan.json").read_text())
    assert text["provenance"]["options"]["deterministic"] is True
    out = hccc("check", tmp_path / "k" / "plan.json", "--deterministic")[1]
    assert "an element has one, for every size and at every rank that gets it" in out
    assert hccc(RHD, "-o", tmp_path / "plain", "--tune=off", "--target=cpu")[0] == 0
    code, _, err = hccc("check", tmp_path / "plain", "--deterministic")
    assert code == 1 and "error[E322]" in err
    facts = json.loads(hccc("check", tmp_path / "plain" / "plan.json", "--json", "--orders")[1])
    assert len(facts["sums"]["rhd_allreduce"]) == 4 and "order_varies" in facts
