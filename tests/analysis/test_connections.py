"""Connections: which copies within a rank they carry."""

from __future__ import annotations

import numpy as np

from hccc.analysis.connections import Connections, _adopt_local


def test_a_copy_joins_the_least_used_connection_of_its_own_rank() -> None:
    """Connections 0 and 1 of rank 0 and 3 of rank 1 have transfers, 2 of rank 0 only a copy."""
    of = np.array([0, 0, 0, 1, 1, 2, 3], np.int32)
    rank = np.array([0, 0, 0, 1], np.int32)
    local = np.arange(len(of)) == 5
    made = _adopt_local(Connections(of, rank), local)
    assert made.of.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert made.rank.tolist() == [0, 0, 1]
    alone = _adopt_local(Connections(of[5:] - 2, rank[2:]), local[5:])
    assert alone.of.tolist() == [0, 1]  # there is no other of its rank
