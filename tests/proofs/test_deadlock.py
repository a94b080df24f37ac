"""deadlock: exactly the plans that hang are refused; hanging is shown by running them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.ir.arrays import I8, Csr
from hccc.ir.blocks import Blocks
from hccc.ir.collective import Collective, OpType
from hccc.ir.plan import Plan, Posts
from hccc.ir.primitives import Buffer, Guard, Operands, Primitives, Queues, Transport
from hccc.ir.transport import PURE
from hccc.passes.place import place
from hccc.passes.reorder import reorder
from hccc.passes.sync import sync
from hccc.proofs.deadlock import SHOWN, deadlock
from hccc.testing import Hang, Poison, exact_inputs, execute
from tests.passes.textbook import SMALL, lowered, planned, ring_allgather
from tests.sabotage import changed, swapped_rows

Place = tuple[int, Buffer, int]  # rank, buffer, slot
Moves = tuple[list[Place], list[Place]]  # the sources and destinations of a primitive
NONE = np.zeros(0, np.int32)


def code(plan: Plan) -> str:
    with pytest.raises(UserError) as caught:
        deadlock(plan)
    return caught.value.problem.code


def hangs(plan: Plan, micro_batches: int, window: int | None = None) -> bool:
    x = exact_inputs(plan.collective, np.int64, (micro_batches,))
    try:
        execute(plan, x, window=window)
    except Hang:
        return True
    return False


def one_block_a_rank(p: Primitives, order: Sequence[int] | I8, slots: int = 2) -> Plan:
    """Makes a plan of `p` in the given order, then its local copies, with one block a rank."""
    p = place(p)
    order = [*order, *range(len(order), len(p))]
    return sync(Blocks(reorder(p, np.asarray(order)), np.zeros(len(p), np.int32)), "", slots)


def hand_plan(
    blocks: Sequence[Sequence[Moves]],
    n_ranks: int,
    *,
    posts: Sequence[tuple[int, int, int]] = (),
    waits: Sequence[tuple[int, int]] = (),
    queues: Sequence[tuple[int, int, int]] = (),
    slots: int = 1,
    per_rank: list[int] | None = None,
) -> Plan:
    """Makes a Broadcast of chunk 0 from rank 0. blocks: one list of (sources, destinations) a rank.

    posts, waits: (primitive, rank, flag), (primitive, flag). queues: (src, dst, length).
    """
    rows = [p for block in blocks for p in block]
    n = len(rows)

    def operands(side: int) -> Operands:
        ptr = np.concatenate([[0], np.cumsum([len(p[side]) for p in rows])])
        flat = np.array([x for p in rows for x in p[side]]).reshape(-1, 3)
        return Operands(ptr, flat[:, 0], flat[:, 1], flat[:, 2])

    def table(entries: Sequence[tuple[int, ...]]) -> tuple[I8, I8]:
        counts = np.bincount([e[0] for e in entries], minlength=n) if entries else np.zeros(n)
        ordered = np.array(sorted(entries), np.int64).reshape(len(entries), -1 if entries else 3)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), ordered

    post_ptr, post = table(list(posts))
    wait_ptr, wait = table(list(waits))
    q = np.array(queues, np.int32).reshape(-1, 3)
    flags = np.bincount(np.array([p[1] for p in posts], np.int64), minlength=n_ranks)
    zero, no_slots = np.zeros(n, np.int32), np.zeros(n_ranks, np.int32)
    queue_flag = 2 * np.arange(len(q)) + 100  # no post raises these
    return Plan(
        "hand",
        "",
        Collective(OpType.BROADCAST, n_ranks, 1),
        1,
        16,
        n_ranks,
        n_ranks,
        Transport.STAGED if len(q) else Transport.DIRECT,
        no_slots,
        slots,
        np.array(per_rank or [1] * n_ranks),
        np.cumsum([0, *map(len, blocks)]),
        zero,
        zero,
        zero,
        zero,
        zero,
        operands(0),
        operands(1),
        Csr(wait_ptr, wait[:, 1] if len(wait) else NONE),
        Posts(post_ptr, *(post[:, 1:].T if len(post) else (NONE, NONE))),
        flags,
        no_slots,
        no_slots,
        Queues(q[:, 0], q[:, 1], q[:, 2], queue_flag, queue_flag + 1),
    )


IN, OUT, QUEUE = Buffer.INPUT, Buffer.OUTPUT, Buffer.QUEUE


def test_direct_planted_cycle() -> None:
    """Rank 0 puts twice, each put waiting for the other rank's, in opposite orders."""
    put = ([(0, IN, 0)], [(1, OUT, 0)])
    back = ([(1, OUT, 0)], [(0, OUT, 0)])
    good = hand_plan([[put], [back]], 2, posts=[(0, 1, 0)], waits=[(1, 0)])
    deadlock(good)
    assert not hangs(good, 3)
    both = [(0, 1, 0), (1, 0, 0)]
    cyclic = hand_plan([[put], [back]], 2, posts=both, waits=[(1, 0), (0, 0)])
    assert code(cyclic) == "E302"
    assert hangs(cyclic, 1)


def test_the_message_names_the_circle() -> None:
    put = ([(0, IN, 0)], [(1, OUT, 0)])
    back = ([(1, OUT, 0)], [(0, OUT, 0)])
    both = [(0, 1, 0), (1, 0, 0)]
    cyclic = hand_plan([[put], [back]], 2, posts=both, waits=[(1, 0), (0, 0)])
    with pytest.raises(UserError, match=r"rank 0 block 0 .* waits for rank 1 block 0"):
        deadlock(cyclic)


def test_what_a_proof_has_seen() -> None:
    plan = one_block_a_rank(lowered(ring_allgather(5), Transport.DIRECT), range(0))
    assert deadlock(plan).detail == {
        "primitives": len(plan),
        "thread blocks per channel": 5,
        "waits": len(plan.waits.index),
    }


@pytest.mark.parametrize("n", [2, 6, 9])
def test_every_wait_of_the_message_is_one(n: int) -> None:
    """Rank r waits for rank r - 1; of a large circle some ranks in a row are only counted."""
    blocks = [[([(r, IN, 0)], [((r + 1) % n, OUT, 0)])] for r in range(n)]
    posts, waits = [(r, (r + 1) % n, 0) for r in range(n)], [(r, 0) for r in range(n)]
    with pytest.raises(UserError) as caught:
        deadlock(hand_plan(blocks, n, posts=posts, waits=waits))
    circle = caught.value.problem.message.partition(": ")[2].split(" waits for ")
    more = [text for text in circle if "more" in text]
    assert more == ([f"{n - SHOWN} more, of which the last"] if n > SHOWN else [])
    ranks = [int(text.split()[1]) for text in circle if "more" not in text]
    assert ranks[0] == ranks[-1] and len(set(ranks)) == min(n, SHOWN)
    assert all(b == (a - 1) % n for a, b in pairwise(ranks[:-1]))


def test_a_flag_that_nothing_raises_or_two_raise() -> None:
    put = ([(0, IN, 0)], [(1, OUT, 0)])
    back = ([(1, OUT, 0)], [(0, OUT, 0)])
    idle = hand_plan([[put], [back]], 2, posts=[(0, 1, 0)], waits=[(1, 0)])
    lonely = replace(idle, posts=Posts(np.zeros(3, np.int64), NONE, NONE))
    assert code(lonely) == "E301"
    assert hangs(lonely, 1)
    twice = hand_plan([[put], [back]], 2, posts=[(0, 1, 0), (1, 1, 0)], waits=[(1, 0)])
    assert code(twice) == "E301"


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_staged_ring_send_first_in_one_block(slots: int) -> None:
    """Rank by rank "send, then receive": D ∪ P has no cycle, the contracted graph has one.

    It runs while the micro-batches fit the slots and hangs at slots · J + 1 at the latest, J
    being the length of the circle (kernel-protocol §5).
    """
    p = lowered(ring_allgather(4), Transport.STAGED)
    send_first = sorted(range(len(p)), key=lambda i: (i // 2 // 4, i % 2, i))
    plan = one_block_a_rank(p, send_first, slots)
    assert code(plan) == "E303"
    assert not hangs(plan, slots)
    assert hangs(plan, slots * 4 * 3 + 1)


def test_staged_ring_in_one_global_order() -> None:
    """The same blocks in HPDS order never hang, whatever the slots."""
    p = lowered(ring_allgather(4), Transport.STAGED)
    plan = one_block_a_rank(p, np.arange(len(p)), slots=1)
    deadlock(plan)
    for micro_batches in (1, 5, 20):
        assert not hangs(plan, micro_batches)


def test_staged_receive_first_in_one_block() -> None:
    """Every rank waits before any rank sends."""
    blocks = [
        [([(1, QUEUE, 0)], [(0, OUT, 0)]), ([(0, IN, 0)], [(0, QUEUE, 0)])],
        [([(0, QUEUE, 0)], [(1, OUT, 0)]), ([(1, OUT, 0)], [(1, QUEUE, 0)])],
    ]
    plan = hand_plan(blocks, 2, queues=[(0, 1, 1), (1, 0, 1)])
    assert code(plan) == "E302"
    assert hangs(plan, 1)


def test_a_primitive_takes_one_message_of_a_queue() -> None:
    sends = [([(0, IN, 0)], [(0, QUEUE, k)]) for k in (0, 1)]
    each = [([(0, QUEUE, k)], [(1, OUT, 0)]) for k in (0, 1)]
    both = [([(0, QUEUE, 0), (0, QUEUE, 1)], [(1, OUT, 0)])]
    deadlock(hand_plan([sends, each], 2, queues=[(0, 1, 2)], slots=2))
    with pytest.raises(UserError, match=r"E303.*serves its queue out of order"):
        deadlock(hand_plan([sends, both], 2, queues=[(0, 1, 2)], slots=2))


def forwarded(slots: int) -> Plan:
    """Makes a plan: rank 0 sends; rank 1 takes, keeps and sends in one primitive; rank 0 takes."""
    blocks = [
        [([(0, IN, 0)], [(0, QUEUE, 0)]), ([(1, QUEUE, 0)], [(0, OUT, 0)])],
        [([(0, QUEUE, 0)], [(1, OUT, 0), (1, QUEUE, 0)])],
    ]
    return hand_plan(blocks, 2, queues=[(0, 1, 1), (1, 0, 1)], slots=slots)


@pytest.mark.parametrize("slots", [1, 2])
def test_staged_a_circle_through_a_fused_primitive(slots: int) -> None:
    """The three are one task: its sender must not also be its last receiver, in one block."""
    plan = forwarded(slots)
    assert not hangs(plan, slots)
    assert hangs(plan, 2 * slots + 2)
    assert code(plan) == "E303"


def test_staged_a_chain_through_fused_primitives_is_sound() -> None:
    blocks = [
        [([(0, IN, 0)], [(0, QUEUE, 0), (0, OUT, 0)])],
        [([(0, QUEUE, 0)], [(1, OUT, 0), (1, QUEUE, 0)])],
        [([(1, QUEUE, 0)], [(2, OUT, 0)])],
    ]
    plan = hand_plan(blocks, 3, queues=[(0, 1, 1), (1, 2, 1)])
    deadlock(plan)
    assert not hangs(plan, 9)


def test_staged_a_queue_served_out_of_turn() -> None:
    plan = planned(lowered(SMALL["ring allgather"], Transport.STAGED))
    takes = np.flatnonzero(plan.src.buffer == Buffer.QUEUE)
    a, b = takes[:2]
    assert plan.src.rank[a] == plan.src.rank[b]
    slots = {"slot": [plan.src.slot[b], plan.src.slot[a]]}
    wrong = replace(plan, src=changed(plan.src, [a, b], **slots))
    assert code(wrong) == "E303"


def test_staged_messages_nobody_takes() -> None:
    plan = planned(lowered(SMALL["ring allgather"], Transport.STAGED))
    takes = np.flatnonzero(plan.src.buffer == Buffer.QUEUE)
    lost = replace(plan, src=changed(plan.src, takes[0], slot=plan.src.slot[takes[1]]))
    assert code(lost) == "E301"


@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", ["ring allreduce", "hm allreduce", "broadcast"])
def test_random_block_orders(name: str, transport: Transport) -> None:
    """Any order within blocks: plans that the proof passes never hang, refused ones (E302) do."""
    p = lowered(SMALL[name], transport)
    plan = sync(Blocks(place(p), np.zeros(len(place(p)), np.int32)), "", 1)
    rng = np.random.default_rng(0)
    verdicts = set()
    for _ in range(60):
        b = int(rng.integers(len(plan.tb_ptr) - 1))
        i, j = rng.integers(plan.tb_ptr[b], plan.tb_ptr[b + 1], 2)
        mutant = swapped_rows(plan, int(i), int(j))
        try:
            deadlock(mutant)
        except UserError as error:
            verdicts.add(error.problem.code)
            if transport is Transport.DIRECT:
                assert stuck(mutant, 1)  # (a queue hands over the wrong message instead)
            continue
        verdicts.add("fine")
        for micro_batches in (1, 2, 7):
            assert not stuck(mutant, micro_batches)
    assert "fine" in verdicts
    assert len(verdicts) > 1 or (name, transport) == ("broadcast", Transport.DIRECT)


def stuck(plan: Plan, micro_batches: int) -> bool:
    """Tells whether a plan hangs. Direct plans move no data here; staged ones must, for queues."""
    x = exact_inputs(plan.collective, np.int64, (micro_batches,))
    if plan.transport is Transport.DIRECT:
        plan = replace(plan, guard=np.full(len(plan), Guard.IN_PLACE))
    try:
        execute(plan, x)
    except Hang:
        return True
    except Poison:
        return False
    return False
