"""part: the Topology of some ranks of another, as a library sees it that serves only these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.ir.arrays import B1, I8, Csr
from hccc.ir.topology import Level, Rates, Topology


def part_of(t: Topology, ranks: I8) -> Topology:
    """Returns the Topology of `ranks`, numbered anew in their old order. Nodes without one are
    left out; groups that nobody uses stay, but for switches and limits. O(size of `t`)."""
    stays = np.zeros(len(t), np.bool_)
    stays[ranks] = True
    number = np.cumsum(stays) - 1
    nodes, node = np.unique(t.node[stays], return_inverse=True)
    used, device = np.unique(t.device[stays], return_inverse=True)
    linked = stays[t.link_src] & stays[t.link_dst]
    first = t.first_switch
    a, b = (_filled(side, stays) for side in (t.side_a, t.side_b))
    kept = a & b & (t.level[first:] == Level.SWITCH)
    groups = np.concatenate([np.ones(first, np.bool_), kept])
    domain = t.memory_domain[stays]
    leader = node[np.unique(domain, return_index=True)[1]]
    return replace(
        t,
        node=node,
        local=t.local[stays],
        devices=tuple(t.devices[k] for k in used),
        device=device,
        node_size=t.node_size[nodes],
        failed=np.zeros((0, 2), np.int32),
        link_src=number[t.link_src[linked]],
        link_dst=number[t.link_dst[linked]],
        links=_rows(t.links, linked),
        mesh=t.mesh[stays],
        level=t.level[groups],
        shared=_rows(t.shared, groups),
        port=t.port[:, stays],
        domain=t.domain[:, stays],
        memory_domain=leader[np.unique(domain, return_inverse=True)[1]],
        side_a=_side(t.side_a, kept, stays, number),
        side_b=_side(t.side_b, kept, stays, number),
        cores=t.cores[nodes],
        launch=t.launch[nodes],
        network=t.network[nodes],
        vendor_cluster=np.zeros(0, np.int32),
        border=np.zeros(0, np.int32),
    )


def _filled(side: Csr, stays: B1) -> B1:
    """Tells which groups have a rank that stays at this side."""
    found: B1 = np.bincount(side.owner()[stays[side.index]], minlength=len(side)) > 0
    return found


def _rows(rates: Rates, rows: B1) -> Rates:
    return Rates(rates.bandwidth[rows], rates.parallel[rows], rates.alpha[rows])


def _side(side: Csr, kept: B1, stays: B1, number: I8) -> Csr:
    owner = side.owner()
    mine = kept[owner] & stays[side.index]
    counts = np.bincount(owner[mine], minlength=len(side))[kept]
    return Csr(np.cumsum([0, *counts.tolist()]), number[side.index[mine]])
