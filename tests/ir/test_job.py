"""Job: its invariants, its text, its JSON and its table."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.ir import job_json, job_table
from hccc.ir.collective import OpType
from hccc.ir.job import (
    Job,
    JobOp,
    VendorClusters,
    check,
    lines,
    same,
    step_problems,
    vendor_clusters,
)
from hccc.synth.builtin.hetccl import OPS, hetccl

V = vendor_clusters(
    [("a", [0, 2, 5], [0, 5], [1, 2]), ("b", [1], [1], [1]), ("c", [3, 4], [3, 4], [1, 1])]
)
JOB = hetccl(V, OpType.ALLREDUCE)


@pytest.mark.parametrize("op", OPS)
def test_json_gives_the_same_job(op: OpType) -> None:
    job = hetccl(V, op, 3 if op in (OpType.REDUCE, OpType.SCATTER) else 0)
    text = job_json.dumps(job)
    assert same(job_json.loads(text), job)
    assert job_json.dumps(job_json.loads(text)) == text


@pytest.mark.parametrize("op", OPS)
def test_a_table_gives_the_same_job(op: OpType) -> None:
    job, batches = (
        hetccl(V, op, 3 if op in (OpType.REDUCE, OpType.SCATTER) else 0),
        [(0, 1), (9, 4)],
    )
    for given in ([], batches):
        text = job_table.dumps(job, given)
        found, micro_batches = job_table.loads(text)
        assert same(replace(found, clusters=replace(found.clusters, vendors=V.vendors)), job)
        assert micro_batches == given
        assert job_table.dumps(found, micro_batches) == text


def _summed(text: str) -> str:
    """Gives a text the last line of a table."""
    return f"{text}end {job_table._checksum(text.encode()):016x}\n"


TABLE = job_table.dumps(JOB, [(0, 1)])
BODY = TABLE[: TABLE.rindex("end ")]
BAD_TABLES = {
    "": "E407",
    TABLE[:-1]: "E407",
    TABLE.replace("part", "path").replace("name", "nama"): "E407",
    _summed(""): "E407",
    _summed(BODY.replace("hccc job 1", "hccc job 2")): "E407",
    _summed(BODY.replace("steps ", "steps 9")): "E407",
    _summed(BODY.replace("weights 1 2", "weights 1 x")): "E407",
    _summed(BODY.replace("collective Allreduce 6", "collective Allreduce")): "E407",
    _summed(BODY.replace("Allreduce", "Allsomething")): "E407",
    _summed(BODY[: BODY.index("micro")] + "micro_batches 1\n0 1 2\n"): "E407",
    _summed(BODY.replace("weights 1 2", "weights 1 99999999999999999999")): "E407",
    _summed(BODY.replace("collective Allreduce 6", "collective Allreduce 7")): "E208",
    _summed(BODY.replace("weights 1 2", "weights 1 0")): "E208",
}


@pytest.mark.parametrize("text", BAD_TABLES)
def test_files_that_are_no_tables_are_refused(text: str) -> None:
    with pytest.raises(UserError) as caught:
        job_table.loads(text, "x.table")
    assert caught.value.problem.code == BAD_TABLES[text]


def test_text() -> None:
    text = list(lines(hetccl(V, OpType.SCATTER, 2)))
    assert text[0] == (
        'def HetCCLJob(AlgoName="hetccl_scatter", OpType="Scatter", nParts=1, Root=2):'
    )
    assert text[1:5] == [
        "    homColl(0, send, part(0), src=2, dst=0)",
        "    homColl(0, scatter, part(1), root=2)",
        "    c2cCpy(0, 1, part(1), dst=1)",
        "    homColl(0, scatter, part(3), root=2)",
    ]


def test_pieces_are_cut_by_every_border() -> None:
    assert [str(x) for x in V.cuts()] == ["0", "1/3", "1/2", "1"]
    assert V.owners().tolist() == [[0, 5, 5], [1, 1, 1], [3, 3, 4]]


def _json(**changes: object) -> str:
    return json.dumps(json.loads(job_json.dumps(JOB)) | changes)


BAD = {
    '{"hccc_job": 1': "E406",
    "[1]": "E407",
    _json(hccc_job=2): "E407",
    _json(more=1): "E407",
    _json(name="no name"): "E407",
    _json(collective={"op": "Allreduce", "n_parts": True, "root": 0}): "E407",
    _json(steps=json.loads(job_json.dumps(JOB))["steps"] | {"line": [0]}): "E407",
    _json(clusters=[{"vendor": "a", "ranks": [0, 0], "border": [0], "weight": [1]}]): "E208",
    _json(collective={"op": "Allgather", "n_parts": 6, "root": 0}): "E208",
}


@pytest.mark.parametrize("text", BAD)
def test_files_that_are_no_jobs_are_refused(text: str) -> None:
    with pytest.raises(UserError) as caught:
        job_json.loads(text, "x.json")
    assert caught.value.problem.code == BAD[text]


def _with(**columns: int) -> Job:
    steps = JOB.steps.copy()
    for name, value in columns.items():
        steps[name][0] = value
    return replace(JOB, steps=steps)


STEPS = {
    "there is no such step": _with(op=8),
    "there are vendor clusters 0 to 2": _with(src=3, dst=3),
    "there is no such part": _with(part=3),
    "it does not join two vendor clusters": _with(op=JobOp.C2C_CPY),
    "homColl is within one vendor cluster": _with(dst=1),
    "only Allgather has blocks of all ranks": _with(op=JobOp.ALLGATHER),
    "a rank is named that is none": _with(receiver=6),
    "it needs a receiver": _with(op=JobOp.GATHER),
    "it has no sender": _with(sender=0),
    "its receiver is of another vendor cluster": _with(receiver=1),
    "its receiver is no border rank": _with(op=JobOp.C2C_CPY, src=1, dst=0, receiver=2),
    "a rank sends to itself": _with(op=JobOp.SEND, sender=2, receiver=2),
}


@pytest.mark.parametrize("why", STEPS)
def test_steps_that_are_none(why: str) -> None:
    assert why in {said for _, said in step_problems(STEPS[why])}
    assert check(STEPS[why])[0].startswith("step 0")


def test_a_reduction_of_what_does_not_reduce() -> None:
    wrong = replace(hetccl(V, OpType.BROADCAST), steps=JOB.steps[:1])
    assert check(wrong) == ["step 0, homColl(0, reduce, part(0)): Broadcast does not reduce"]


CLUSTERS: dict[str, VendorClusters] = {
    "are none, too many": replace(V, vendors=("a",)),
    "not each of the 6 ranks once": replace(V, ranks=replace(V.ranks, index=np.zeros(6, np.int64))),
    "is named twice": replace(V, borders=replace(V.borders, index=np.array([0, 0, 1, 3, 4]))),
    "is of another vendor cluster": replace(
        V, borders=replace(V.borders, index=np.array([0, 1, 5, 3, 4]))
    ),
    "weights are not one": replace(V, weight=np.array([1, 0, 1, 1, 1])),
}


@pytest.mark.parametrize("why", CLUSTERS)
def test_vendor_clusters_that_do_not_fit(why: str) -> None:
    assert why in check(replace(JOB, clusters=CLUSTERS[why]))[0]


@pytest.mark.parametrize("table", ["ranks", "borders"])
def test_each_vendor_cluster_has_a_row(table: str) -> None:
    rows = getattr(V, table)
    wrong = replace(V, **{table: replace(rows, ptr=rows.ptr[[0, -1]])})
    assert "not all listed" in check(replace(JOB, clusters=wrong))[0]


def test_headers_that_do_not_fit() -> None:
    c, gather = JOB.collective, hetccl(V, OpType.GATHER)
    odd = replace(gather, collective=replace(gather.collective, n_chunks=7))
    assert "cannot name" in check(replace(JOB, name="a b"))[0]
    assert "5 ranks" in check(replace(JOB, collective=replace(c, n_ranks=5)))[0]
    assert "multiple" in check(odd)[0]
    assert "no rank" in check(replace(JOB, collective=replace(c, root=6)))[0]
