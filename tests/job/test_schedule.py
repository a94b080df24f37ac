"""Schedules of jobs: every collective over any vendor clusters, whatever order lanes come in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.ir.collective import UNEVEN, Collective, OpType
from hccc.ir.job import Job, VendorClusters, vendor_clusters
from hccc.ir.job_order import order
from hccc.ir.uneven import RECEIVE, SEND, BlockTable, scattered
from hccc.runtime.job.schedule import Kind, schedule
from hccc.synth.builtin.hetccl import OPS, hetccl
from hccc.testing.fuzz_jobs import Term, add, wanted
from hccc.testing.job_lanes import World
from hccc.testing.job_reference import clusters


def _inputs(c: Collective, count: int) -> list[list[Term]]:
    return [
        [((rank, i),) for i in range(c.input_blocks(rank) * count)] for rank in range(c.n_ranks)
    ]


def _check(
    job: Job,
    count: int,
    batches: int,
    in_place: bool,
    seed: int,
    lanes: bool,
    by_library: Sequence[bool] = (),
) -> World:
    c = job.collective
    inputs = _inputs(c, count)
    world = World(job, count, batches, in_place, inputs, lanes, by_library)
    world.run(random.Random(seed), add)
    for rank, its in enumerate(world.ranks):
        got: list[Any] = its.buffers[1][:]
        assert got == wanted(c, inputs, rank, count), f"rank {rank}"
        if not in_place:
            assert its.buffers[0] == inputs[rank], f"rank {rank} wrote into its input"
    return world


@settings(max_examples=25, deadline=None)
@given(
    v=clusters(),
    op=st.sampled_from(OPS),
    count=st.integers(0, 23),
    batches=st.sampled_from([1, 2, 4]),
    in_place=st.booleans(),
    lanes=st.booleans(),
    data=st.data(),
)
def test_every_collective(
    v: VendorClusters,
    op: OpType,
    count: int,
    batches: int,
    in_place: bool,
    lanes: bool,
    data: st.DataObject,
) -> None:
    root = data.draw(st.integers(0, v.n_ranks - 1)) if Collective(op, 2, 4).rooted else 0
    seed = data.draw(st.integers(0, 1 << 30))
    _check(hetccl(v, op, root), count, batches, in_place, seed, lanes)


@settings(max_examples=25, deadline=None)
@given(
    v=clusters(),
    op=st.sampled_from([OpType.ALLREDUCE, OpType.REDUCE, OpType.REDUCESCATTER]),
    count=st.integers(0, 23),
    batches=st.sampled_from([1, 3]),
    in_place=st.booleans(),
    lanes=st.booleans(),
    data=st.data(),
)
def test_libraries_that_reduce_at_borders(
    v: VendorClusters,
    op: OpType,
    count: int,
    batches: int,
    in_place: bool,
    lanes: bool,
    data: st.DataObject,
) -> None:
    """What crosses borders is as much as without; their ranks add nothing by themselves."""
    root = data.draw(st.integers(0, v.n_ranks - 1)) if op is OpType.REDUCE else 0
    seed = data.draw(st.integers(0, 1 << 30))
    ask = [len(v.members(k)) > 1 and data.draw(st.booleans()) for k in range(len(v.vendors))]
    job = hetccl(v, op, root)
    world = _check(job, count, batches, in_place, seed, lanes, ask)
    assert world.sent == _check(job, count, batches, in_place, seed, lanes).sent
    for rank, cluster in zip(world.ranks, v.of_ranks().tolist(), strict=True):
        assert not ask[cluster] or Kind.ADD not in rank.plan.tasks["kind"]


def _placed(table: BlockTable, rank: int, which: int, even: list[Any], count: int) -> list[Any]:
    """Returns a rank's buffer of a table, with the beginnings of blocks of `count` elements."""
    made: list[Any] = [None] * int(table.sizes[rank, which])
    for k, (_, first, length) in enumerate(table.spans(rank, which)):
        made[first : first + length] = even[k * count : k * count + length]
    return made


@settings(max_examples=50, deadline=None)
@given(
    v=clusters(),
    op=st.sampled_from(UNEVEN),
    batches=st.sampled_from([1, 3]),
    in_place=st.booleans(),
    lanes=st.booleans(),
    data=st.data(),
)
def test_every_uneven_collective(
    v: VendorClusters,
    op: OpType,
    batches: int,
    in_place: bool,
    lanes: bool,
    data: st.DataObject,
) -> None:
    """Blocks of any lengths, in any order, with gaps between them that nobody touches."""
    root = data.draw(st.integers(0, v.n_ranks - 1)) if Collective(op, 2, 4).rooted else 0
    job = hetccl(v, op, root, uneven=True)
    c, n = job.collective, v.n_ranks
    lengths = np.array(data.draw(st.lists(st.integers(0, 9), min_size=c.blocks, max_size=c.blocks)))
    if in_place and op is OpType.ALLTOALL:  # what swaps places is as long
        lengths = np.maximum(lengths.reshape(n, n), lengths.reshape(n, n).T).reshape(-1)
    seed, count = data.draw(st.integers(0, 1 << 30)), int(lengths.max(initial=0))
    table = scattered(c, lengths, seed)
    even = _inputs(c, count)
    inputs = [_placed(table, r, SEND, even[r], count) for r in range(n)]
    world = World(job, count, batches, in_place, inputs, lanes, blocks=table)
    world.run(random.Random(seed), add)
    for rank, its in enumerate(world.ranks):
        want = _placed(table, rank, RECEIVE, wanted(c, even, rank, count), count)
        got: list[Any] = its.buffers[1][:]
        of_blocks = [k for k, term in enumerate(want) if term is not None]
        assert [got[k] for k in of_blocks] == [want[k] for k in of_blocks], f"rank {rank}"
        if not in_place:
            assert got == want, f"rank {rank} wrote between blocks"
            assert its.buffers[0] == inputs[rank], f"rank {rank} wrote into its input"


def test_blocks_that_are_nearly_equal_are_gathered_by_one_call() -> None:
    """Others by a broadcast each: padding would more than double what is moved."""
    v = vendor_clusters([("a", [0, 1, 2], [0], [1]), ("b", [3], [3], [1])])
    job = hetccl(v, OpType.ALLGATHER, uneven=True)

    def kinds(*lengths: int) -> list[int]:
        table = BlockTable.packed(job.collective, np.array(lengths))
        tasks = schedule(job, 1, max(lengths), 1, False, blocks=table).tasks
        return [t["kind"] for t in tasks if t["kind"] in (Kind.ALL_GATHER, Kind.BROADCAST)]

    from_the_other = [Kind.BROADCAST]
    assert kinds(5, 5, 5, 4) == [Kind.ALL_GATHER, *from_the_other]
    assert kinds(5, 4, 5, 4) == [Kind.ALL_GATHER, *from_the_other]
    assert kinds(9, 1, 1, 4) == [Kind.BROADCAST] * 3 + from_the_other


def test_a_border_is_busy_while_what_goes_back_is_reduced() -> None:
    """A border rank sends the next micro-batch before the sum of the one before, and all ranks'
    order, by which predictions go, is the same."""
    v = vendor_clusters([("a", [0, 1], [0], [1]), ("b", [2, 3], [2], [1])])
    job, batches = hetccl(v, OpType.ALLREDUCE), 4
    tasks = schedule(job, 0, 64, batches, False).tasks
    sent = [int(t["step"]) for t in tasks if t["kind"] == Kind.HOP_SEND]
    out, back = sorted(set(sent))
    assert sent == [out, *[out, back] * (batches - 1), back]
    assert sent == [task.step for task in order(job, batches) if task.step in (out, back)]
