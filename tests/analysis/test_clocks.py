"""clocks, sets_before, ancestry: the same order of primitives as networkx finds, by each way."""

from itertools import pairwise

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.analysis import clocks
from hccc.analysis.ancestry import searches
from hccc.analysis.ancestry.chunk_forests import within_chunks
from hccc.analysis.ancestry.labels import labels
from hccc.analysis.ancestry.queries import NO, UNKNOWN, YES, settle
from hccc.ir.arrays import I4, I8, Csr, csr_from_pairs

NONE_HAS_SETS = -1  # primitives: `FEW` of a plan whose order is told by labels and clocks


@st.composite
def orders(draw: st.DrawFn) -> tuple[I8, Csr]:
    """Draws blocks of primitives and edges between them that respect one hidden order."""
    sizes = draw(st.lists(st.integers(0, 7), min_size=1, max_size=6))
    tb_ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n = int(tb_ptr[-1])
    times = draw(st.permutations(range(n)))
    time = np.concatenate([np.sort(np.array(times[lo:hi], int)) for lo, hi in pairwise(tb_ptr)])
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    pairs = draw(st.sets(pair, max_size=3 * n)) if n else set()
    edges = sorted((b, a) for a, b in pairs if time[a] < time[b])
    row, pred = (np.array([e[k] for e in edges], np.int32) for k in (0, 1))
    return tb_ptr, csr_from_pairs(row, pred, n)


def graph_of(tb_ptr: I8, preds: Csr) -> "nx.DiGraph[int]":
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(preds)))
    graph.add_edges_from((i - 1, i) for i in range(1, len(preds)) if i not in set(tb_ptr.tolist()))
    graph.add_edges_from(zip(preds.index.tolist(), preds.owner().tolist(), strict=True))
    return graph


def run_order(tb_ptr: I8, preds: Csr) -> I4:
    return clocks.topological(tb_ptr, preds)


def check(tb_ptr: I8, preds: Csr) -> None:
    graph, order = graph_of(tb_ptr, preds), run_order(tb_ptr, preds)
    after = nx.transitive_closure_dag(graph)
    n = len(preds)
    a, b = (x.ravel().astype(np.int32) for x in np.meshgrid(range(n), range(n)))
    chunk = np.arange(n, dtype=np.int32) % 3
    told = clocks.happens_before(tb_ptr, preds, order, a, b, chunk)
    for x, y, yes in zip(a.tolist(), b.tolist(), told.tolist(), strict=True):
        assert yes == (x == y or after.has_edge(x, y))
    reduced = nx.transitive_reduction(graph)
    edges = zip(preds.index.tolist(), preds.owner().tolist(), strict=True)
    inside = {(i - 1, i) for i in range(1, n)} & set(
        graph_of(tb_ptr, Csr(preds.ptr * 0, preds.index[:0])).edges
    )
    implied = clocks.implied_edges(tb_ptr, preds, order)
    for edge, gone in zip(edges, implied.tolist(), strict=True):
        assert gone == (edge in inside or not reduced.has_edge(*edge))


@settings(deadline=None)
@given(orders())
def test_sets_agree_with_networkx(case: tuple[I8, Csr]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks, "labels", None)  # plans of few primitives need none
        check(*case)


@pytest.mark.slow
@settings(deadline=None)
@given(orders())
def test_they_agree_with_networkx(case: tuple[I8, Csr]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks, "FEW", NONE_HAS_SETS)
        check(*case)


@settings(deadline=None)
@given(orders())
def test_searching_alone_agrees_with_networkx(case: tuple[I8, Csr]) -> None:
    """Where the labels leave every question open."""
    open_ = UNKNOWN
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks, "FEW", NONE_HAS_SETS)
        patch.setattr(clocks, "settle", lambda _, a, b: np.full(len(a), open_))
        patch.setattr(clocks, "by_climbing", lambda _, p, q, a, b, x: np.full(len(a), open_))
        patch.setattr(searches, "_edges_by_climbing", lambda _, p, q, x: np.full(len(q), open_))
        check(*case)


@settings(deadline=None, max_examples=40)
@given(orders())
def test_clocks_alone_agree_with_networkx(case: tuple[I8, Csr]) -> None:
    """Where labels and searches leave every question open."""
    open_ = UNKNOWN
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks, "FEW", NONE_HAS_SETS)
        patch.setattr(clocks, "by_searching", lambda _, p, q, a, b, x: np.full(len(a), open_))
        patch.setattr(clocks, "settle", lambda _, a, b: np.full(len(a), open_))
        patch.setattr(clocks, "by_climbing", lambda _, p, q, a, b, x: np.full(len(a), open_))
        patch.setattr(clocks, "settle_edges", lambda _, p, q, x: np.full(len(q), open_))
        check(*case)


@pytest.mark.slow
def test_labels_never_claim_what_is_not_so() -> None:
    """An order that labels claim is true; pairs they leave open go to the clocks."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        n = 60
        tb_ptr = np.arange(0, n + 1, 6)
        time = np.concatenate([np.sort(part) for part in np.split(rng.permutation(n), 10)])
        a, b = rng.integers(0, n, (2, 90))
        fine = time[a] < time[b]
        preds = csr_from_pairs(b[fine], a[fine].astype(np.int32), n)
        label = labels(tb_ptr, preds, run_order(tb_ptr, preds))
        after = nx.transitive_closure_dag(graph_of(tb_ptr, preds))
        x, y = (z.ravel().astype(np.int32) for z in np.meshgrid(range(n), range(n)))
        truth = np.array([p == q or after.has_edge(p, q) for p, q in zip(x, y, strict=True)])
        kinds = rng.integers(0, 4, n).astype(np.int32)
        other = within_chunks(label, preds, run_order(tb_ptr, preds), kinds)
        assert other is not None
        for forests in (label, other):
            told = settle(forests, x, y)
            assert (truth[told == YES]).all()
            assert not truth[told == NO].any()
            assert (told != UNKNOWN).mean() > 0.5
