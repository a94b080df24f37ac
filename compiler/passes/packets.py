"""packets: staged Primitives → protocol LL, whose messages are packets with flags in them.

A message needs no counter and no free slot: it has a packet slot of its own at the receiver, of two
parities (`proofs/reuse` shows that this is enough), so a send never waits. Data of a rank's own
goes out before it waits for others': primitives are sorted by the number of ranks that their data
has passed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.base.diagnostics import fail
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.choices import PlanProtocol
from hccc.ir.dag import Dag
from hccc.ir.primitives import Primitives
from hccc.ir.transport import Transport
from hccc.passes.reorder import reorder


def packets(p: Primitives, transport: Transport = Transport.AUTO) -> Primitives:
    """Returns staged primitives in protocol LL. O(primitives + dependencies), and a sort.

    transport: as it was asked for; direct states that all ranks share one memory.

    Raises:
        UserError: E323 for what LL cannot do.
    """
    if wrong := refusal(p.dag, transport):
        message, help = wrong
        raise fail("E323", message, help=help)
    order = np.argsort(_hops(p.owner, p.deps.ptr, p.deps.index), kind="stable")
    return replace(reorder(p, order.astype(np.int32)), protocol=PlanProtocol.LL)


def refusal(dag: Dag, transport: Transport) -> tuple[str, str] | None:
    """Returns why LL cannot run the tasks, and what helps; None if it can."""
    if transport is Transport.STAGED:
        message = "--transport staged: its queues are not those of --protocol ll, which has packets"
        return message, "leave one of the two out"
    if transport is Transport.MULTICAST:
        message = "--transport multicast: a switch stores data, and no packets"
        return message, "leave one of the two out"
    if transport is not Transport.DIRECT and np.ptp(dag.topology.memory_domain):
        message = "--protocol ll: ranks of several memory domains, between which LL does not send"
        return message, "--transport direct, if all ranks share one memory; else --protocol simple"
    c = dag.program.collective
    if c.uneven:
        message = f"--protocol ll: {c.name} has blocks of many lengths"
        return message, "leave --protocol at simple"
    return None


@njit
def _hops(owner: I4, ptr: I8, pred: I4) -> I4:
    """Returns the most ranks that each primitive waits for, one after the other: i4[n]."""
    hops = np.zeros(len(owner), np.int32)
    for i in range(len(owner)):
        for k in range(ptr[i], ptr[i + 1]):
            hops[i] = max(hops[i], hops[pred[k]] + (owner[pred[k]] != owner[i]))
    return hops
