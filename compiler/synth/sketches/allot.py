"""allot: the share of the data that each sketch carries, by a linear program (SyCCL §4.2, t_i).

How often a sketch has each difference of ranks says what it loads. The shares minimise the load of
the busiest resource; of equals, that of all.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]

from hccc.ir.arrays import I8
from hccc.ir.collective import OpType
from hccc.ir.topology import F8
from hccc.synth.sketches.solve import Tree
from hccc.synth.sketches.symmetry import Symmetry

BESIDES = 1e-3  # weight of the loads of all resources beside that of the busiest one
NOTHING = 1e-6  # a share that is none


def counts(tree: Tree, s: Symmetry, op: OpType) -> I8:
    """Returns how often transfers of each difference carry a chunk, of one root: i8[n].

    Reductions go the other way, an Allreduce both ways; a transfer of an Alltoall carries the
    chunks of all ranks below it.
    """
    to = np.flatnonzero(tree.parent >= 0)
    weight = tree.carried()[to] if op is OpType.ALLTOALL else np.ones(len(to), np.int64)
    ends = tree.parent[to], to
    found = np.zeros(len(s), np.int64)
    if op is not OpType.REDUCESCATTER:
        found += np.bincount(s.minus(ends[1], ends[0]), weight, len(s)).astype(np.int64)
    if op in (OpType.REDUCESCATTER, OpType.ALLREDUCE):
        found += np.bincount(s.minus(*ends), weight, len(s)).astype(np.int64)
    return found


def shares(load: F8) -> F8:
    """Returns the shares of sketches that load resources least. load: f8[sketches, kinds]."""
    count, kinds = load.shape
    scale = load.max()
    cost = np.append(BESIDES * load.sum(1) / (scale * kinds), 1.0)
    upper = np.hstack([load.T / scale, -np.ones((kinds, 1))])
    equal = np.append(np.ones(count), 0.0)[None, :]
    found = linprog(cost, A_ub=upper, b_ub=np.zeros(kinds), A_eq=equal, b_eq=[1.0], method="highs")
    share = np.where(found.x[:-1] > NOTHING, found.x[:-1], 0.0)
    fractions: F8 = share / share.sum()
    return fractions


def rounded(share: F8, total: int) -> I8:
    """Divides `total` chunks in the proportions of shares, by largest remainders: i8[sketches]."""
    exact = share * total
    found: I8 = np.floor(exact + NOTHING).astype(np.int64)
    found[np.argsort(found - exact, kind="stable")[: total - int(found.sum())]] += 1
    return found
