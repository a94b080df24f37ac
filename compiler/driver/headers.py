"""headers: what programs' headers say of nodes, beside the cluster that they are compiled for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hccc.base.diagnostics import Problem
from hccc.ir.program import Program
from hccc.ir.topology import Level, Topology

_HELP = "times are the cluster's; make the header say the same, or leave it out there"


def unlike(programs: Sequence[Program], topology: Topology) -> tuple[Problem, ...]:
    """Warns (W405) where a header has other nodes than a cluster whose nodes are all alike.

    What a header leaves out is not told.
    """
    found = dict.fromkeys(text for one in programs for text in _unlike(one, topology))
    return tuple(Problem("W405", text, help=_HELP, severity="warning") for text in found)


def _unlike(program: Program, t: Topology) -> Iterator[str]:
    gpus, nics = program.gpus_per_node, program.nics_per_node
    has = set(np.bincount(t.node).tolist())
    if len(has) == 1 and gpus not in has and says(program, "GPUPerNode"):
        yield f"the header's GPUPerNode={gpus} is ignored: the cluster's nodes have {has.pop()}"
    has = {len(set(t.port[Level.NIC][t.node == node].tolist())) for node in set(t.node.tolist())}
    several = len(set(t.node.tolist())) > 1 and (t.port[Level.NIC] >= 0).all()
    if several and len(has) == 1 and nics not in has and says(program, "NICPerNode"):
        yield f"the header's NICPerNode={nics} is ignored: the cluster's nodes have {has.pop()}"


def says(program: Program, key: str) -> bool:
    """Tells whether a header has GPUPerNode or NICPerNode: not the default, or in its text."""
    n_ranks, gpus, nics = program.collective.n_ranks, program.gpus_per_node, program.nics_per_node
    if (gpus != n_ranks) if key == "GPUPerNode" else (nics != gpus):
        return True
    origin = program.origin
    return origin is not None and origin.header(key) != origin.header("")
