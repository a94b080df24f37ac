"""rccl: RCCL's differences from NCCL: tuning models by architecture, and ranges of protocols.

Source: RCCL's src/graph/tuning.cc and src/rccl_wrap.cc (rcclUpdateCollectiveProtocol).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import log2
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.collective import OpType
from hccc.predict.nccl.channels import ChannelGraphs
from hccc.predict.nccl.machine import Generation, NcclLink, NcclMachine
from hccc.predict.nccl.tuning import PROTOCOLS, RCCL_BASE, NcclAlgorithm, Protocol

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
# The operations that have ranges of protocols, as `rccl.toml` names them.
_RANGES = {
    OpType.REDUCESCATTER: "ReduceScatter",
    OpType.ALLGATHER: "AllGather",
    OpType.ALLREDUCE: "AllReduce",
    OpType.REDUCE: "Reduce",
    OpType.BROADCAST: "Broadcast",
}
Row = tuple[float, ...]  # by LL, LL128, Simple; of factors, by size


@dataclass(frozen=True, slots=True)
class RcclModel:
    """One of RCCL's tuning models (`rccl.toml`).

    step: µs of a step over [xGMI, PCIe, NIC][Tree, Ring]; ratio: of the bandwidth, [up to two
    nodes, more][Tree, Ring]; tree, ring: correction factors [LL, LL128, Simple][log2(bytes / 64)];
    ranges: bytes a rank in (min, max] for which LL and LL128 are used between nodes.
    """

    step: tuple[tuple[Row, Row], ...]
    ratio: tuple[tuple[Row, Row], ...]
    tree: tuple[Row, ...]
    ring: tuple[Row, ...]
    ranges: Mapping[OpType, tuple[tuple[int, int], tuple[int, int]]]


def _model(table: Mapping[str, Any]) -> RcclModel:
    def pair(rows: Mapping[str, Any]) -> tuple[Row, Row]:
        return tuple(rows["Tree"]), tuple(rows["Ring"])

    return RcclModel(
        step=tuple(pair(table["step"][link]) for link in ("xGMI", "PCIe", "NIC")),
        ratio=tuple(pair(table["ratio"][nodes]) for nodes in ("two_nodes", "more")),
        tree=tuple(tuple(table["tree"][p]) for p in PROTOCOLS),
        ring=tuple(tuple(table["ring"][p]) for p in PROTOCOLS),
        ranges={
            op: (tuple(by["LL"]), tuple(by["LL128"]))
            for op, name in _RANGES.items()
            if (by := table.get("ranges", {}).get(name))
        },
    )


_TABLES = tomllib.loads(files(__package__).joinpath("rccl.toml").read_text("utf-8"))
MODELS: Mapping[Generation, RcclModel] = MappingProxyType(
    {Generation(name): _model(table) for name, table in _TABLES.items()}
)
# rccl_wrap.cc: LL up to so many bytes a rank in one node, whatever the model says.
_LL_IN_A_NODE: Mapping[tuple[Generation, OpType], float] = MappingProxyType(
    {
        (Generation.MI350, OpType.ALLGATHER): 88448,
        (Generation.MI350, OpType.REDUCESCATTER): 1048576,
        (Generation.MI300, OpType.REDUCESCATTER): 352128,
    }
)


def cost(
    m: NcclMachine, op: OpType, g: ChannelGraphs, a: NcclAlgorithm, p: Protocol, sizes: F8
) -> F8:
    """Computes RCCL's ncclTopoGetAlgoTime, in µs."""
    model, k = MODELS[m.generation], PROTOCOLS.index(p)
    which = 0 if a is NcclAlgorithm.TREE else 1
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


def _latency(m: NcclMachine, op: OpType, which: int, k: int) -> float:
    step = MODELS[m.generation].step
    intra = step[1 if m.link is NcclLink.PCIE else 0][which][k]
    inter, n = step[2][which][k], m.ranks
    if which == 0:
        return RCCL_BASE[k] + 2 * ((m.gpus - 1) * intra + int(log2(m.nodes)) * inter)
    if op in {OpType.REDUCE, OpType.BROADCAST}:
        return RCCL_BASE[k] + (intra if m.nodes == 1 else inter)
    rounds = 2 if op is OpType.ALLREDUCE else 1
    crossing = rounds * (m.nodes - 1)
    return RCCL_BASE[k] + (rounds * (n - 1) - crossing) * intra + crossing * inter


def overridden(
    m: NcclMachine,
    op: OpType,
    sizes: F8,
    options: Sequence[tuple[NcclAlgorithm, Protocol]],
    option: I8,
) -> I8:
    """Applies rcclUpdateCollectiveProtocol: the protocol by bytes a rank, if the model has
    ranges."""
    per_rank = sizes if op is OpType.ALLREDUCE else sizes / m.ranks
    wanted = np.array([PROTOCOLS.index(p) for _, p in options])[option]
    if m.nodes == 1:
        bound = _LL_IN_A_NODE.get((m.generation, op), 0)
        wanted = np.where(per_rank <= bound, 0, wanted)
    elif ranges := MODELS[m.generation].ranges:
        low, high = ranges[op]
        most = high[1] * (3.8 if op is OpType.ALLREDUCE and m.nodes > 2 else 1)
        wanted = np.where((per_rank > low[0]) & (per_rank <= low[1]), 0, 2)
        wanted = np.where((per_rank > high[0]) & (per_rank <= most), 1, wanted)
    algorithm = [options[i][0] for i in option]
    result = option.copy()
    for i, (a, k) in enumerate(zip(algorithm, wanted, strict=True)):
        if (a, PROTOCOLS[k]) in options:
            result[i] = options.index((a, PROTOCOLS[k]))
    return result
