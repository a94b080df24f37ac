"""demands: Programs over paths for a demand of one's own, memory domain by memory domain.

Of each chunk of a sum the ranks of a domain reduce their pieces into one of them. The values of
domains are reduced one into the next, the last into the chunk's root (`common/demand_table`). What
has to be copied goes from a rank that has it to one of each domain where it is wanted, from domain
to domain, and from there to the others. Chunks of a block take other ranks of a domain in turn, so
that they cross by other NICs, and every way is a path with relays, all of them routed together
(`relay_paths`).

A chunk's ways follow each other, so that no two values of it meet at a relay. Relays of a sum lie
in the domain that it comes from or goes to, whose ranks have given their pieces away by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import I4, I8
from hccc.ir.collective import Collective
from hccc.ir.demand import Demand
from hccc.ir.program import Op
from hccc.ir.topology import Topology
from hccc.synth.bounds.demanded import limits_of
from hccc.synth.common.demand_table import CHUNK, OP, STEP, demand_program, roots
from hccc.synth.common.route_table import RouteTable, route_table
from hccc.synth.common.transfer_table import transfers
from hccc.synth.paths.long_paths import long_paths
from hccc.synth.paths.programs import FEW, MOST_CHUNKS, MOST_TRANSFERS, PathProgram
from hccc.synth.paths.relay_paths import Paths, relay_paths


class _ChunkWays(NamedTuple):
    """The ways of all chunks. src, dst: i4[W]; chunk: i8[W]; turn: i8[W] among those of its chunk;
    adds: b1[W] whether it ends in a reduction; near: whether it is one within a domain, first of
    all."""

    src: I4
    dst: I4
    chunk: I8
    turn: I8
    adds: I8
    near: I8


def routed_demand(t: Topology, demand: Demand, seed: int = 0) -> Iterator[PathProgram]:
    """Yields Programs that load the fullest resource little, with different numbers of chunks.

    Raises:
        UserError: E451 a rank is not reached; E452 the program is too large.
    """
    cut = limits_of(t, demand, 0)[0].cut
    if cut is None or cut.capacity <= 0:
        raise fail("E451", "nothing can be routed: a rank is not reached", help="see `hccc bound`")
    if len(demand) > MOST_CHUNKS:
        message = f"the demand has {len(demand):,} blocks"
        raise fail("E451", message, help=f"at most {MOST_CHUNKS:,} are routed")
    table = route_table(t)
    most = Collective.of(demand).most_blocks()
    block = cut.capacity / (table.capacity * most * cut.share)  # load of one, 1 at the bound
    for per in FEW:
        ways = _ways(table.node, demand, per)
        if per > 1 and len(ways.src) > MOST_TRANSFERS:
            return
        far = np.flatnonzero(~ways.near.astype(np.bool_))
        ends = ways.src[far], ways.dst[far]
        paths = _paths(t, table, block / per, *ends, per, seed, bool(demand.sums.any()))
        made = demand_program("Routed", t, demand, per, *_tables(ways, far, paths))
        yield PathProgram(made, per, paths.relayed, paths.load)


def _paths(
    t: Topology,
    table: RouteTable,
    chunk: np.ndarray,
    src: I4,
    dst: I4,
    per: int,
    seed: int,
    sums: bool,
) -> Paths:
    """Returns a path for each way. Raises UserError E451: there is none."""
    if not len(src):
        return Paths(np.full((2, 0), -1, np.int32), 0.0)
    found = relay_paths(table, chunk, src, dst, per, seed)
    if isinstance(found, Paths):
        return found
    longer = None if sums else long_paths(table, chunk, src, dst, seed)
    if longer is None:
        u, v = t.describe(int(src[found])), t.describe(int(dst[found]))
        raise fail("E451", f"two relays are too few from {u} to {v}")
    return longer


def _ways(domain: I4, demand: Demand, per: int) -> _ChunkWays:
    """Returns the ways of all chunks."""
    rows = list[tuple[int, ...]]()
    root = roots(demand, per).reshape(-1, per)
    for block in range(len(demand)):
        has, wants = (np.flatnonzero(x[block]) for x in (demand.has, demand.wants))
        for j in range(per):
            for way in _of_chunk(domain, has, wants, int(root[block, j]), block + j):
                rows.append((*way[:2], block * per + j, *way[2:]))
    columns = np.array(rows, np.int64).reshape(-1, 6).T
    src, dst = columns[:2].astype(np.int32)
    return _ChunkWays(src, dst, *columns[2:])


def _of_chunk(domain: I4, has: I8, wants: I8, root: int, turn: int) -> Iterator[tuple[int, ...]]:
    """Yields (src, dst, number, adds, near) of each way of one chunk. root: -1 of a copy; turn:
    which of the ranks of a domain it takes."""
    number = 0
    if root >= 0:
        leaders = list[int]()
        for d in _rotated(np.unique(domain[has]), turn):
            mine = has[domain[has] == d]
            leader = root if d == domain[root] else int(mine[turn % len(mine)])
            yield from ((int(u), leader, 0, 1, 1) for u in mine if u != leader)
            leaders += [leader] if leader != root else []
        for u, v in pairwise([*leaders, root]):
            yield u, v, number, 1, 0
            number += 1
        has = np.array([root])
    lacks = np.setdiff1d(wants, has)
    last = int(has[turn % len(has)])
    there = {int(d): has[domain[has] == d] for d in np.unique(domain[has])}
    for d in _rotated(np.unique(domain[lacks]), turn):
        mine = lacks[domain[lacks] == d]
        if int(d) not in there:
            first = int(mine[turn % len(mine)])
            yield last, first, number, 0, 0
            number, last, there[int(d)] = number + 1, first, np.array([first])
        for k, v in enumerate(mine[mine != there[int(d)][0]].tolist()):
            yield int(there[int(d)][(turn + k) % len(there[int(d)])]), v, number, 0, 0
            number += 1


def _rotated(values: I8, turn: int) -> I8:
    """Returns the values from another first one on."""
    return np.roll(values, -(turn % max(1, len(values))))


def _tables(ways: _ChunkWays, far: I8, paths: Paths) -> tuple[I8, I8]:
    """Returns the transfers that sum, and those that copy: i8[5, transfers] each."""
    near = np.flatnonzero(ways.near)
    tables = [transfers(ways.src[near], ways.dst[near], 0, ways.chunk[near])]
    tables[0][OP] = int(Op.RRC)
    sums = [np.ones(len(near), np.int64)]
    stops = [*paths.relays, ways.dst[far]]
    at = ways.src[far].copy()
    of_sum = ways.adds[far] > 0
    for hop, stop in enumerate(stops):
        goes = np.flatnonzero(stop >= 0)
        step = 1 + ways.turn[far[goes]] * len(stops) + hop
        table = transfers(at[goes], stop[goes], step, ways.chunk[far[goes]])
        if hop == len(stops) - 1:
            table[OP] = np.where(of_sum[goes], int(Op.RRC), int(Op.RECV))
        tables.append(table)
        sums.append(of_sum[goes].astype(np.int64))
        at[goes] = stop[goes]
    whole, first = np.concatenate(tables, axis=1), np.concatenate(sums) > 0
    parts = whole[:, first], whole[:, ~first]
    return _dense(parts[0]), _dense(parts[1])


def _dense(table: I8) -> I8:
    """Returns the transfers with each chunk's steps counted from 0, in the order that they have."""
    found = table[:, np.lexsort((table[STEP], table[CHUNK]))]
    new = np.ones(found.shape[1], np.int64)
    new[1:] = (np.diff(found[CHUNK]) != 0) | (np.diff(found[STEP]) != 0)
    count = np.cumsum(new)
    first = np.r_[True, np.diff(found[CHUNK]) != 0][: found.shape[1]]
    begin = np.maximum.accumulate(np.where(first, count, 0))
    found[STEP] = count - begin
    return found
