"""allocate: few blocks, never slower by the estimate, always one common order."""

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hccc.analysis.connections import connections
from hccc.analysis.estimate import estimate
from hccc.base.diagnostics import Source
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir.arrays import I4, I8
from hccc.ir.blocks import Blocks
from hccc.ir.choices import Fusion
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Guard, Primitives, Transport
from hccc.ir.program import Program
from hccc.ir.transport import PURE
from hccc.lang.cluster.load import parse as parse_cluster
from hccc.lang.transfer.load import parse
from hccc.passes import allocate as allocate_module
from hccc.passes.allocate import SLACK, allocate
from hccc.passes.depend import depend
from hccc.passes.fuse import fuse
from hccc.passes.hpds import hpds
from hccc.passes.list_schedule import list_schedule
from hccc.passes.lower import lower
from hccc.passes.place import place
from hccc.passes.sync import sync
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate
from hccc.synth.builtin.hierarchical import hierarchical
from hccc.testing.clusters import cluster
from tests.passes.textbook import (
    RRC,
    SMALL,
    SWEEP,
    few,
    hm_allgather,
    hm_allreduce,
    lowered,
    planned,
    program,
    ring_allgather,
    ring_reducescatter,
    verdict,
    works,
)
from tests.sabotage import permuted, swapped_rows

RAILS = """define node1 = 12 * 4
define network = InfiniBand
define device = H800
define bandwidth = {port => [((0..3) -> 180)]}
define nic = [((0) -> 50), ((1) -> 50), ((2) -> 50), ((3) -> 50)]
define rail = [(0), (1), (2), (3)]
"""
TABLE_3 = [(2, 4, 8), (2, 8, 16), (4, 4, 8), (4, 8, 16)]  # ResCCL Table 3: nodes, GPUs, blocks
MSCCL = [(2, 4, 14), (2, 8, 30), (4, 4, 14), (4, 8, 30)]


def placed(p: Program, transport: Transport = Transport.DIRECT, level: str = "none") -> Primitives:
    return place(fuse(lowered(p, transport), level))


def blocks_per_rank(p: Primitives, blocks: Blocks) -> I8:
    return np.array([len(set(blocks.tb[p.owner == r].tolist())) for r in np.unique(p.owner)])


def makespan(p: Primitives, blocks: Blocks) -> float:
    """Returns the estimated makespan with blocks numbered over all ranks."""
    return estimate(p, (p.owner * (blocks.tb.max() + 1) + blocks.tb).astype(np.int32)).makespan


@pytest.mark.parametrize("level", [*Fusion, "auto"])
@pytest.mark.parametrize("make", [hm_allreduce, hm_allgather])
@pytest.mark.parametrize(("nodes", "gpus", "most"), TABLE_3)
def test_no_more_blocks_than_table_3(
    nodes: int, gpus: int, most: int, make: Callable[[int, int], Program], level: str
) -> None:
    p = placed(make(nodes, gpus), level=level)
    assert blocks_per_rank(p, allocate(p)).max() <= most


@pytest.mark.parametrize("make", [hm_allreduce, hm_allgather])
@pytest.mark.parametrize(("nodes", "gpus", "count"), MSCCL)
def test_a_block_for_each_connection_and_stage_is_what_msccl_has(
    nodes: int, gpus: int, count: int, make: Callable[[int, int], Program]
) -> None:
    p = placed(make(nodes, gpus), Transport.STAGED)
    blocks = allocate(p, "stage")
    assert (blocks_per_rank(p, blocks) == count).all()
    assert (blocks_per_rank(p, allocate(p, "connection")) < count).all()


@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", SMALL)
def test_stages_work_in_blocks_and_queues_of_their_own(name: str, transport: Transport) -> None:
    plan = planned(lowered(SMALL[name], transport), "stage", 1)
    assert verdict(plan) is None
    assert works(plan, micro_batches=3)


@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("p", [*SMALL.values(), hm_allreduce(2, 4), hm_allgather(2, 4)])
def test_state_based_needs_no_more_blocks_and_no_more_time(
    p: Program, transport: Transport
) -> None:
    n = placed(p, transport)
    apart, merged = allocate(n, "connection"), allocate(n, "state")
    own = np.unique(n.owner[n.guard == Guard.OUT_OF_PLACE])  # copies to the own output
    most = blocks_per_rank(n, apart) + np.isin(np.unique(n.owner), own)
    assert (blocks_per_rank(n, merged) <= most).all()
    assert makespan(n, merged) <= SLACK * makespan(n, apart)


def test_connections_that_take_turns_share_a_block() -> None:
    """Between nodes the allreduce's reductions are over when its results go round."""
    p = placed(hm_allreduce(4, 4), level="full")
    merged = blocks_per_rank(p, allocate(p, "state"))
    assert merged.sum() < blocks_per_rank(p, allocate(p, "connection")).sum()


Intervals = list[tuple[int, int]]


def idle(c: Intervals, o: Intervals, touch: float) -> bool:
    return all(end <= s + touch or e <= begin + touch for begin, end in c for s, e in o)


def check_first_fit(drawn: list[list[list[int]]], touch: float) -> None:
    """Checks `_merge` against a search of every block. drawn: each rank's connections, each the
    gaps before its intervals and the lengths of these in turn."""
    ranks: list[list[Intervals]] = []
    for gaps in drawn:
        ranks.append([])
        for cuts in gaps:
            times = np.cumsum([1, *cuts, *([1] if len(cuts) % 2 == 0 else [])]).tolist()
            ranks[-1].append(list(zip(times[::2], times[1::2], strict=True)))
    every = [c for connected in ranks for c in connected]
    rank = np.repeat(np.arange(len(ranks), dtype=np.int32), [len(r) for r in ranks])
    ptr = np.concatenate([[0], np.cumsum([len(c) for c in every])]).astype(np.int64)
    flat = np.array([i for c in every for i in c], np.float64).reshape(-1, 2)
    rows = np.arange(len(flat), dtype=np.int32)[::-1].copy()  # a row's number says nothing
    start, end = flat[rows, 0].copy(), flat[rows, 1].copy()
    found = allocate_module._merge(rank, ptr, rows, start, end, touch).tolist()
    wanted: list[int] = []
    for connected in ranks:
        blocks: list[list[Intervals]] = []
        base = len(wanted)
        for c in connected:
            fits = (b for b, held in enumerate(blocks) if all(idle(c, o, touch) for o in held))
            b = next(fits, len(blocks))
            blocks[b:] = [[*(blocks[b] if b < len(blocks) else []), c], *blocks[b + 1 :]]
            wanted.append(base + b)
    assert found == wanted


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=24), max_size=3),
    st.sampled_from([0.0, 1.0, 2.5]),
)
def test_connections_join_the_first_block_that_is_idle(
    drawn: list[list[list[int]]], touch: float
) -> None:
    check_first_fit(drawn, touch)


@pytest.mark.parametrize("seed", range(3))
def test_many_blocks_are_passed_over_and_none_that_is_idle(seed: int) -> None:
    """Three times as many connections at once as blocks that are passed over together."""
    rng = np.random.default_rng(seed)
    many = [[5, 9]] * allocate_module.SKIP + rng.integers(3, 12, (128, 2)).tolist()
    check_first_fit([[[1, 3], [9, 2]], [*many, *rng.permutation(many).tolist()]], 0.0)


def test_a_merge_that_lengthens_the_estimate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made to merge everything, it takes the connections after all."""

    def everything(
        rank: I4,
        ptr: I8,
        rows: I4,
        start: NDArray[np.float64],
        end: NDArray[np.float64],
        touch: float,
    ) -> I4:
        return np.searchsorted(rank, rank).astype(np.int32)

    p = placed(ring_reducescatter(4), Transport.STAGED)
    monkeypatch.setattr(allocate_module, "_merge", everything)
    assert (blocks_per_rank(p, allocate(p, "state")) == 2).all()
    monkeypatch.setattr(allocate_module, "SLACK", 1e9)
    slow = allocate(p, "state")
    assert (blocks_per_rank(p, slow) == 1).all()
    assert makespan(p, slow) > 2 * makespan(p, allocate(p, "connection"))


DIRECT_ALLGATHER = """ResCCLAlgo(nRanks=4, nChannels={}, OpType="Allgather", GPUPerNode=4):
    for r in range(4):
        for s in range(1, 4):
            transfer(r, (r + s) % 4, s - 1, r, recv)
"""


@pytest.mark.parametrize(("channels", "blocks"), [(1, 4), (4, 4), (16, 2)])
def test_copies_to_the_own_output_do_not_keep_links_waiting(channels: int, blocks: int) -> None:
    """Four linked GPUs of 25 GB/s a link: puts and copies are over at once, by blocks of 6.25 GB/s.

    16 channels put to all peers at once, in one block each."""
    t = cluster("define node1 = 4\ndefine bandwidth = {mesh => [((0..3) -> 25)]}")
    program = parse(Source("direct.rccl", DIRECT_ALLGATHER.format(channels)))
    plan = compile_program(program, Options(prove=False, tune="off"), t).plan
    run = simulate(prepare(plan, t), Request(1 << 30, 1 << 22))
    assert (plan.n_tb == blocks).all()
    rate = min(25.0, 6.25 * channels)
    assert run.time == pytest.approx((1 << 28) / rate / 1000, rel=0.01)
    in_place = simulate(prepare(plan, t), Request(1 << 30, 1 << 22, in_place=True))
    assert run.time == pytest.approx(in_place.time, rel=1e-3)


def test_copies_join_a_block_where_another_channel_gains_more() -> None:
    """A ring's put is busy all the time: twice the blocks would gain an eighth."""
    t = cluster("define node1 = 8\ndefine bandwidth = {port => [((0..7) -> 300)]}")
    plan = compile_program(ring_allgather(8), Options(prove=False), t).plan
    assert (plan.n_tb == 1).all()


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", SMALL)
def test_any_number_of_blocks_works(name: str, transport: Transport, most: int) -> None:
    p = placed(SMALL[name], transport)
    blocks = allocate(p, "state", most)
    assert blocks_per_rank(p, blocks).max() <= most
    plan = sync(blocks, "", 1)
    assert verdict(plan) is None
    assert works(plan, micro_batches=3, seeds=2)


def test_fewer_blocks_than_connections_make_no_rank_late() -> None:
    """On rails a rank sends to eleven others, the next node's first. Peers that come last share
    blocks, and have another number at each rank."""
    t = parse_cluster(Source("rails.cluster", RAILS))
    dag = depend(hierarchical(t, OpType.ALLTOALL), t)
    p = place(lower(list_schedule(dag), Transport.AUTO, "put"))
    took = []
    for most in (None, 13, 11):
        plan = sync(allocate(p, "connection", most), "", 1)
        took.append(simulate(prepare(plan, t), Request(1 << 28)).time)
    assert max(took) < 1.02 * took[0]


def test_what_the_network_brings_is_on_its_senders_connection() -> None:
    """Ranks 1 and 2 put what rank 0 adds: nothing is done elsewhere, and yet by two blocks."""
    reduce = program(OpType.REDUCE, 3, 1, [(1, 0, 0, 0, RRC), (2, 0, 1, 0, RRC)], gpus=1)
    p = lower(hpds(depend(reduce)), Transport.AUTO, "put")
    adds = np.flatnonzero((p.owner == 0) & (p.src.counts() > 1))
    assert len(adds) == 2
    assert len(set(connections(p).of[adds].tolist())) == 2


def test_blocks_are_numbered_from_zero_without_gaps() -> None:
    p = placed(hm_allreduce(2, 4))
    for most in (None, 3):
        blocks = allocate(p, "state", most)
        for r in range(8):
            used = np.unique(blocks.tb[p.owner == r])
            assert used.tolist() == list(range(len(used)))


def swaps(plan: Plan) -> Iterator[tuple[int, int]]:
    """Yields all pairs of primitives of one block."""
    for b in range(len(plan.tb_ptr) - 1):
        yield from combinations(range(int(plan.tb_ptr[b]), int(plan.tb_ptr[b + 1])), 2)


@SWEEP
@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", ["ring allreduce", "hm allreduce", "broadcast", "alltoall"])
def test_no_broken_block_order_survives(name: str, transport: Transport, most: int) -> None:
    """Any two primitives of a block exchanged: refused, or right all the same."""
    plan = sync(allocate(placed(SMALL[name], transport), "state", 1), "", 1)
    faults = few(swaps(plan), most)
    refused = 0
    for i, j in faults:
        mutant = swapped_rows(plan, i, j)
        if verdict(mutant) is None:
            assert works(mutant, micro_batches=5, seeds=6), (i, j)
        else:
            refused += 1
    assert (
        refused > len(faults) // 10 or name == "broadcast"
    )  # its puts have few orders that matter


def test_a_reversed_block_deadlocks() -> None:
    plan = sync(allocate(placed(SMALL["ring allreduce"]), "state", 1))
    order = np.arange(len(plan))
    first, last = int(plan.tb_ptr[0]), int(plan.tb_ptr[1])
    order[first:last] = order[first:last][::-1]
    assert verdict(permuted(plan, order)) == "E302"


def test_connection_based_blocks_have_one_set_of_peers() -> None:
    p = placed(hm_allreduce(2, 2))
    found = connections(p)
    for c in range(len(found.rank)):
        rows = np.flatnonzero(found.of == c)
        peers = {frozenset(p.src.rank[p.src.ptr[i] : p.src.ptr[i + 1]].tolist()) for i in rows} | {
            frozenset(p.dst.rank[p.dst.ptr[i] : p.dst.ptr[i + 1]].tolist()) for i in rows
        }
        assert len(peers) <= 2
        assert len(set(p.owner[rows].tolist())) == 1


def test_planned_uses_what_is_asked() -> None:
    assert planned(lowered(hm_allreduce(2, 4)), "state").n_tb.max() <= 8


def test_what_a_put_reads_is_copied_by_its_own_block() -> None:
    """A direct Alltoall in place saves the data it overwrites in parallel, as it is sent."""
    p = placed(
        parse(
            Source(
                "alltoall.rccl",
                'ResCCLAlgo(nRanks=4, OpType="Alltoall", nChunks=16, GPUPerNode=4):\n'
                "    for i in range(4):\n        for s in range(3):\n"
                "            transfer(i, (i + s + 1) % 4, s, 4 * i + (i + s + 1) % 4, recv)\n",
            )
        )
    )
    of = connections(p).of
    saves = np.flatnonzero(p.guard == Guard.IN_PLACE)
    assert len(saves) == 12
    for save in saves.tolist():
        after = p.deps.owner()[p.deps.index == save]
        mine = after[(p.owner[after] == p.owner[save]) & (p.guard[after] == Guard.ALWAYS)]
        assert (of[mine] == of[save]).all()
    assert len(np.unique(of[saves])) == 12
