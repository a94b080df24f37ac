"""The words that may stand at a place; `|` marks it."""

from __future__ import annotations

import pytest

from hccc.editors.completion import completions
from hccc.editors.words import tables
from hccc.ir.collective import spellings
from hccc.lang.cluster.read_site import defined
from hccc.lang.transfer import header, jobs, tokens
from hccc.lang.transfer.calls import FUNCTIONS, JOB_CALLS, OPS
from hccc.shipped import find as shipped
from hccc.shipped.hardware.load import devices, networks


def offered(text: str, kind: str = "program") -> dict[str, str]:
    """Returns each word offered at the mark, with the text that is written for it."""
    before, _, _ = text.partition("|")
    line = before.count("\n")
    column = len(before) - before.rfind("\n") - 1
    found = completions(text.replace("|", ""), kind, line, column)
    return {one.label: one.insert or one.label for one in found}


def test_tables_say_something_of_every_word_of_the_languages() -> None:
    said = tables()
    assert set(said["header"]) == set(header.KEYS)
    assert set(said["job_header"]) == set(jobs.KEYS)
    assert set(said["functions"]) == set(FUNCTIONS)
    assert set(said["operations"]) == set(OPS)
    assert set(said["job_calls"]) == set(JOB_CALLS)
    assert set(said["keywords"]) == set(tokens.KEYWORDS)
    assert set(said["defines"]) == {*defined(), "node"}


@pytest.mark.parametrize("head", ["def ResCCLAlgo(|", "ResCCLAlgo(n|", "ResCCLAlgo(\n    |"])
def test_keys_of_a_header(head: str) -> None:
    assert offered(head) == {key: f"{key}=" for key in header.KEYS}


def test_a_key_is_given_once() -> None:
    assert "nRanks" not in offered("ResCCLAlgo(nRanks=8, |")
    assert set(offered("HetCCLJob(Root=1, |", "job")) == set(jobs.KEYS) - {"Root"}


def test_collectives() -> None:
    assert offered("ResCCLAlgo(OpType=|") == {name: f'"{name}"' for name in spellings()}
    assert set(offered('ResCCLAlgo(OpType="All|')) == set(spellings())
    assert offered('ResCCLAlgo(AlgoName="|') == {}


PROGRAM = """\
n = 4
def f(a):
    return a
ResCCLAlgo(nRanks=n, OpType="Allgather"):
    for r in range(nRanks):
        left = r
        {}
    for later in range(2):
        n = 3
"""


def test_what_is_in_scope() -> None:
    found = offered(PROGRAM.format("x = |"))
    assert {"n", "f", "r", "left", "nRanks", "min", "len", "not"} <= set(found)
    assert not {"a", "later", "transfer", "OpType", "recv", "for"} & set(found)
    assert {"transfer", "for", "if", "r"} <= set(offered(PROGRAM.format("|")))


def test_the_last_value_of_a_transfer() -> None:
    assert set(offered(PROGRAM.format("transfer(r, r + 1, max(0, 1), 3, |"))) == set(OPS)
    assert set(offered(PROGRAM.format("transfer(0, 1, 2, op=|"))) == set(OPS)
    third = offered(PROGRAM.format("transfer(r, r + 1, |"))
    assert {"step", "chunkId", "op", "r"} <= set(third) and "srcRank" not in third


def test_steps_of_a_job() -> None:
    job = 'HetCCLJob(OpType="Allreduce"):\n    {}\n'
    assert {"homColl", "c2cRed", "nClusters"} <= set(offered(job.format("|"), "job"))
    assert "transfer" not in offered(job.format("|"), "job")
    assert "allgather" in offered(job.format("homColl(0, |"), "job")


def test_nothing_in_comments_but_clusters_that_ship() -> None:
    assert offered("# ResCCLAlgo(|") == {}
    assert set(offered("# cluster: d|")) == set(shipped.names(shipped.ShippedKind.CLUSTER))


def test_clusters() -> None:
    assert offered("|", "cluster") == {"define": "define"}
    found = offered("define node1 = 8\ndefine |", "cluster")
    assert set(found) == {*defined(), "node2"}
    assert set(offered("define device = |", "cluster")) == set(devices())
    assert set(offered("define device = {name => |", "cluster")) == set(devices())
    assert set(offered("define network = {nics => 4, name => |", "cluster")) == set(networks())
    assert "delivered" in offered("define network = {nics => 4, |", "cluster")
    assert set(offered("define bandwidth = {direct => [((0,1) -> (25,2))], |", "cluster")) == {
        *("switch", "mesh", "port")
    }
    assert offered("define network = {nics => 4, # |", "cluster") == {}


def test_a_name_of_several_words_is_written_in_quotes() -> None:
    found = offered("define network = |", "cluster")
    assert all(f'"{name}"' == text for name, text in found.items() if " " in name)
