"""fifo: the largest message that MSCCL's bounded FIFOs carry without a deadlock.

A runtime sends a step of `cnt` chunks as ceil(cnt / a) messages, a = clamp(E / chunk bytes, 1,
71), E being one message's capacity; a connection holds S messages. Growing the chunk splits steps
into more messages, and a thread block that sends k before it receives k hangs when k > S
(msccl-formats §5). The program repeats tile by tile, so one tile decides: if one
tile passes from empty FIFOs, every later one does, because a wait is never undone by progress.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hccc.analysis.clocks import topological
from hccc.analysis.grouping import graph
from hccc.analysis.waits import enforced
from hccc.ir.arrays import I4, I8, Csr, places_among
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Operands

MESSAGE_BYTES = {"Simple": 2 << 20, "LL": 32 << 10, "LL128": 576_000}
MESSAGES = {"Simple": 2, "LL": 8, "LL128": 8}
MAX_CHUNKS = 71


@dataclass(frozen=True, slots=True)
class Fifo:
    """The limits of a runtime's FIFOs. `largest`: bytes of the whole buffer, None without a limit;
    `hangs`: even the smallest message does."""

    largest: int | None
    hangs: bool


def fifo(plan: Plan, protocol: str, chunks_per_loop: int) -> Fifo:
    """Finds the largest message that `protocol`'s FIFOs carry; `plan.sub` numbers the XML's steps.

    O(log 71) times O(primitives log primitives).
    """
    waits = enforced(plan)
    slots = MESSAGES[protocol]
    if passes(plan, waits, 1, slots):
        return Fifo(None, False)
    if not passes(plan, waits, MAX_CHUNKS, slots):
        return Fifo(0, True)
    low, high = 1, MAX_CHUNKS  # fails, passes: more chunks a message only merge messages
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(plan, waits, middle, slots) else (middle, high)
    return Fifo(MESSAGE_BYTES[protocol] // high * chunks_per_loop, False)


def with_enough_slots(plan: Plan) -> Plan:
    """Returns `plan` with the fewest queue slots, a power of two, that its own window needs."""
    waits = enforced(plan)
    longest = int(plan.queues.length.max(initial=1))
    slots = plan.queue_slots
    while slots < longest and not passes(plan, waits, 1, slots):
        slots *= 2
    return replace(plan, queue_slots=slots)


def passes(plan: Plan, waits: Csr, chunks_per_message: int, slots: int) -> bool:
    """Tells whether one tile runs with `slots` messages a connection, of so many chunks each."""
    sent = _messages(plan, plan.dst, chunks_per_message)
    received = _messages(plan, plan.src, chunks_per_message)
    full = sent.queue_row >= slots  # message k waits until k - slots has been taken
    taken = np.searchsorted(received.key, sent.key[full] - slots)
    row = np.concatenate([waits.owner(), sent.first[full], received.first])
    pred = np.concatenate([waits.index, received.last[taken], sent.last])
    apart = row != pred  # rcs takes a message and sends on in one step
    edges = graph(row[apart], pred[apart], len(plan))
    return len(topological(plan.tb_ptr, edges)) == len(plan)


@dataclass(frozen=True, slots=True, eq=False)
class _Messages:
    """Messages sorted by (queue, number), and the first and last primitive of each."""

    key: I8  # queue · 2**32 + number
    queue_row: I8  # number in its queue
    first: I4
    last: I4


def _messages(plan: Plan, operands: Operands, most: int) -> _Messages:
    is_queue = operands.buffer == Buffer.QUEUE
    row, queue = operands.owner()[is_queue], operands.rank[is_queue].astype(np.int64)
    message_index = operands.slot[is_queue]
    order = np.lexsort((message_index, queue))
    row, queue = row[order], queue[order]
    new_step = np.ones(len(row), np.bool_)
    same = (queue[1:] == queue[:-1]) & (plan.sub[row[1:]] == plan.sub[row[:-1]])
    new_step[1:] = ~(same & (np.diff(row) == 1))
    step = np.cumsum(new_step) - 1
    within = places_among(step)
    begins = within % most == 0
    ends = np.append(begins[1:], True)[: len(row)]
    head = queue[begins]
    number = places_among(head)
    return _Messages(head << 32 | number, number, row[begins], row[ends])
