"""programs: Programs for collectives in which every chunk goes from one rank to one rank.

Alltoall, Gather, Scatter and SendRecv ask for paths. Direct sends load narrow links; relays spread
the load over the wider ones. Paths have up to two relays (`relay_paths`), or, where these do not
join all ranks, as many as they must (`long_paths`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import I4, I8
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.program import Program
from hccc.ir.topology import F8, Topology
from hccc.synth.bounds.bound import limits
from hccc.synth.common.route_table import NO_ROUTE, RouteTable, route_table
from hccc.synth.common.transfer_table import joined, transfers
from hccc.synth.paths.long_paths import long_paths
from hccc.synth.paths.relay_paths import MET, Paths, relay_paths

OPS = (OpType.ALLTOALL, OpType.GATHER, OpType.SCATTER, OpType.SENDRECV)
CHUNKS = {OpType.ALLTOALL: (1, 2, 4, 16)}  # of a block; the first with which the bound is met
FEW = (1, 4, 16)  # of other collectives, which have fewer blocks
MOST_CHUNKS = 1 << 16  # an Alltoall of 256 ranks; beyond, one more program compiles for too long
MOST_TRANSFERS = 1 << 14  # of a program of several chunks a block
SMALL = 1 << 11  # chunks of a program that is also made with more than it needs


@dataclass(frozen=True, slots=True, eq=False)
class PathProgram:
    """A Program over paths. chunks: of a block; relayed: number of relays of all chunks; load: of
    the fullest resource, over the load at which the bound is met."""

    program: Program
    chunks: int
    relayed: int
    load: float

    @property
    def name(self) -> str:
        """The name for people: `routed, 2 chunks a block`."""
        return f"routed, {self.chunks} chunk{'s' if self.chunks > 1 else ''} a block"


def path_programs(t: Topology, op: OpType, root: int = 0, seed: int = 0) -> Iterator[PathProgram]:
    """Yields Programs that load the fullest resource least, with different numbers of chunks.

    Stops where more chunks would load nothing less, except that small programs come with twice as
    many too, which share links more evenly.

    Raises:
        UserError: E451 `op` is none of OPS; a rank is not reached; or direct sends are as good;
            E452 the program is too large.
    """
    if op not in OPS:
        raise fail("E451", f"routed does not serve {op.value}", help="built-ins do")
    n = len(t)
    cut = limits(t, op, root).cut
    if cut is None or cut.capacity <= 0:
        raise fail("E451", "nothing can be routed: a rank is not reached", help="see `hccc bound`")
    if block_count(op, n) > MOST_CHUNKS:
        message = f"{op.value} over {n} ranks has {block_count(op, n):,} chunks"
        raise fail("E451", message, help=f"at most {MOST_CHUNKS:,} are routed")
    table = route_table(t)
    blocks = Collective(op, n, block_count(op, n), root).most_blocks()
    block = cut.capacity / (table.capacity * blocks * cut.share)  # load of one, 1 at the bound
    chunk, src, dst = _ends(t, op, root, 1)
    if _direct_load(table, block, src * n + dst) <= MET:
        raise fail("E451", "relays gain nothing", help="direct sends everything straight")
    met = False
    for chunks in CHUNKS.get(op, FEW):
        chunk, src, dst = _ends(t, op, root, chunks)
        if chunks > 1 and len(chunk) > (SMALL if met else MOST_TRANSFERS):
            return
        paths = _paths(t, table, block / chunks, src, dst, chunks, seed)
        if paths.relayed:
            yield PathProgram(
                _program(t, op, root, chunks, paths), chunks, paths.relayed, paths.load
            )
        if met:
            return
        met = paths.load <= MET


def _direct_load(table: RouteTable, block: F8, row: I4) -> float:
    """Returns the load of the fullest resource without relays; inf where a pair has no route."""
    used = table.use[row]
    if (used[:, 0] == NO_ROUTE).any():
        return float("inf")
    count = np.bincount(used[used >= 0], minlength=len(block))
    return float((count * block).max(initial=0.0))


def _ends(t: Topology, op: OpType, root: int, chunks: int) -> tuple[I8, I4, I4]:
    """Returns the chunks that must move, and the ranks where each starts and must end: i4[P]."""
    c = Collective(op, len(t), chunks * block_count(op, len(t)), root)
    chunk = np.arange(c.n_chunks)
    src, dst = (
        c.source_of(chunk),
        c.target_of(chunk) if op is not OpType.SCATTER else chunk // chunks,
    )
    moves = src != dst
    return chunk[moves], src[moves].astype(np.int32), dst[moves].astype(np.int32)


def _paths(
    t: Topology, table: RouteTable, chunk: F8, src: I4, dst: I4, chunks: int, seed: int
) -> Paths:
    """Returns paths over up to two relays, or, where these are too few, over any number.

    Raises:
        UserError: E451 there is no path.
    """
    found = relay_paths(table, chunk, src, dst, chunks, seed)
    if isinstance(found, Paths):
        return found
    longer = long_paths(table, chunk, src, dst, seed)
    if longer is None:
        u, v = t.describe(int(src[found])), t.describe(int(dst[found]))
        raise fail("E451", f"two relays are too few from {u} to {v}")
    return longer


def _program(t: Topology, op: OpType, root: int, chunks: int, paths: Paths) -> Program:
    """Returns the Program of paths. Chunks with relays leave first, so that relays have something
    to send; in each step every rank sends to the rank so many places on, as in the direct
    Alltoall."""
    n = len(t)
    chunk, src, dst = _ends(t, op, root, chunks)
    columns = []
    at, hop = src.copy(), np.where(paths.relays[0] >= 0, 0, 1)
    for stop in (*paths.relays, dst):
        goes = np.flatnonzero(stop >= 0)
        away = (stop[goes] - at[goes]) % n
        columns.append((at[goes], stop[goes], hop[goes] * n + away, chunk[goes]))
        at[goes] = stop[goes]
        hop[goes] += np.where(hop[goes] == 0, 2, 1)
    u, v, step, which = (np.concatenate(column) for column in zip(*columns, strict=True))
    dense = np.unique(step, return_inverse=True)[1]
    c = Collective(op, n, chunks * block_count(op, n), root)
    return joined("Routed", c, t, transfers(u, v, dense, which))
