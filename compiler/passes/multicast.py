"""multicast: Pipeline → Primitives, each chunk at once, for ranks behind a switch that reduces.

    tasks   1: x += 0, 2 → 0, 1, 2        primitive   1: x of 0, 1, 2 → x of 0, 1, 2

A *multicast address* stands for one place of all ranks' memory: a load from it gives the sum of
what all hold, a store to it reaches all (NVLS). So whatever the tasks of a chunk are, one primitive
does their work: a sum reads all ranks, what all want is written to all. As AllReduce each rank
moves 1 + 1/n buffers in each direction over its links, where direct puts and gets move 2 - 2/n.

Sources are listed by rank: that is the order in which kernels without the switch add them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.analysis.contributions import CHUNK, DST, columns, completing
from hccc.analysis.grouping import group
from hccc.base.diagnostics import fail
from hccc.ir.arrays import B1, I4, I8, Csr, starts
from hccc.ir.choices import Accumulate, Bits
from hccc.ir.collective import MULTICAST
from hccc.ir.dag import Dag
from hccc.ir.pipeline import Pipeline
from hccc.ir.primitives import Buffer, Operands, Primitives, Transport, no_queues
from hccc.ir.topology import Level, Topology

LEAST_RANKS = 3  # of fewer, each would send what it keeps


class _ChunkOwners(NamedTuple):
    """The chunks in the order of their primitives: i4[n] each. owner: who executes it; at: the
    position of the task in whose place it comes."""

    chunk: I4
    owner: I4
    at: I8


def multicast(
    pipeline: Pipeline, bits: Bits = Bits.SAME, sums: Accumulate = Accumulate.FLOAT32
) -> Primitives:
    """Returns a primitive for each chunk. O(tasks + chunks · ranks).

    bits: whether the switch may add floats, as well as what has the same bits in every order.

    Raises:
        UserError: E324 for a collective or a cluster that a switch is not for.
    """
    dag = pipeline.dag
    _check(dag, bits, sums)
    c, chunks = dag.program.collective, _chunks(pipeline)
    n, owner = len(chunks.chunk), chunks.owner
    ptr, tasks = group(dag.program.transfers["chunk"], c.n_chunks)
    none = np.zeros(c.n_ranks, np.int32)
    return Primitives(
        dag,
        Transport.DIRECT,
        owner,
        chunks.chunk,
        pipeline.sub_of_position()[chunks.at],
        np.full(n, c.reduces, np.uint8),
        np.zeros(n, np.uint8),
        _operands(chunks, Buffer.START, c.n_ranks, everywhere=c.reduces),
        _operands(chunks, Buffer.VALUE, c.n_ranks, everywhere=c.all_want),
        Csr(np.zeros(n + 1, np.int64), np.zeros(0, np.int32)),
        Csr(ptr, tasks).take(chunks.chunk),
        no_queues(),
        none,
        none,
        multicast=bits,
    )


def possible(dag: Dag) -> bool:
    """Tells whether the collective and the cluster of a program are ones that a switch is for."""
    c, t = dag.program.collective, dag.topology
    of_a_kind = c.op in MULTICAST and not c.uneven
    near = len(t) >= LEAST_RANKS and _behind_one_switch(t)
    return of_a_kind and near and bool(_reduced(t).all())


def _behind_one_switch(t: Topology) -> bool:
    """Tells whether all ranks have ports of one switch."""
    ports = t.domain[Level.PORT]
    return bool((ports >= 0).all()) and not np.ptp(ports)


def _reduced(t: Topology) -> B1:
    """Tells which ranks' device has a switch that reduces: b1[n_ranks]."""
    reduced: B1 = np.array([device.nvls for device in t.devices])[t.device]
    return reduced


def _check(dag: Dag, bits: Bits, sums: Accumulate) -> None:
    """Raises UserError E324 for what a switch cannot do."""
    c, t = dag.program.collective, dag.topology
    auto = "leave --transport at auto"
    if c.op not in MULTICAST or c.uneven:
        names = ", ".join(op.value for op in MULTICAST)
        message = f"--transport multicast: {c.name} is not one of {names}"
        raise fail("E324", message, help=auto)
    if len(t) < LEAST_RANKS:
        message = f"--transport multicast: {len(t)} ranks, of which each would send what it keeps"
        raise fail("E324", message, help=auto)
    lacking = np.flatnonzero(~_reduced(t))
    if len(lacking):
        rank = int(lacking[0])
        device = t.devices[t.device[rank]].name
        message = f"--transport multicast: rank {rank}, a {device}, has no switch that reduces"
        help = f"{auto}, or give the --cluster of one with nvls, such as dgx-h100"
        raise fail("E324", message, help=help)
    if not _behind_one_switch(t):
        message = "--transport multicast: no switch of the cluster has ports of all ranks"
        raise fail("E324", message, help=auto)
    if bits is Bits.ANY and c.reduces and sums is not Accumulate.FLOAT32:
        message = f"--bits any: a switch adds in float32, and --accumulate says {sums.value}"
        raise fail("E324", message, help="leave one of the two out")


def _chunks(pipeline: Pipeline) -> _ChunkOwners:
    """Orders the chunks by the tasks that complete their sums, or begin to spread them; gives each
    to the rank of that task, or to the only one that wants the sum."""
    dag = pipeline.dag
    c, table = dag.program.collective, columns(dag.program)[pipeline.order]
    counts = np.arange(len(table))
    if c.reduces:
        counts = np.flatnonzero(completing(dag.program)[pipeline.order])
    chunk, first = np.unique(table[counts, CHUNK], return_index=True)
    at = counts[first]
    if not c.reduces:
        owner = c.source_of(chunk.astype(np.int64))
    elif c.all_want:
        owner = table[at, DST]
    else:
        owner = c.target_of(chunk.astype(np.int64))
    order = np.argsort(at, kind="stable")
    return _ChunkOwners(chunk[order], owner[order].astype(np.int32), at[order])


def _operands(chunks: _ChunkOwners, buffer: Buffer, n_ranks: int, *, everywhere: bool) -> Operands:
    """Returns, of each chunk, the place at every rank, or at its primitive's own."""
    n = len(chunks.chunk)
    rank = np.tile(np.arange(n_ranks, dtype=np.int32), n) if everywhere else chunks.owner
    counts = np.full(n, n_ranks if everywhere else 1)
    slot = np.repeat(chunks.chunk, counts)
    return Operands(starts(counts), rank, np.full(len(rank), buffer, np.uint8), slot)
