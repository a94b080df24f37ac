"""msccl_operands: the operands of MSCCL's steps, a row for each chunk of a step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hccc.ir.arrays import I8, places, starts
from hccc.ir.primitives import Operands

Place = tuple[int, int, int]  # (rank or queue, buffer, slot)


@dataclass(slots=True)
class Ends:
    """One end (sources or destinations) of every step so far, as operands of the step's first
    chunk."""

    width: list[int] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)

    def add(self, places: list[Place]) -> None:
        self.width.append(len(places))
        self.places += places

    def operands(self, counts: I8) -> Operands:
        """Expands to a row for every chunk of every step; the slots of chunk k are k further on."""
        width = np.array(self.width, np.int64)
        table = np.array(self.places, np.int64).reshape(-1, 3)
        ptr = starts(np.repeat(width, counts))
        times = width * counts
        step = np.repeat(np.arange(len(width)), times)
        within = places(times)
        chunk = within // width[step]
        pick = starts(width)[step] + within - chunk * width[step]
        rank, buffer, slot = table[pick].T
        return Operands(ptr, rank, buffer, slot + chunk)
