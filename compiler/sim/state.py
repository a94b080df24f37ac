"""state: the tables of the engine, as record arrays: one row per object, so that one load gets a
row.

They are kept apart from the code that changes them: `agenda` (ends of actions), `fair` (rates),
`engine` (events).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import I4, I8
from hccc.ir.topology import F8

Table = Any  # a NumPy record array; its fields are in the dtypes below

IDLE, FIXED, MOVING = 0, 1, 2  # the actions of a block
MESSAGE, CREDIT, FLAG = 1, 2, 3  # values of `transfers.TransferKind` with a counter at the peer
SAME_TIME = 1e-10  # events this close (relative, and in µs) happen at once

# A primitive. wait, post, take, give, use, hand: the starts of its rows of these lists (their ends:
# row p + 1); whole: the micro-batches of `amount` bytes, from the first on; one of `amount_last`
# follows, and those after it have none; fixed: µs before bytes move, likewise; cap: the most
# bytes/µs of its block; core: the resource of its core or -1, core_weight: cores per byte/µs;
# memory: the resource of its memory or -1, memory_weight: its load per byte.
PRIMITIVE = np.dtype(
    [
        ("wait", "i8"),
        ("post", "i8"),
        ("take", "i8"),
        ("give", "i8"),
        ("use", "i8"),
        ("hand", "i8"),
        ("whole", "i8"),
        ("fixed", "f8"),
        ("fixed_last", "f8"),
        ("fixed_none", "f8"),
        ("amount", "f8"),
        ("amount_last", "f8"),
        ("cap", "f8"),
        ("core_weight", "f8"),
        ("memory_weight", "f8"),
        ("core", "i4"),
        ("memory", "i4"),
    ],
    align=True,
)
# A thread block. start, stop: its primitives; prim, batch, window: its position; doing: its action;
# waker: the instance that it waited for last (-1), via: by which transfer (-1: memory); other: the
# next block in its line; left: bytes at `since` (µs), cap, rate: the most and the current bytes/µs;
# first, uses: its rows of USE.
BLOCK = np.dtype(
    [
        ("start", "i4"),
        ("stop", "i4"),
        ("prim", "i4"),
        ("batch", "i4"),
        ("window", "i4"),
        ("doing", "i4"),
        ("waker", "i4"),
        ("via", "i4"),
        ("other", "i4"),
        ("uses", "i4"),
        ("left", "f8"),
        ("since", "f8"),
        ("cap", "f8"),
        ("rate", "f8"),
        ("first", "i8"),
    ],
    align=True,
)
# A resource. capacity: bytes/µs; contention: Costs.contention; demand: weight · cap of its flows;
# head: the first of its uses (-1); seen: the stamp of its last visit; binds: whether it held flows
# back when rates were last computed; room, load: capacity not yet given out and weight that still
# grows (`fair`); since: µs, busy since; carried: bytes; active: µs.
RESOURCE = np.dtype(
    [
        ("capacity", "f8"),
        ("contention", "f8"),
        ("demand", "f8"),
        ("head", "i8"),
        ("seen", "i8"),
        ("binds", "i8"),
        ("room", "f8"),
        ("load", "f8"),
        ("since", "f8"),
        ("carried", "f8"),
        ("active", "f8"),
    ],
    align=True,
)
# The use of a resource by a flow. weight; resource, block; next, back: neighbours in its list.
USE = np.dtype(
    [("weight", "f8"), ("resource", "i4"), ("block", "i4"), ("next", "i4"), ("back", "i4")],
    align=True,
)
# The end (µs) of a block's action, in the agenda.
ENTRY = np.dtype([("time", "f8"), ("block", "i4")], align=True)
# A queue: messages sent, being sent, taken, being taken; whether proxies carry them.
QUEUE = np.dtype(
    [("sent", "i4"), ("sending", "i4"), ("taken", "i4"), ("taking", "i4"), ("far", "i4")]
)
INSTANCE = np.dtype(
    [("begin", "f8"), ("ready", "f8"), ("end", "f8"), ("cause", "i4"), ("via", "i4")], align=True
)
# A transfer of every micro-batch: its pair, kind, queue or flag, primitive; whole, amount: as of
# primitives.
TRANSFER = np.dtype(
    [
        ("pair", "i4"),
        ("kind", "i4"),
        ("target", "i4"),
        ("prim", "i4"),
        ("whole", "i8"),
        ("amount", "f8"),
        ("amount_last", "f8"),
    ],
    align=True,
)
# A pair: its first item; the number of items handed over, begun, over, arrived; the start and end
# of its rows of `route`; µs of the way; bytes/µs alone.
PAIR = np.dtype(
    [
        ("first", "i8"),
        ("handed", "i8"),
        ("begun", "i8"),
        ("over", "i8"),
        ("arrived", "i8"),
        ("use", "i8"),
        ("use_end", "i8"),
        ("alpha", "f8"),
        ("cap", "f8"),
    ],
    align=True,
)
# A transfer that was handed over, in order within a pair, with the times (µs) when it was handed
# over, its bytes begin and end, and it arrives.
ITEM = np.dtype(
    [
        ("transfer", "i4"),
        ("batch", "i4"),
        ("handed", "f8"),
        ("begin", "f8"),
        ("end", "f8"),
        ("arrival", "f8"),
    ],
    align=True,
)

# Rows of `lists`: blocks to try; resources that changed; blocks with a new flow; resources and
# blocks of the component being rebalanced; its flows that still grow, and that just stopped; blocks
# due now. HEAP is no row, only an index of `length`: that of the agenda.
TODO, DIRTY, NEW, RESOURCES, BLOCKS, GROWING, STOPPED, DUE, HEAP = range(9)


class State(NamedTuple):
    """The whole state of a run. wait, post: flags; take, give: queues; use, weight: resources of
    primitives; route, route_weight: of pairs; block: those of the plan, then two for each pair
    (`proxy`); flag: micro-batches done; waiting: the first block that waits for each flag, message,
    slot; heap: the agenda; place, seen, fresh: of each block, its entry there (-1), the stamp of
    `fair`'s last visit, and the rate computed then; lists, length: see above; shape: batches,
    window, slots, blocks of the plan; work: the number of rates computed, and the most allowed."""

    primitive: Table
    wait: I4
    post: I4
    take: I4
    give: I4
    use: I4
    weight: F8
    block: Table
    resource: Table
    flow: Table  # rows of USE
    queue: Table
    flag: I4
    waiting: I4
    instance: Table
    heap: Table  # rows of ENTRY
    place: I4
    seen: I8
    fresh: F8
    lists: I4
    length: I4
    shape: I4
    transfer: Table
    pair: Table
    item: Table
    route: I4
    route_weight: F8
    work: I8


def blocks(tb_ptr: NDArray[Any], most_uses: NDArray[Any]) -> Table:
    """Makes thread blocks before their first primitive, then rows of pairs, with room for their
    uses."""
    table, n = np.zeros(len(most_uses), BLOCK), len(tb_ptr) - 1
    table["start"][:n] = table["prim"][:n] = tb_ptr[:-1]
    table["stop"][:n] = tb_ptr[1:]
    table["waker"] = table["via"] = table["other"] = -1
    table["first"] = np.cumsum(most_uses) - most_uses
    return table


def resources(capacity: F8, contention: F8) -> Table:
    """Makes resources without flows."""
    table = np.zeros(len(capacity), RESOURCE)
    table["capacity"], table["contention"] = capacity, contention
    table["head"] = -1
    return table


def flows(most_uses: NDArray[Any]) -> Table:
    """Makes room for flows."""
    table = np.zeros(int(most_uses.sum()), USE)
    table["block"] = np.repeat(np.arange(len(most_uses)), most_uses)
    table["next"] = table["back"] = -1
    return table
