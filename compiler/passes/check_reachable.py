"""check_reachable: checks before scheduling that a Program can run on a Topology."""

from __future__ import annotations

import numpy as np

from hccc.base.diagnostics import Note, fail
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.network.routes import unreachable


def check_reachable(program: Program, topology: Topology | None) -> Program:
    """Returns `program`, if `topology` has its ranks and a route for each transfer. O(transfers).

    Without a topology there is nothing to check: the header's describes just these ranks.

    Raises:
        UserError: E130 for another number of ranks, E131 for a transfer without a route.
    """
    if topology is None:
        return program
    wanted, have = program.collective.n_ranks, topology.n_ranks
    if wanted != have:
        one = have == 1  # no program is for one rank
        gpus, write = ("1 GPU", "") if one else (f"{have} GPUs", f"write it for nRanks={have}, or ")
        lost = f" ({len(topology.failed)} more failed)" if len(topology.failed) else ""
        message = f"the program is for {wanted} ranks, the cluster has {gpus}{lost}"
        span = program.origin.header("nRanks") if program.origin else None
        raise fail("E130", message, span, help=f"{write}another --cluster")
    src, dst = (np.array(program.transfers[k]) for k in ("src", "dst"))
    bad = unreachable(topology, src, dst)
    if len(bad):
        i = int(bad[0])
        u, v = topology.describe(int(src[i])), topology.describe(int(dst[i]))
        more = f", nor for {len(bad) - 1} others" if len(bad) > 1 else ""
        raise fail(
            "E131",
            f"the cluster has no route for {program.describe(i)}{more}",
            program.span(i),
            notes=[Note(f"nothing links {u} and {v} directly, nor by one switch or network")],
            help="send over a rank that both can reach",
        )
    return program
