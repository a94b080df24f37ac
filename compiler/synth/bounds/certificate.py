"""certificate: the tightest bound there is, which synthesized Programs are compared with.

Every Allgather or Reducescatter runs over trees. Where routes between nodes, buses or NICs are
shared, the best trees (`rooted_trees`) take longer than any cut says: with 2 GB/s between two of
three nodes the third node forwards their chunks besides its own.
"""

from __future__ import annotations

from dataclasses import replace

from hccc.ir.collective import OpType
from hccc.ir.topology import Topology
from hccc.synth.bounds.bound import SPREAD, Limits, limits
from hccc.synth.bounds.rooted_trees import RootedTrees, rooted_trees

QUICK = 4_000  # variables: a tenth of a second
INEXACT = 1e-6  # of a rate that a linear program finds


def certificate(t: Topology, op: OpType, root: int = 0) -> Limits:
    """Returns `limits`, tightened by the best trees where those are found at once."""
    found = limits(t, op, root)
    if op not in SPREAD or found.cut is None:
        return found
    return over_trees(found, op, rooted_trees(t, op, float(found.cut.algbw), QUICK))


def over_trees(bound: Limits, op: OpType, best: RootedTrees | None) -> Limits:
    """Returns the bound, tightened to the rate of the best trees."""
    if op not in SPREAD or bound.cut is None or best is None:
        return bound
    if best.algbw >= float(bound.cut.algbw) * (1 - INEXACT):
        return bound
    return replace(bound, trees=best.algbw * (1 + INEXACT))
