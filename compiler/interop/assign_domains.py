"""assign_domains: puts an imported Plan on a cluster, in the cluster's memory domains.

MSCCL's steps only send and receive. Where the cluster has several memory domains, the Plan is
mixed: a queue within one domain stays slots in memory, a queue between two is carried by proxies
(kernel-protocol §1). Operands, order and flags stay, so proofs of one Plan hold for the other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.ir.plan import Plan
from hccc.ir.plan_check import check_ranks
from hccc.ir.primitives import Transport
from hccc.ir.topology import Level, Topology


def assign_domains(plan: Plan, t: Topology) -> Plan:
    """Returns `plan`, which only sends and receives, in the memory domains of `t`, with the GPUs
    and NICs of a node where all nodes are alike. O(ranks).

    Raises:
        UserError E130: the cluster has not as many GPUs as the plan has ranks.
    """
    check_ranks(plan, t)
    domain = t.dense_memory_domain()
    transport = Transport.MIXED if domain.any() else Transport.STAGED
    gpus, nics = _of_each_node(t)
    return replace(
        plan, transport=transport, memory_domain=domain, gpus_per_node=gpus, nics_per_node=nics
    )


def _of_each_node(t: Topology) -> tuple[int, int]:
    """Returns the GPUs and NICs of a node; unlike nodes count as one node with a NIC for each
    GPU."""
    gpus = np.bincount(t.node, minlength=t.n_nodes)
    nic = t.port[Level.NIC]
    used = np.unique(np.stack([t.node, nic])[:, nic >= 0], axis=1)[0]
    nics = np.bincount(used, minlength=t.n_nodes)
    if np.ptp(gpus) or np.ptp(nics):
        return len(t), len(t)
    return int(gpus[0]), int(nics[0]) or int(gpus[0])
