"""Connections: which copies within a rank they carry."""

from __future__ import annotations

import numpy as np

from hccc.analysis.connections import Connections, _adopt_local, connections
from hccc.ir.collective import OpType
from hccc.ir.primitives import Buffer
from hccc.passes.place import place
from tests.passes.textbook import RECV, RRC, alltoall, lowered, on_nodes, program


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


def test_what_a_proxy_brought_is_on_its_senders_connection() -> None:
    """Each rank, in a node of its own, reduces chunks that all others put there."""
    rows = [
        (s, d, s, d + 4 * k, RRC) for k in range(3) for d in range(4) for s in range(4) if s != d
    ]
    rows += [(c % 4, d, 4, c, RECV) for c in range(12) for d in range(4) if d != c % 4]
    p = on_nodes(program(OpType.ALLREDUCE, 4, 12, rows), 1, "put")
    lands, sums = p.dst.buffer == Buffer.SCRATCH, p.src.buffer == Buffer.SCRATCH
    brought = zip(p.dst.rank[lands], p.dst.slot[lands], strict=True)
    sender = dict(zip(brought, p.owner[p.dst.owner()[lands]], strict=True))
    connection, row = connections(p).of, p.src.owner()[sums]
    rank, of = p.owner[row], connection[row]
    by = [sender[place] for place in zip(p.src.rank[sums], p.src.slot[sums], strict=True)]
    assert len(of) == 36 and len(set(zip(rank, by, strict=True))) == 12
    assert len({*zip(rank, by, of, strict=True)}) == len(set(of)) == 12
    assert not set(of) & set(np.delete(connection, row))  # what is sent has connections of its own


def test_a_copy_that_one_connection_reads_is_on_it() -> None:
    """In place, an Alltoall sets every block that it sends aside, for its one receiver."""
    p = place(lowered(alltoall(4)))
    of, aside = connections(p).of, np.flatnonzero(p.dst.buffer[p.dst.ptr[:-1]] == Buffer.STAGE)
    assert len(aside) == 12
    for copy in aside:
        readers = p.deps.owner()[p.deps.index == copy]
        here = readers[p.owner[readers] == p.owner[copy]]
        assert of[here].tolist() == [of[copy]]
