"""certificate: the tightest bound there is, which synthesized Programs are compared with.

Every Allgather or Reducescatter runs over trees, every Alltoall, Gather or Scatter over paths.
Where routes between nodes, buses or NICs are shared, the best of them take longer than any cut
says: with 2 GB/s between two of three nodes the third node forwards their chunks besides its own.
"""

from __future__ import annotations

from dataclasses import replace

from hccc.ir.collective import OpType
from hccc.ir.topology import Topology
from hccc.network.resource_names import leading_kinds
from hccc.synth.bounds import best_paths as paths
from hccc.synth.bounds.best_paths import BestPaths, best_paths
from hccc.synth.bounds.bound import Limits, Optimum, limits
from hccc.synth.bounds.rooted_trees import RootedTrees, rooted_trees

QUICK = 4_000  # variables: a tenth of a second
INEXACT = 1e-6  # of a rate that a linear program finds


def certificate(t: Topology, op: OpType, root: int = 0) -> Limits:
    """Returns `limits`, tightened by the best trees or paths where those are found at once."""
    if op is OpType.ALLREDUCE:  # its best trees are no bound
        return limits(t, op, root)
    return tightened(t, op, root, QUICK)[0]


def tightened(
    t: Topology, op: OpType, root: int = 0, most_variables: int | None = None
) -> tuple[Limits, RootedTrees | BestPaths | None]:
    """Returns `limits`, tightened by the best trees or paths; and these, None where there are none
    or the linear program has more than `most_variables` (`rooted_trees`, `best_paths`)."""
    found = limits(t, op, root)
    if found.cut is None:
        return found, None
    rate = float(found.cut.algbw)
    best: RootedTrees | BestPaths | None
    if op in paths.SOLVED:
        best, over = best_paths(t, op, root, rate, most_variables), "paths"
    else:
        best, over = rooted_trees(t, op, rate, most_variables), "trees"
    if best is None or best.algbw >= rate * (1 - INEXACT) or op is OpType.ALLREDUCE:
        return found, best
    by = leading_kinds(t, best.resource, best.weight)
    return replace(found, optimum=Optimum(over, best.algbw * (1 + INEXACT), by)), best
