"""Distances are alike at every rank; runs of numbers read back are the numbers."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hccc.ir.ranks import named_runs, rank_distance, runs


@given(st.integers(1, 5), st.integers(1, 5))
def test_distances_are_alike_at_every_rank(nodes: int, gpus: int) -> None:
    """From each rank they are 0 to n - 1, itself first; one node or one GPU on changes nothing."""
    n = nodes * gpus
    here, there = (x.ravel() for x in np.mgrid[:n, :n])
    found = rank_distance(n, gpus, here, there).reshape(n, n)
    assert (np.sort(found, axis=1) == np.arange(n)).all() and not found.diagonal().any()
    node, gpu = np.divmod(np.arange(n), gpus)
    for moved in ((node + 1) % nodes * gpus + gpu, node * gpus + (gpu + 1) % gpus):
        assert (found[np.ix_(moved, moved)] == found).all()


@given(st.integers(2, 30), st.integers(0, 40))
def test_where_nodes_do_not_divide_the_ranks_all_are_one(n: int, gpus: int) -> None:
    if gpus and n % gpus == 0:
        return
    rank = np.arange(n)
    assert (rank_distance(n, gpus, np.zeros(n, np.int32), rank) == rank).all()


@given(st.sets(st.integers(0, 60)))
def test_runs_are_the_numbers_and_never_touch(numbers: set[int]) -> None:
    found = list(runs(sorted(numbers)))
    assert [i for a, b in found for i in range(a, b + 1)] == sorted(numbers)
    assert all(b + 1 < c for (_, b), (c, _) in pairwise(found))
    text = ", ".join(named_runs("node", sorted(numbers)))
    read = [
        i
        for a, b in re.findall(r"node(\d+)(?:\.\.node(\d+))?", text)
        for i in range(int(a), int(b or a) + 1)
    ]
    assert read == [n + 1 for n in sorted(numbers)]
