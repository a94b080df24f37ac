"""model: predicts the time of a collective in NCCL or RCCL, and the algorithm or kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hccc.ir.collective import OpType
from hccc.predict.nccl.calibration import Table, calibration
from hccc.predict.nccl.choose import NOT_FORCED, Forced, LibraryChoice, choose
from hccc.predict.nccl.machine import NcclMachine
from hccc.predict.nccl.symmetric import refusal, symmetric
from hccc.predict.nccl.time import F8, I8, took
from hccc.predict.nccl.tuning import NcclAlgorithm, Protocol, SymmetricKernel

B1 = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Prediction:
    """A call of `size` bytes (as nccl-tests counts them): µs, and the library's choice."""

    size: int
    time_us: float
    algorithm: NcclAlgorithm
    protocol: Protocol | SymmetricKernel
    channels: int


@dataclass(frozen=True, slots=True, eq=False)
class PreparedCalls:
    """Calls of some sizes as the library makes them, before any figure says how long they take.

    choice: at `sizes`; grid: powers of two about them, f8[g]; options: each algorithm and protocol
    that is chosen on the grid: where, b1[g], and machines (as given, and of fewer nodes), each with
    its channels, i8[g].
    """

    op: OpType
    sizes: F8
    choice: LibraryChoice
    grid: F8
    options: tuple[_PreparedOption, ...]

    def times(self, table: Table) -> F8:
        """Returns the µs at `sizes`: those of powers of two, linear in between; with one algorithm
        and protocol never more than for a larger size, and never less than on fewer nodes.

        Between powers of two the library's channels come in steps, which makes a saw of the model.
        A library that changes its protocol too late takes longer for less, as was measured.
        """
        time: F8 = np.zeros(len(self.grid))
        for option, here, machines in self.options:
            own = np.maximum.reduce(
                [took(m, self.op, *option, self.grid, n, table) for m, n in machines]
            )
            own = np.minimum.accumulate(own[::-1])[::-1]
            time[here] = own[here]
        return np.interp(self.sizes, self.grid, time)


_PreparedOption = tuple[tuple[NcclAlgorithm, Protocol], B1, tuple[tuple[NcclMachine, I8], ...]]


def prepare(
    machine: NcclMachine, op: OpType, sizes: Sequence[int], forced: Forced = NOT_FORCED
) -> PreparedCalls:
    """Chooses for each size, and for the powers of two about them.

    Raises:
        UserError: E464 there is no such algorithm or protocol.
    """
    wanted = np.array(sizes, np.float64)
    low = int(np.floor(np.log2(np.maximum(wanted.min(initial=8), 1))))
    high = int(np.ceil(np.log2(np.maximum(wanted.max(initial=8), 8)))) + 4
    grid: F8 = np.exp2(np.arange(low, high + 1, dtype=np.float64))
    choice, options = choose(machine, op, grid, forced), []
    for k in np.unique(choice.option):
        algorithm, protocol = option = choice.options[k]
        only = Forced(algorithm, protocol, forced.channels)
        machines = [machine, *(_with(machine, nodes) for nodes in _fewer(machine.nodes))]
        channels = tuple((m, choose(m, op, grid, only).channels) for m in machines)
        options.append((option, choice.option == k, channels))
    return PreparedCalls(op, wanted, choose(machine, op, wanted, forced), grid, tuple(options))


def predict(
    machine: NcclMachine,
    op: OpType,
    sizes: Sequence[int],
    forced: Forced = NOT_FORCED,
    table: Table | None = None,
) -> list[Prediction]:
    """Returns a Prediction for each size.

    Raises:
        UserError: E464 there is no such algorithm or protocol.
    """
    calls = prepare(machine, op, sizes, forced)
    time, choice = calls.times(table or calibration()), calls.choice
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


def _with(m: NcclMachine, nodes: int) -> NcclMachine:
    return replace(m, nodes=nodes, total=m.ranks * nodes // m.nodes)


def _fewer(nodes: int) -> Iterator[int]:
    """Yields 2, 3, 4, 6, 8, 12, …: numbers of nodes below `nodes`."""
    power = 2
    while power < nodes:
        yield power
        if power * 3 // 2 < nodes:
            yield power * 3 // 2
        power *= 2
