"""estimate: roughly how long a Program takes on a Topology, to leave out the slow ones.

The most that any resource carries, at its rate, and the latencies of the longest chain of
transfers. No thread blocks, no order beyond steps: `sim` decides among what is left.
"""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4
from hccc.ir.program import Program
from hccc.ir.topology import BYTES_PER_US, F8, Topology
from hccc.network.routes import routes

PIPELINED = 64 << 10  # bytes of a chunk that arrive before any of them is passed on, at most
LARGEST = 1 << 26  # ranks times chunks of which chains are followed


def estimate(p: Program, t: Topology, size: int) -> float:
    """Returns the µs of a call of `size` bytes; inf where a transfer has no route. O(transfers)."""
    rows = p.transfers
    if not len(rows):
        return 0.0
    n = len(t)
    key, pair = np.unique(rows["src"].astype(np.int64) * n + rows["dst"], return_inverse=True)
    src, dst = (a.astype(np.int32) for a in np.divmod(key, n))
    found = routes(t, src, dst)
    if not (found.bandwidth > 0).all():
        return float("inf")
    chunk = _chunk(p, size)
    count = np.bincount(pair, minlength=len(key))
    load = (
        np.bincount(found.uses.index, count[found.uses.owner()], len(found.capacity))
        * chunk
        / (found.capacity * BYTES_PER_US)
    )
    hop = found.alpha + min(chunk, PIPELINED) / (found.bandwidth * BYTES_PER_US)
    return float(load.max()) + _longest(p, n, hop[pair])


def _chunk(p: Program, size: int) -> float:
    """Returns the bytes of a chunk of a call."""
    c = p.collective
    return size / (c.most_blocks() * c.chunks_per_block)


def _longest(p: Program, n: int, hop: F8) -> float:
    """Returns the µs of the longest chain of transfers in which each forwards the chunk of the one
    before."""
    chunks = p.collective.n_chunks
    if n * chunks > LARGEST:
        steps = len(np.unique(p.transfers["step"]))
        return steps * float(hop.max())
    rows = p.transfers
    return _chains(
        rows["src"].copy(),
        rows["dst"].copy(),
        rows["chunk"].copy(),
        rows["step"].copy(),
        hop,
        np.zeros((n, chunks)),
    )


@njit
def _chains(src: I4, dst: I4, chunk: I4, step: I4, hop: F8, since: F8) -> float:
    """Returns the time at which the last chunk arrives. since: f8[ranks, chunks] µs, changed. Rows
    are by step; transfers of one step read the chunks that were there before it."""
    latest, begin = 0.0, 0
    arrives = np.empty(len(src))
    for i in range(len(src) + 1):
        if i == len(src) or step[i] != step[begin]:
            for j in range(begin, i):
                arrives[j] = since[src[j], chunk[j]] + hop[j]
            for j in range(begin, i):
                if arrives[j] > since[dst[j], chunk[j]]:
                    since[dst[j], chunk[j]] = arrives[j]
                latest = max(latest, arrives[j])
            begin = i
    return latest
