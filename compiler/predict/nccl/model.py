"""model: what NCCL or RCCL would take for a collective, and by which algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hccc.ir.collective import OpType
from hccc.predict.nccl.calibration import Table, calibration
from hccc.predict.nccl.choose import Forced, choose
from hccc.predict.nccl.machine import Machine
from hccc.predict.nccl.time import F8, took
from hccc.predict.nccl.tuning import Algorithm, Protocol


@dataclass(frozen=True, slots=True)
class Prediction:
    """A call of `size` bytes (as nccl-tests counts them): µs, and what the library chose."""

    size: int
    time_us: float
    algorithm: Algorithm
    protocol: Protocol
    channels: int


def predict(
    machine: Machine,
    op: OpType,
    sizes: Sequence[int],
    forced: Forced = Forced(),  # noqa: B008
    table: Table | None = None,
) -> list[Prediction]:
    """A Prediction for each size.

    Raises:
        UserError: E464 where there is no such algorithm or protocol.
    """
    wanted = np.array(sizes, np.float64)
    choice = choose(machine, op, wanted, forced)
    time: F8 = np.zeros(len(wanted))
    for k, (a, p) in enumerate(choice.options):
        here = choice.option == k
        if here.any():
            time[here] = took(
                machine, op, a, p, wanted[here], choice.channels[here], table or calibration()
            )
    return [
        Prediction(size, float(t), *choice.options[k], int(channels))
        for size, t, k, channels in zip(sizes, time, choice.option, choice.channels, strict=True)
    ]
