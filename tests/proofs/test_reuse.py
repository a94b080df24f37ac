"""reuse: no execution of a plan that is accepted overwrites a packet that is not read yet.

The executions of small plans are all tried: ranks run their launches at any speed, calls are long
(every chunk has data) or short (only the first of a block has).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir.collective import Collective, OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Operands
from hccc.proofs.prove import prove
from hccc.proofs.reuse import reuse
from hccc.testing.grow import grow
from tests.emit import plans
from tests.marks import LONG, slow

LAUNCHES = 3  # the first that a third can overwrite
LL = Options(protocol="ll", prove=False)


def overwrites(plan: Plan) -> bool:
    """Tells whether some execution of a plan with a thread block a rank overwrites an unread
    packet."""
    return any(_overwrites(plan, longs) for longs in product([False, True], repeat=LAUNCHES))


def _overwrites(plan: Plan, longs: tuple[bool, ...]) -> bool:
    steps = [list(_steps(plan, rank, longs)) for rank in range(plan.n_ranks)]
    for at in _states(steps):
        sent, read = _history(steps, at)
        for rank, step in enumerate(at):
            takes, gives = steps[rank][step] if step < len(steps[rank]) else (frozenset(), ())
            for message, epoch in gives if takes <= sent else ():
                before = message, epoch - 2
                if before in sent and before not in read:
                    return True
    return False


def ends_alone(plan: Plan) -> bool:
    """Tells whether some rank may end a short launch that another has not begun."""
    steps = [list(_steps(plan, rank, (False,))) for rank in range(plan.n_ranks)]
    return any(
        0 in at and any(step == len(own) for step, own in zip(at, steps, strict=True))
        for at in _states(steps)
    )


def _states(steps: list[list[Step]]) -> Iterator[tuple[int, ...]]:
    """Yields how many steps each rank has done, in every way that they can come to."""
    start = tuple([0] * len(steps))
    seen, found = {start}, [start]
    while found:
        at = found.pop()
        yield at
        sent, _ = _history(steps, at)
        for rank, step in enumerate(at):
            if step == len(steps[rank]) or not steps[rank][step][0] <= sent:
                continue
            after = (*at[:rank], step + 1, *at[rank + 1 :])
            if after not in seen:
                seen.add(after)
                found.append(after)


Packet = tuple[tuple[int, int], int]  # queue and message, epoch
Step = tuple[frozenset[Packet], frozenset[Packet]]


def _steps(plan: Plan, rank: int, longs: tuple[bool, ...]) -> Iterator[Step]:
    """Yields what each primitive of a rank receives and sends, launch by launch, and greetings."""
    rows = np.flatnonzero(plan.rank_of() == rank)
    others = [r for r in range(plan.n_ranks) if r != rank] if plan.greets else []
    for epoch, long in enumerate(longs):
        yield frozenset(), frozenset(((-1 - rank, r), epoch) for r in others)
        for i in rows.tolist():
            if long or plan.length_index()[i] == 0:
                yield _packets(plan.src, i, epoch), _packets(plan.dst, i, epoch)
        yield frozenset(((-1 - r, rank), epoch) for r in others), frozenset()


def _packets(o: Operands, i: int, epoch: int) -> frozenset[Packet]:
    entries = range(int(o.ptr[i]), int(o.ptr[i + 1]))
    queued = [k for k in entries if o.buffer[k] == Buffer.QUEUE]
    return frozenset(((int(o.rank[k]), int(o.slot[k])), epoch) for k in queued)


def _history(steps: list[list[Step]], at: tuple[int, ...]) -> tuple[set[Packet], set[Packet]]:
    sent: set[Packet] = set()
    read: set[Packet] = set()
    for done, step in zip(steps, at, strict=True):
        for takes, gives in done[:step]:
            read |= takes
            sent |= gives
    return sent, read


def accepted(plan: Plan) -> bool:
    try:
        reuse(plan)
    except UserError as error:
        assert error.problem.code == "E308"
        return False
    return True


def grown(seed: int) -> Plan:
    """Compiles a small random program of a random collective."""
    dice = random.Random(seed)
    op = dice.choice([OpType.ALLREDUCE, OpType.ALLGATHER, OpType.BROADCAST, OpType.REDUCE])
    n = dice.randint(2, 3)
    chunks = n if op is OpType.ALLGATHER else dice.randint(1, 2)
    program = grow(
        Collective(op, n, chunks, 0), lambda most: dice.randint(0, most) if most > 0 else 0
    )
    return driver.compile_program(program, replace(LL, fuse=dice.choice(["none", "auto"]))).plan


@pytest.mark.parametrize("seed", [*range(12), *map(slow, range(12, 150 * LONG))])
def test_accepted_plans_overwrite_nothing(seed: int) -> None:
    """One that is refused may be harmless for other reasons: what it waits for in the third
    launch."""
    plan = grown(seed)
    assert accepted(plan) and not overwrites(plan)
    silent = replace(plan, greets=False)
    assert not (accepted(silent) and overwrites(silent))


def test_both_kinds_are_drawn_and_most_refusals_are_needed() -> None:
    silent = [replace(plan, greets=False) for plan in map(grown, range(12))]
    drawn = [(accepted(plan), overwrites(plan)) for plan in silent]
    assert {(True, False), (False, True)} == set(drawn)


@pytest.mark.parametrize("seed", [*range(12), *map(slow, range(12, 150 * LONG))])
def test_nobody_ends_a_launch_that_another_has_not_begun(seed: int) -> None:
    """Without greetings somebody could, where there are some."""
    plan = grown(seed)
    assert not ends_alone(plan)
    assert ends_alone(replace(plan, greets=False)) == plan.greets


@pytest.mark.slow
def test_more_ranks_than_bits() -> None:
    ring = driver.compile_program(plans.ring_allreduce(70), LL).plan
    assert accepted(ring)
    # In a ring that is open between two ranks nobody hears of who comes after.
    silent = np.isin(ring.dst.rank, np.flatnonzero(ring.queues.src == 69))
    silent &= ring.dst.buffer == Buffer.QUEUE
    assert silent.any()
    with pytest.raises(UserError, match="rank 0 sends packets to rank 1 and never"):
        reuse(_without_messages(ring, silent))


def _without_messages(plan: Plan, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Plan:
    """Returns a plan in which what certain sends bring is of no first chunk."""
    queues = np.unique(plan.dst.rank[which])
    of = np.isin(plan.src.rank, queues) & (plan.src.buffer == Buffer.QUEUE)
    chunk = plan.chunk.copy()
    chunk[plan.src.owner()[of]] = 1
    return replace(plan, chunk=chunk)


def test_proofs_of_one_shot() -> None:
    """It is proved as any plan is, and a term that is left out is told."""
    plan = driver.compile_program(plans.mesh_allreduce(4), LL).plan
    assert [p.name for p in prove(plan)] == ["deadlock", "reuse", "race", "result"]
    sums = np.flatnonzero(plan.src.counts() == 4)
    assert len(sums) == 16
    at = int(plan.src.ptr[sums[0]])
    slot = plan.src.slot.copy()
    memory = int(np.argmax(plan.src.buffer[at : at + 4] != Buffer.QUEUE)) + at
    slot[memory] = (slot[memory] + 1) % 4
    broken = replace(plan, src=replace(plan.src, slot=slot))
    with pytest.raises(UserError) as error:
        prove(broken)
    assert error.value.problem.code == "E306"
