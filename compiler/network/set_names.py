"""set_names: names of a set of ranks, or of a partition of them, on a Topology."""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.ranks import named_runs
from hccc.ir.topology import Level, Topology


def set_name(t: Topology, ranks: I8) -> str:
    """Returns a set's name: `rank 5`, `node2`, `node1..node4, node6`, `leaf1`, `ranks 0..2, 4`, `9
    ranks`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    inside = np.zeros(len(t), np.bool_)
    inside[ranks] = True
    for prefix, of in (("node", t.node), ("leaf", t.domain[Level.LEAF])):
        chosen = np.unique(of[inside])
        if chosen[0] >= 0 and np.isin(of, chosen).sum() == len(ranks):
            return ", ".join(named_runs(prefix, chosen.tolist()))
    text = ", ".join(named_runs("", ranks.tolist(), 0))
    return f"ranks {text}" if len(text) < 30 else f"{len(ranks)} ranks"


def partition_name(t: Topology, label: I8) -> str:
    """Returns a partition's name: `all 8 ranks`, `all 4 nodes`, `all 2 leaves`, `node1, node2, 14
    ranks`."""
    count = int(label.max()) + 1
    kinds = (("ranks", np.arange(len(t))), ("nodes", t.node), ("leaves", t.domain[Level.LEAF]))
    for name, of in kinds:
        pairs = np.unique(np.stack([of, label]), axis=1)
        if pairs.shape[1] == count == len(np.unique(of)):
            return f"all {count} {name}"
    text = ", ".join(set_name(t, np.flatnonzero(label == part)) for part in range(min(count, 9)))
    return text if len(text) < 60 and count < 9 else f"{count} parts of the ranks"
