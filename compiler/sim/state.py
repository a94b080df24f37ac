"""state: the tables the engine works on, as record arrays: one row a thing, one load a row.

Kept apart from the code that changes them: `agenda` (what ends when), `fair` (who gets what),
`engine` (what happens).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import I4, I8
from hccc.ir.topology import F8

Table = Any  # a NumPy record array; its fields are in the dtypes below

IDLE, FIXED, MOVING = 0, 1, 2  # what a block does
MESSAGE, CREDIT, FLAG = 1, 2, 3  # of `transfers.Kind`, those that count at the peer
SAME_TIME = 1e-10  # events this close (relative, and in µs) happen at once

# Of a primitive: where its rows of the lists begin (row p + 1: where they end); fixed µs of a whole
# and of the last micro-batch before bytes move; bytes; bytes/µs its block moves at most; the
# resource of its node's cores or -1, and cores per byte/µs; that of its memory or -1, and what it
# loads that by.
PRIMITIVE = np.dtype(
    [
        ("wait", "i8"),
        ("post", "i8"),
        ("take", "i8"),
        ("give", "i8"),
        ("use", "i8"),
        ("hand", "i8"),
        ("fixed", "f8"),
        ("fixed_last", "f8"),
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
# Of a thread block: its primitives; where it is; the instance that let it go (-1), and by which
# transfer (-1: memory); the next that waits for the same; bytes left at `since` (µs), and how fast
# they go; its uses (rows of USE).
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
# Of a resource: bytes/µs; Costs.contention; weight · cap of its flows; the first of its uses (-1);
# when last visited; capacity not given out and weight still growing (`fair`); busy since (µs);
# bytes carried, µs busy.
RESOURCE = np.dtype(
    [
        ("capacity", "f8"),
        ("contention", "f8"),
        ("demand", "f8"),
        ("head", "i8"),
        ("seen", "i8"),
        ("room", "f8"),
        ("load", "f8"),
        ("since", "f8"),
        ("carried", "f8"),
        ("active", "f8"),
    ],
    align=True,
)
# One flow on one resource, and its neighbours in the list of that resource.
USE = np.dtype(
    [("weight", "f8"), ("resource", "i4"), ("block", "i4"), ("next", "i4"), ("back", "i4")],
    align=True,
)
# When a block's action ends (µs).
ENTRY = np.dtype([("time", "f8"), ("block", "i4")], align=True)
# Messages sent, being sent, taken, being taken; whether proxies carry them.
QUEUE = np.dtype(
    [("sent", "i4"), ("sending", "i4"), ("taken", "i4"), ("taking", "i4"), ("far", "i4")]
)
INSTANCE = np.dtype(
    [("begin", "f8"), ("ready", "f8"), ("end", "f8"), ("cause", "i4"), ("via", "i4")], align=True
)
# Of a transfer of every micro-batch: its pair, kind, queue or flag, primitive; bytes of a whole and
# of the last micro-batch.
TRANSFER = np.dtype(
    [
        ("pair", "i4"),
        ("kind", "i4"),
        ("target", "i4"),
        ("prim", "i4"),
        ("amount", "f8"),
        ("amount_last", "f8"),
    ],
    align=True,
)
# Of a pair: its first item; how many were handed over, have begun, are over, have arrived; where
# its rows of `route` begin and end; µs of the way; bytes/µs alone.
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
# What was handed over, in order within a pair, and when (µs): bytes begin and end, it arrives.
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

# Rows of `lists`: blocks to try, resources that changed, blocks with a new flow; the component at
# hand; its flows that still grow, and those that just stopped; blocks due now. The last is no row:
# the agenda's heap, whose length is among those of the others.
TODO, DIRTY, NEW, RESOURCES, BLOCKS, GROWING, STOPPED, DUE, HEAP = range(9)


class State(NamedTuple):
    """Everything. wait, post: flags; take, give: queues; use, weight: resources of primitives;
    route, route_weight: of pairs; block: those of the plan, then two for each pair (`proxy`);
    flag: micro-batches done; waiting: the first block that waits for each flag, message, slot;
    heap: the agenda; place, seen, fresh: of each block, its entry there (-1), when `fair` last
    visited it, and the rate that it then gave it; lists, length: see above; shape: batches, window,
    slots, blocks of the plan; work: how many rates were looked at, and how many may be."""

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
    """Thread blocks before their first primitive, then rows of pairs, with room for their uses."""
    table, n = np.zeros(len(most_uses), BLOCK), len(tb_ptr) - 1
    table["start"][:n] = table["prim"][:n] = tb_ptr[:-1]
    table["stop"][:n] = tb_ptr[1:]
    table["waker"] = table["via"] = table["other"] = -1
    table["first"] = np.cumsum(most_uses) - most_uses
    return table


def resources(capacity: F8, contention: F8) -> Table:
    """Resources that nothing crosses."""
    table = np.zeros(len(capacity), RESOURCE)
    table["capacity"], table["contention"] = capacity, contention
    table["head"] = -1
    return table


def flows(most_uses: NDArray[Any]) -> Table:
    """No flows, but room for them."""
    table = np.zeros(int(most_uses.sum()), USE)
    table["block"] = np.repeat(np.arange(len(most_uses)), most_uses)
    table["next"] = table["back"] = -1
    return table
