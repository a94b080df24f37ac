"""The reference pages match the languages: each key, default and unit, and each example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hccc.base.diagnostics import Source
from hccc.ir import program, topology
from hccc.ir.collective import PROGRAMMABLE, OpType, block_count
from hccc.ir.device import Device, Network
from hccc.ir.program import Program
from hccc.lang.cluster import load as cluster
from hccc.lang.cluster.read_site import INSIDE, _Reader
from hccc.lang.cluster.site import OUTSIDE
from hccc.lang.cluster.text import RATES, SIZES, TIMES
from hccc.lang.transfer.calls import FUNCTIONS, PARAMETERS
from hccc.lang.transfer.header import KEYS
from hccc.lang.transfer.load import parse
from hccc.passes.verify import verify

DOCS = Path(__file__).parents[2] / "docs"
TRANSFER = (DOCS / "transfer-language.md").read_text()
CLUSTER = (DOCS / "cluster-language.md").read_text()


def _blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", page, re.S)


def _rows(page: str, first: str) -> list[list[str]]:
    """Returns the cells of the table whose first column is called `first`."""
    lines = iter(page.split(f"\n| {first} |", 2 if first == "OpType" else 1)[-1].splitlines()[2:])
    cells = []
    for line in lines:
        if not line.startswith("|"):
            break
        cells.append([cell.strip() for cell in line.strip("|").split("|")])
    return cells


def _small(op: str) -> Program:
    return parse(Source("small", f'ResCCLAlgo(nRanks=4, OpType="{op}"):\n'))


@pytest.mark.parametrize("text", _blocks(TRANSFER, "python"))
def test_programs_on_the_page_are_right(text: str) -> None:
    p = verify(parse(Source("page.rccl", text)))
    assert program.check(p) == [] and len(p)


def test_header_keys_and_defaults_are_those_of_the_code() -> None:
    rows = {row[0]: row[1] for row in _rows(TRANSFER, "key")}
    assert set(rows) == set(KEYS)
    p = _small("Broadcast")
    values = {"nRanks": 4, "GPUPerNode": p.gpus_per_node, "NICPerNode": p.nics_per_node}
    assert rows["AlgoName"] == f'`"{p.name}"`'
    assert (int(rows["nChannels"]), int(rows["nWarps"])) == (p.channels, p.warps)
    assert int(rows["Root"]) == p.collective.root
    assert values[rows["GPUPerNode"]] == p.gpus_per_node
    assert values[rows["NICPerNode"]] == p.nics_per_node
    assert rows["nChunks"] == "nRanks (Alltoall: nRanks * nRanks; a demand: its blocks)"
    text = 'ResCCLAlgo(nRanks=4, OpType="custom", Demand="0 -> 1; 1 -> 0"):\n'
    assert parse(Source("small", text)).collective.n_chunks == 2
    assert {op: _small(op).collective.n_chunks for op in PROGRAMMABLE} == {
        op: 16 if op is OpType.ALLTOALL else 4 for op in PROGRAMMABLE
    }


def test_collectives_are_those_of_the_code() -> None:
    rows = {row[0]: row for row in _rows(TRANSFER, "OpType")}
    assert set(rows) == {op.value for op in PROGRAMMABLE}
    for op in PROGRAMMABLE:
        assert block_count(op, 4) == {"1": 1, "R": 4, "R * R": 16}[rows[op.value][1]]
        assert ("reduced" in rows[op.value][3]) == _small(op.value).collective.reduces


def test_functions_and_parameters_are_on_the_page() -> None:
    assert all(re.search(rf"\b{name}\b", TRANSFER) for name in (*FUNCTIONS, *PARAMETERS))


@pytest.mark.parametrize("text", _blocks(CLUSTER, "cluster"))
def test_clusters_on_the_page_are_right(text: str) -> None:
    assert topology.check(cluster.parse(Source("page.cluster", text))) == []


def test_defines_units_and_latencies_are_those_of_the_code() -> None:
    rows = {row[0]: row for row in _rows(CLUSTER, "define")}
    assert set(rows) == {*_Reader().readers, "nodeN"}
    units = {row[0]: row[1].split() for row in _rows(CLUSTER, "what")}
    assert units["rate"] == list(RATES) and units["size"] == list(SIZES)
    assert set(units["latency"]) == {unit.replace("\u03bc", "\u00b5") for unit in TIMES}
    assert re.findall(r"(\w+) =>", rows["latency"][1]) == list(INSIDE)
    assert re.findall(r"(\w+) =>", rows["interlatency"][1]) == list(OUTSIDE)
    assert set(OUTSIDE.values()) == {2.6, 0.5}
    assert Device().alpha.simple == 0.7 and Network().alpha.simple == 2.6
