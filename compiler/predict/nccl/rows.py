"""rows: NCCL's or RCCL's calls of several sizes on a cluster, each with what was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hccc.base.diagnostics import fail
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.topology import Topology
from hccc.predict.nccl.choose import Forced
from hccc.predict.nccl.machine import Machine, is_known, of
from hccc.predict.nccl.model import Prediction, predict


class Library(StrEnum):
    """Whose collectives."""

    NCCL = "nccl"
    RCCL = "rccl"


@dataclass(frozen=True, slots=True)
class Row:
    """One size: time in µs, algbw and busbw in GB/s (nccl-tests' definitions), what was chosen."""

    size: int
    time: float
    algbw: float
    busbw: float
    algorithm: str
    protocol: str
    channels: int
    library: Library

    @property
    def choice(self) -> str:
        """What was chosen, in words."""
        plural = "" if self.channels == 1 else "s"
        return f"{self.algorithm} {self.protocol}, {self.channels} channel{plural}"


def library_of(topology: Topology) -> Library | None:
    """The library that the cluster's devices run; None where a device is not known."""
    if not all(is_known(device) for device in topology.devices):
        return None
    return Library.RCCL if of(topology).generation.amd else Library.NCCL


def machine_for(library: Library, topology: Topology) -> Machine:
    """What `library` sees of the cluster.

    Raises:
        UserError: E463 for a cluster that the model is not for, E466 for a library of another
            vendor's devices.
    """
    machine = of(topology, rccl=library is Library.RCCL)
    if machine.generation.amd != (library is Library.RCCL):
        other = Library.NCCL if library is Library.RCCL else Library.RCCL
        raise fail(
            "E466",
            f"{library.upper()} does not run on {topology.devices[0].name}",
            help=f"--baseline {other}",
        )
    return machine


def rows(
    machine: Machine,
    op: OpType,
    sizes: Sequence[int],
    forced: Forced = Forced(),  # noqa: B008
    more: float = 0.0,
) -> tuple[Row, ...]:
    """A call of each size in bytes. more: µs that each takes besides.

    Raises:
        UserError: E415 for 0 bytes, E464 for an algorithm that is not there.
    """
    if min(sizes) < 1:
        raise fail("E415", "a call of 0 bytes takes a library no time", help="a larger -b")
    factor = Collective(op, machine.ranks, block_count(op, machine.ranks)).bus_factor()
    library = Library.RCCL if machine.generation.amd else Library.NCCL
    return tuple(
        _row(p, p.time_us + more, factor, library) for p in predict(machine, op, sizes, forced)
    )


def _row(p: Prediction, time: float, factor: float, library: Library) -> Row:
    algbw = p.size / time / 1000
    chosen = p.algorithm, p.protocol, p.channels
    return Row(p.size, time, algbw, algbw * factor, *chosen, library)
