"""model: predicts the time of a collective in NCCL or RCCL, and the algorithm or kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hccc.ir.collective import OpType
from hccc.predict.nccl.calibration import Table, calibration
from hccc.predict.nccl.choose import Forced, choose
from hccc.predict.nccl.machine import NcclMachine
from hccc.predict.nccl.symmetric import refusal, symmetric
from hccc.predict.nccl.time import F8, took
from hccc.predict.nccl.tuning import NcclAlgorithm, Protocol, SymmetricKernel


@dataclass(frozen=True, slots=True)
class Prediction:
    """A call of `size` bytes (as nccl-tests counts them): µs, and the library's choice."""

    size: int
    time_us: float
    algorithm: NcclAlgorithm
    protocol: Protocol | SymmetricKernel
    channels: int


def predict(
    machine: NcclMachine,
    op: OpType,
    sizes: Sequence[int],
    forced: Forced = Forced(),  # noqa: B008
    table: Table | None = None,
) -> list[Prediction]:
    """Returns a Prediction for each size.

    Raises:
        UserError: E464 there is no such algorithm or protocol.
    """
    wanted = np.array(sizes, np.float64)
    choice = choose(machine, op, wanted, forced)
    time = _monotone(machine, op, wanted, forced, table or calibration())
    return [
        Prediction(size, float(t), choice.options[k][0], choice.options[k][1], int(channels))
        for size, t, k, channels in zip(sizes, time, choice.option, choice.channels, strict=True)
    ]


def predict_registered(
    machine: NcclMachine, op: OpType, sizes: Sequence[int], table: Table | None = None
) -> list[Prediction | None]:
    """Returns a Prediction for each size of a call whose buffers are registered; None
    where `refusal` says that it has no symmetric kernel."""
    has = [refusal(machine, op, size) is None for size in sizes]
    if not any(has):
        return [None] * len(sizes)
    wanted = np.array(sizes, np.float64)
    found = symmetric(machine, op, wanted, table or calibration())
    made = zip(sizes, has, found.time, found.kernel, found.blocks, strict=True)
    return [
        Prediction(size, float(t), NcclAlgorithm.SYMMETRIC, found.kernels[k], int(blocks))
        if there
        else None
        for size, there, t, k, blocks in made
    ]


def _monotone(m: NcclMachine, op: OpType, sizes: F8, forced: Forced, table: Table) -> F8:
    """Returns the µs at `sizes`: those of powers of two, linear in between; with one algorithm and
    protocol never more than for a larger size, and never less than on fewer nodes.

    Between powers of two the library's channels come in steps, which makes a saw of the model. A
    library that changes its protocol too late takes longer for less, as was measured.
    """
    low = int(np.floor(np.log2(np.maximum(sizes.min(initial=8), 1))))
    high = int(np.ceil(np.log2(np.maximum(sizes.max(initial=8), 8)))) + 4
    grid: F8 = np.exp2(np.arange(low, high + 1, dtype=np.float64))
    choice = choose(m, op, grid, forced)
    time: F8 = np.zeros(len(grid))
    for k in np.unique(choice.option):
        algorithm, protocol = choice.options[k]
        only = Forced(algorithm, protocol, forced.channels)
        own = _raw(m, op, grid, only, table)
        for nodes in _fewer(m.nodes):
            fewer = replace(m, nodes=nodes, total=m.ranks * nodes // m.nodes)
            own = np.maximum(own, _raw(fewer, op, grid, only, table))
        own = np.minimum.accumulate(own[::-1])[::-1]
        time[choice.option == k] = own[choice.option == k]
    return np.interp(sizes, grid, time)


def _fewer(nodes: int) -> Iterator[int]:
    """Yields 2, 3, 4, 6, 8, 12, …: numbers of nodes below `nodes`."""
    power = 2
    while power < nodes:
        yield power
        if power * 3 // 2 < nodes:
            yield power * 3 // 2
        power *= 2


def _raw(m: NcclMachine, op: OpType, sizes: F8, forced: Forced, table: Table) -> F8:
    choice = choose(m, op, sizes, forced)
    time: F8 = np.zeros(len(sizes))
    for k, (a, p) in enumerate(choice.options):
        here = choice.option == k
        if here.any():
            time[here] = took(m, op, a, p, sizes[here], choice.channels[here], table)
    return time
