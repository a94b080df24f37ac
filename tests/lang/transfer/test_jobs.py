"""parse_job: what is printed is read as the same; mistakes have a place, a caret and a remedy."""

from __future__ import annotations

import pytest

from hccc.base.diagnostics import Problem, Source, UserError
from hccc.ir import job_json, job_table
from hccc.ir.collective import ROOTED, UNEVEN, OpType
from hccc.ir.job import lines, same, vendor_clusters
from hccc.lang.transfer.jobs import parse_job
from hccc.passes.verify_job import verify_job
from hccc.synth.builtin.hetccl import OPS, hetccl

V = vendor_clusters(
    [("a", [0, 2, 5], [0, 5], [1, 2]), ("b", [1], [1], [1]), ("c", [3, 4], [3, 4], [1, 1])]
)
ALLREDUCE = """\
HetCCLJob(OpType="Allreduce", AlgoName="hetccl_allreduce", nParts=nClusters):
    for h in range(nParts):
        for c in range(nClusters): homColl(c, reduce, part(h))
    for h in range(nParts):
        for i in range(nClusters - 1):
            c2cRed((h + 1 + i) % nClusters, (h + 2 + i) % nClusters, part(h))
    for h in range(nParts):
        for i in range(nClusters - 1): c2cCpy((h + i) % nClusters, (h + i + 1) % nClusters, part(h))
    for h in range(nParts):
        for c in range(nClusters): homColl(c, broadcast, part(h))
"""
HEAD = 'HetCCLJob(OpType="Allreduce"):\n    '


@pytest.mark.parametrize("op", OPS)
def test_what_is_printed_is_read_as_the_same(op: OpType) -> None:
    job = hetccl(V, op, 1 if op in ROOTED else 0)
    assert same(parse_job(Source("job", "\n".join(lines(job))), V), job)


@pytest.mark.parametrize("op", UNEVEN)
def test_blocks_with_lengths_of_their_own(op: OpType) -> None:
    """Text, JSON and table have the collective with its v; steps are those of the other."""
    job = hetccl(V, op, 1 if op in ROOTED else 0, uneven=True)
    text = "\n".join([*lines(job), ""])
    assert f'OpType="{op.value}v"' in text
    read = (parse_job(Source("job", text), V), job_json.loads(job_json.dumps(job)))
    assert all(same(job, one) for one in read)
    assert job_table.loads(job_table.dumps(job))[0].collective == job.collective
    even = hetccl(V, op, job.collective.root)
    assert (even.steps == verify_job(job).steps).all() and not same(even, job)


def test_loops_over_vendor_clusters_are_the_builtin() -> None:
    assert same(verify_job(parse_job(Source("job", ALLREDUCE), V)), hetccl(V, OpType.ALLREDUCE))


def test_lists_of_ranks() -> None:
    text = """\
HetCCLJob(OpType="Gather", AlgoName="mine", Root=3):
    for r in range(nRanks):
        if clusterOf[r] == clusterOf[Root]:
            if r != Root: homColl(clusterOf[r], send, part(r), src=r, dst=Root)
        else:
            if not onBorder[r]: homColl(clusterOf[r], scatter, part(r), root=r)
            if onBorder[r]: c2cCpy(clusterOf[r], clusterOf[Root], part(r), src=r)
            else: c2cCpy(clusterOf[r], clusterOf[Root], part(r))
            homColl(clusterOf[Root], gather, part(r), root=Root)
"""
    job = verify_job(parse_job(Source("job", text), V))
    assert job.crossings().sum(0).tolist() == [0, 0, 4]


def problem(text: str) -> Problem:
    with pytest.raises(UserError) as caught:
        verify_job(parse_job(Source("job.rccl", text), V))
    return caught.value.problem


WRONG = {
    "c2cCpy(0, 0, part(0))": ("E120:5-26", "does not join two vendor clusters"),
    "c2cCpy(0, 3, part(0))": ("E120:5-26", "there are vendor clusters 0 to 2"),
    "c2cCpy(0, 1, part(1 << 40))": ("E120:5-32", "there is no such part"),
    "c2cCpy(0, 1, 3)": ("E014:18-19", "written `part(number)`, not `3`"),
    "homColl(0, add, part(0))": ("E014:16-19", "the call of the vendor's library"),
    "transfer(0, 1, 0, 0, recv)": ("E013:5-31", "transfer(...) is of programs"),
    "x = part(0)": ("E013:9-16", "can only stand in a step"),
    "homColl(0, send, part(0), root=1)": ("E013:36-37", "send has no root"),
    "c2cRed(0, 1)": ("E013:5-17", "does not say part"),
    "c2cRed(0, 1, part(0), src=3)": ("E013:27-30", "no argument `src`"),
    "homColl(0, reduce, part(0), 1, 2, 3, 4)": ("E013:5-44", "at most 6 values"),
    "homColl(0, gather, part(0))": ("E120:5-32", "it needs a receiver"),
    "homColl(0, gather, part(0), root=1)": ("E120:5-40", "is of another vendor cluster"),
    "part(0)": ("E001:5-12", "does nothing"),
    "x = 3 // 0": ("E110:9-15", "zero"),
}


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_in_steps(text: str) -> None:
    found, (where, message) = problem(HEAD + text + "\n"), WRONG[text]
    assert found.span is not None
    assert f"{found.code}:{found.span.column}-{found.span.end}" == where, found.render()
    assert message in found.message


HEADERS = {
    "ResCCLAlgo(nRanks=3):\n": ("E010", "begins with HetCCLJob"),
    "HetCCLJob(nRanks=3):\n": ("E010", "no key `nRanks`"),
    "HetCCLJob(nParts=3):\n": ("E011", "OpType"),
    'HetCCLJob(OpType="Allreduce", nParts=0):\n': ("E012", "nParts=0"),
    'HetCCLJob(OpType="Allreduce", Root=0):\n': ("E012", "no root"),
    'HetCCLJob(OpType="Broadcastv"):\n': ("E012", "Broadcastv"),
}


@pytest.mark.parametrize("text", HEADERS)
def test_mistakes_in_headers(text: str) -> None:
    found, (code, message) = problem(text), HEADERS[text]
    assert found.code == code and message in found.message and found.span is not None


def test_a_wrong_result_names_the_line() -> None:
    found = problem(ALLREDUCE.replace("c2cRed", "c2cCpy"))
    assert found.code == "E205"
    assert found.span is not None and found.span.line == 6
