"""Jobs from Python: read, proved, simulated, explained and drawn."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hccc

TEXT = """\
HetCCLJob(OpType="Allgather", AlgoName="mine", nParts=1):
    for c in range(nClusters): homColl(c, allgather, part(0))
"""
WHOLE = """\
HetCCLJob(OpType="Allreduce", AlgoName="whole", nParts=1):
    for c in range(nClusters): homColl(c, reduce, part(0))
    c2cRed(1, 0, part(0))
    c2cCpy(0, 1, part(0))
    for c in range(nClusters): homColl(c, broadcast, part(0))
"""
SITE = "hetccl-pku-nvidia+v1"


@pytest.fixture(scope="module")
def site() -> hccc.Topology:
    return hccc.load_cluster(SITE)


@pytest.fixture(scope="module")
def job(site: hccc.Topology) -> hccc.Job:
    """Reads HetCCL's job of an Allreduce from its JSON, which has its vendor clusters."""
    from hccc.ir import job_json
    from hccc.ir.collective import OpType
    from hccc.network.vendor_clusters import divisions
    from hccc.synth.builtin.hetccl import hetccl

    text = job_json.dumps(hetccl(divisions(site)[0], OpType.ALLREDUCE, 0))
    return hccc.load_job(hccc.Source("job.json", text))


@pytest.mark.slow
def test_results_are_figures_rows_and_a_picture(
    job: hccc.Job, site: hccc.Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = hccc.simulate(job, ["64K", 1 << 24], cluster=site)
    assert [run.size for run in found] == [1 << 16, 1 << 24] and len(found) == 2
    rows = found.records()
    assert [row["time"] for row in rows] == [run.time for run in found]
    assert rows[0]["name"] == job.name and rows[1]["algbw"] == found.runs[1].algbw
    pandas: Any = ModuleType("pandas")
    pandas.DataFrame = list
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert found.to_frame() == rows
    why = hccc.explain(job, "16M", cluster=site)
    assert why.run.time == found.runs[1].time
    for value in (found, why, hccc.check(job, cluster=site)):
        text = repr(value)
        assert text.startswith(f"<{type(value).__name__} {job.name}") and len(text) < 400
    for shown in (found, why):
        assert "vendor cluster 0" in shown._repr_html_()
    assert "<svg" in hccc.show(job, size="1M", cluster=site).svg


def test_a_wrong_job_is_refused_in_python_s_words(site: hccc.Topology) -> None:
    with pytest.raises(hccc.UserError) as error:
        hccc.load_job(TEXT, cluster=site)
    assert error.value.problem.code == "E205"
    with pytest.raises(hccc.UserError) as error:
        hccc.load_job(TEXT)
    assert error.value.problem.code == "E482" and "--" not in str(error.value)
    with pytest.raises(hccc.UserError, match="not a job"):
        hccc.load_job('ResCCLAlgo(nRanks=2, OpType="Allgather"):\n    pass\n')
    with pytest.raises(hccc.UserError, match="load_job"):
        hccc.simulate(TEXT, cluster=site)


def test_what_a_job_has_not_is_refused(job: hccc.Job, site: hccc.Topology) -> None:
    refused: Any = hccc.simulate
    for arguments in ({"vs": True}, {"options": hccc.Options()}, {"call": hccc.Call(window=2)}):
        with pytest.raises(hccc.UserError, match="has no effect: this is a job"):
            refused(job, "1M", cluster=site, **arguments)
    with pytest.raises(hccc.UserError) as error:
        refused(job, "1M")
    assert error.value.problem.code == "E424" and "--" not in str(error.value)
    with pytest.raises(hccc.UserError, match="one picture"):
        hccc.show(job, "dag", cluster=site)
    with pytest.raises(hccc.UserError) as error:
        hccc.check(job, cluster="dgx-h100")
    assert error.value.problem.code == "E130"


@pytest.mark.slow
def test_a_job_runs_with_a_library_for_each_vendor(tmp_path: Path) -> None:
    """A text has the vendor clusters that `vendors` says."""
    file = tmp_path / "job.rccl"
    file.write_text(WHOLE)
    found = hccc.run(file, "4K", launches=2, warmups=1, vendors="own:2,own:1", op=["sum", "max"])
    assert repr(found).startswith("<Measurement whole: Allreduce over 3 ranks: 2 rows, 0 wrong")
    assert [row["redop"] for row in found.records()] == ["sum", "sum", "max", "max"]
    for given, vendors, code in (
        (file, "own:2,own", "E473"),
        (file, None, "E482"),
        ("ring_allreduce", "own:8", "E416"),
    ):
        with pytest.raises(hccc.UserError) as error:
            hccc.run(given, "4K", vendors=vendors)
        assert error.value.problem.code == code
