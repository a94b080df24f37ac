"""Classes of like chunks, against networkx and against known classes of the examples."""

from __future__ import annotations

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings

from hccc import testing
from hccc.base.diagnostics import Source
from hccc.ir.dag import Dag
from hccc.ir.program import Program
from hccc.lang.transfer import load as transfer
from hccc.passes.depend import depend
from hccc.passes.verify import verify
from hccc.pictures.chunk_classes import chunk_classes
from hccc.pictures.dag import dag as draw
from tests.pictures.drawn import EXAMPLES, compiled, program, texts

ALIKE = {
    "hm_allreduce": 32,
    "hm_allgather": 32,
    "ring_allreduce": 8,
    "rhd_allreduce": 8,
    "direct_alltoall": 56,
    "binomial_broadcast": 1,
}


def _graph(dag: Dag, chunk: int) -> nx.MultiDiGraph[tuple[str, int]]:
    """Returns the DAG of one chunk, its tasks tied to ranks."""
    t = dag.program.transfers
    graph = nx.MultiDiGraph()
    for i in np.flatnonzero(t["chunk"] == chunk).tolist():
        graph.add_node(("task", i), what=int(t["op"][i]))
        graph.add_node(("rank", int(t["src"][i])), what="rank")
        graph.add_node(("rank", int(t["dst"][i])), what="rank")
        graph.add_edge(("rank", int(t["src"][i])), ("task", i))
        graph.add_edge(("task", i), ("rank", int(t["dst"][i])))
        for p in dag.preds.row(i).tolist():
            graph.add_edge(("task", p), ("task", i))
    return graph


@given(testing.correct_programs())
@settings(max_examples=60, deadline=None)
def test_alike_chunks_are_isomorphic(program: Program) -> None:
    dag = depend(verify(program), None)
    found = chunk_classes(dag)
    moved = np.unique(program.transfers["chunk"]).tolist()
    assert sorted(c for chunk_class in found for c in chunk_class.chunks) == moved
    for chunk_class in found:
        assert (program.transfers["chunk"][chunk_class.tasks] == chunk_class.chunks[0]).all()
        first = _graph(dag, chunk_class.chunks[0])
        for chunk in chunk_class.chunks[1:4]:
            assert nx.is_isomorphic(
                first, _graph(dag, chunk), node_match=lambda a, b: a["what"] == b["what"]
            )


@pytest.mark.parametrize("name", ALIKE)
def test_known_symmetries_are_found(name: str) -> None:
    found = chunk_classes(depend(verify(transfer.load(EXAMPLES / f"{name}.rccl")), None))
    assert [len(chunk_class.chunks) for chunk_class in found] == [ALIKE[name]]


def test_order_in_the_text_does_not_keep_chunks_apart() -> None:
    """A tree for every root, each written in another order within its steps."""
    trees = {0: [(0, 1, 0), (0, 2, 1), (1, 3, 1)], 3: [(3, 2, 0), (2, 0, 1), (3, 1, 1)]}
    lines = [
        f"transfer({a}, {b}, {step}, {chunk}, recv)"
        for chunk, tree in trees.items()
        for a, b, step in tree
    ]
    text = (
        'ResCCLAlgo(nRanks=4, nChannels=1, nWarps=1, AlgoName="t", OpType="Allgather", '
        "GPUPerNode=4, NICPerNode=4):\n    " + "\n    ".join(lines) + "\n"
        "    for r in range(4):\n        if r != 1:\n            transfer(1, r, 0, 1, recv)\n"
        "    for r in range(4):\n        if r != 2:\n            transfer(2, r, 0, 2, recv)\n"
    )
    program = transfer.parse(Source("t", text))
    found = chunk_classes(depend(verify(program), None))
    assert sorted(chunk_class.chunks for chunk_class in found) == [(0, 3), (1, 2)]


def test_the_drawing_has_every_transfer_of_the_chunk() -> None:
    stops = compiled("hm_allreduce")
    shown = texts(draw(stops.dag))
    t = stops.program.transfers[stops.program.transfers["chunk"] == 0]
    for src, dst in zip(t["src"].tolist(), t["dst"].tolist(), strict=True):
        assert f"{src} → {dst}" in shown
    assert "All 32 chunks are alike but for the names of ranks." in shown


@pytest.mark.slow
def test_a_drawing_of_many_says_what_is_left_out() -> None:
    text = (EXAMPLES / "ring_allreduce.rccl").read_text().replace("nRanks=8", "nRanks=96")
    source = Source("ring", text)
    picture = draw(depend(verify(transfer.parse(source)), None))
    shown = texts(picture)
    assert any("… " in x and " layers, " in x for x in shown)
    assert any(x.startswith("Drawn: the ") and "Left out: " in x for x in shown)
    assert len(picture.svg) < 60_000


def test_chunks_that_are_not_alike_are_counted() -> None:
    body = (
        "for r in range(3):\n    transfer(3, r, 0, 3, recv)\n    if r != 1:\n"
        "        transfer(1, r, 0, 1, recv)\n    if r != 2:\n        transfer(2, r, 0, 2, recv)\n"
        "transfer(1, 3, 1, 1, recv)\ntransfer(0, 3, 1, 2, recv)\n"
        "transfer(0, 1, 0, 0, recv)\ntransfer(1, 2, 1, 0, recv)\ntransfer(2, 3, 2, 0, recv)\n"
    )
    header = {"nRanks": 4, "nChannels": 1, "nWarps": 1, "AlgoName": "t", "OpType": "Allgather"}
    stops = program(body, **header, GPUPerNode=4, NICPerNode=4)
    sizes = sorted(len(chunk_class.chunks) for chunk_class in chunk_classes(stops.dag))
    assert sizes == [1, 1, 2]  # a star from a rank (twice), a star with a relay, a chain
    shown = " ".join(texts(draw(stops.dag)))
    assert "2 of 4 chunks are alike but for the names of ranks: this one and chunk 3." in shown
    assert "Not drawn: 2 other classes (1 chunk of 3 transfers, 1 chunk of 3 transfers)." in shown


def test_a_star_of_many_is_cut() -> None:
    body = "for r in range(99):\n    transfer(99, r, 0, 0, recv)"
    header = {"nRanks": 100, "nChannels": 1, "nWarps": 1, "AlgoName": "t", "OpType": "Broadcast"}
    stops = program(body, **header, GPUPerNode=100, NICPerNode=4, Root=99, nChunks=1)
    shown = texts(draw(stops.dag))
    assert any(x.startswith("+ ") and x.endswith(" more") for x in shown)
    assert "Drawn: the 64 first transfers. Left out: 35 others of this chunk." in shown
