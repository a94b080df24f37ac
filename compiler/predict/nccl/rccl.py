"""rccl: what RCCL does otherwise than NCCL: tuning models by architecture, and ranges of protocols.

Source: RCCL's src/graph/tuning.cc and src/rccl_wrap.cc (rcclUpdateCollectiveProtocol).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hccc.ir.collective import OpType
from hccc.predict.nccl import rccl_tables
from hccc.predict.nccl.channels import Graphs
from hccc.predict.nccl.machine import Generation, Link, Machine
from hccc.predict.nccl.tuning import PROTOCOLS, RCCL_BASE, Algorithm, Protocol

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
MODELS: Mapping[Generation, rccl_tables.Model] = MappingProxyType(
    {
        Generation.MI200: rccl_tables.MI200,
        Generation.MI300: rccl_tables.MI300,
        Generation.MI350: rccl_tables.MI350,
    }
)
_RANGES = (
    OpType.REDUCESCATTER,
    OpType.ALLGATHER,
    OpType.ALLREDUCE,
    OpType.REDUCE,
    OpType.BROADCAST,
)
# rccl_wrap.cc: LL up to so many bytes a rank in one node, whatever the model says.
_LL_IN_A_NODE: Mapping[tuple[Generation, OpType], float] = MappingProxyType(
    {
        (Generation.MI350, OpType.ALLGATHER): 88448,
        (Generation.MI350, OpType.REDUCESCATTER): 1048576,
        (Generation.MI300, OpType.REDUCESCATTER): 352128,
    }
)


def cost(m: Machine, op: OpType, g: Graphs, a: Algorithm, p: Protocol, sizes: F8) -> F8:
    """RCCL's ncclTopoGetAlgoTime, µs."""
    model, k = MODELS[m.generation], PROTOCOLS.index(p)
    which = 0 if a is Algorithm.TREE else 1
    bus = g.channels * g.ring.intra * model.ratio[m.nodes > 2][which][k]
    n = m.ranks
    rounds = 2 * (n - 1) if op is OpType.ALLREDUCE else n
    rounds = n - 1 if op in {OpType.ALLGATHER, OpType.REDUCESCATTER} else rounds
    bandwidth = np.full(len(sizes), bus / 2 if which == 0 else bus * n / rounds)
    size_class = np.clip(np.floor(np.log2(np.maximum(sizes, 64) / 64)), 0, 26).astype(np.int64)
    if which == 0 or m.nodes > 1:
        factor = np.array((model.tree if which == 0 else model.ring)[k])[size_class]
        bandwidth = bandwidth * factor
    cost: F8 = _latency(m, op, which, k) + sizes / (1000 * np.maximum(bandwidth, 1e-3))
    return cost


def _latency(m: Machine, op: OpType, which: int, k: int) -> float:
    hw = MODELS[m.generation].hw
    intra = hw[1 if m.link is Link.PCIE else 0][which][k]
    inter, n = hw[2][which][k], m.ranks
    if which == 0:
        return RCCL_BASE[k] + 2 * ((m.gpus - 1) * intra + int(log2(m.nodes)) * inter)
    if op in {OpType.REDUCE, OpType.BROADCAST}:
        return RCCL_BASE[k] + (intra if m.nodes == 1 else inter)
    rounds = 2 if op is OpType.ALLREDUCE else 1
    crossing = rounds * (m.nodes - 1)
    return RCCL_BASE[k] + (rounds * (n - 1) - crossing) * intra + crossing * inter


def overridden(
    m: Machine,
    op: OpType,
    sizes: F8,
    options: Sequence[tuple[Algorithm, Protocol]],
    option: I8,
) -> I8:
    """rcclUpdateCollectiveProtocol: the protocol by bytes a rank, where a model has ranges."""
    per_rank = sizes if op is OpType.ALLREDUCE else sizes / m.ranks
    wanted = np.array([PROTOCOLS.index(p) for _, p in options])[option]
    if m.nodes == 1:
        bound = _LL_IN_A_NODE.get((m.generation, op), 0)
        wanted = np.where(per_rank <= bound, 0, wanted)
    elif ranges := MODELS[m.generation].ranges:
        low, high = ranges[_RANGES.index(op)]
        most = high[1] * (3.8 if op is OpType.ALLREDUCE and m.nodes > 2 else 1)
        wanted = np.where((per_rank > low[0]) & (per_rank <= low[1]), 0, 2)
        wanted = np.where((per_rank > high[0]) & (per_rank <= most), 1, wanted)
    algorithm = [options[i][0] for i in option]
    result = option.copy()
    for i, (a, k) in enumerate(zip(algorithm, wanted, strict=True)):
        if (a, PROTOCOLS[k]) in options:
            result[i] = options.index((a, PROTOCOLS[k]))
    return result
