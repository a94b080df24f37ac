"""Directories of kernels that were made for another cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

import hccc
from hccc.driver.options import Options
from tests.test_architecture import ROOT

RING = ROOT / "examples" / "ring_allreduce.rccl"
SITE = ROOT / "examples" / "clusters" / "dgx-h100.cluster"


def compiled(cluster: Path | None = None, *, tune: str = "fast") -> hccc.Compiled:
    return hccc.compile(RING, Options(sizes="1M", plans=1, tune=tune), cluster=cluster)


@pytest.mark.slow
def test_kernels_for_another_cluster_are_kept_without_a_word(tmp_path: Path) -> None:
    site, kernels = tmp_path / "site.cluster", tmp_path / "kernels"
    site.write_text(SITE.read_text() + "define latency = {port => 9us}\n")
    hccc.write(compiled(), kernels, ["cpu"])
    hccc.write(compiled(site), kernels, ["cpu"])  # what nobody asked for may go
    held = (kernels / "plan.json").read_bytes()
    for other in (compiled(), compiled(tune="off"), compiled(SITE)):
        with pytest.raises(hccc.UserError, match=r"has kernels for .*site.cluster.*\n.*overwrite"):
            hccc.write(other, kernels, ["cpu"])
        assert (kernels / "plan.json").read_bytes() == held
    site.write_text(SITE.read_text() + "define latency = {port => 8us}\n")
    hccc.write(compiled(site), kernels, ["cpu"])  # the same cluster, as it is now
    assert (kernels / "plan.json").read_bytes() != held
    hccc.write(compiled(), kernels, ["cpu"], overwrite=True)
    assert b"8 H100 (assumed)" in (kernels / "plan.json").read_bytes()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"provenance": 3}', "[" * 100_000])
def test_a_plan_that_tells_nothing_is_of_no_cluster(tmp_path: Path, text: str) -> None:
    kernels = tmp_path / "kernels"
    hccc.write(compiled(tune="off"), kernels, ["cpu"])
    (kernels / "plan.json").write_text('{\n"hccc_plan": 1' + text)
    hccc.write(compiled(), kernels, ["cpu"])
    assert b"8 H100 (assumed)" in (kernels / "plan.json").read_bytes()
