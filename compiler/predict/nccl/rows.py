"""rows: NCCL's or RCCL's calls of several sizes on a cluster, each with the library's choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hccc.base.diagnostics import fail
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.topology import Topology
from hccc.predict.nccl.choose import Forced
from hccc.predict.nccl.machine import NcclMachine, is_known, of
from hccc.predict.nccl.model import Prediction, predict, predict_registered
from hccc.predict.nccl.symmetric import refusal
from hccc.predict.nccl.tuning import NcclAlgorithm


class VendorLibrary(StrEnum):
    """The library that runs the collectives."""

    NCCL = "nccl"
    RCCL = "rccl"


@dataclass(frozen=True, slots=True)
class LibraryRow:
    """One size: time in µs, algbw and busbw in GB/s (nccl-tests' definitions), and the library's
    choice. registered: whether buffers are registered, for symmetric kernels: algorithm
    is then Symmetric, protocol the kernel."""

    size: int
    time: float
    algbw: float
    busbw: float
    algorithm: str
    protocol: str
    channels: int
    library: VendorLibrary
    registered: bool = False

    @property
    def name(self) -> str:
        """The library's name, and whether its buffers are registered."""
        return f"{self.library.upper()}{' registered' if self.registered else ''}"

    @property
    def choice(self) -> str:
        """The library's choice, in words."""
        plural = "" if self.channels == 1 else "s"
        return f"{self.algorithm} {self.protocol}, {self.channels} channel{plural}"


def library_of(topology: Topology) -> VendorLibrary | None:
    """Returns the library that the cluster's devices run; None if a device is not known."""
    if not all(is_known(device) for device in topology.devices):
        return None
    return VendorLibrary.RCCL if of(topology).generation.amd else VendorLibrary.NCCL


def machine_for(library: VendorLibrary, topology: Topology) -> NcclMachine:
    """Returns the machine that `library` sees in the cluster.

    Raises:
        UserError: E463 for a cluster that the model is not for, E466 for a library of another
        vendor's devices.
    """
    machine = of(topology, rccl=library is VendorLibrary.RCCL)
    if machine.generation.amd != (library is VendorLibrary.RCCL):
        other = VendorLibrary.NCCL if library is VendorLibrary.RCCL else VendorLibrary.RCCL
        raise fail(
            "E466",
            f"{library.upper()} does not run on {topology.devices[0].name}",
            help=f"--baseline {other}",
        )
    return machine


def rows(
    machine: NcclMachine,
    op: OpType,
    sizes: Sequence[int],
    forced: Forced = Forced(),  # noqa: B008
    more: float = 0.0,
) -> tuple[LibraryRow, ...]:
    """Predicts a call of each size in bytes. more: µs to add to each.

    Raises:
        UserError: E415 for 0 bytes, E464 for an algorithm that is not there.
    """
    _check(sizes)
    return tuple(_row(machine, op, p, more) for p in predict(machine, op, sizes, forced))


def registered_rows(
    machine: NcclMachine, op: OpType, sizes: Sequence[int], more: float = 0.0
) -> tuple[tuple[LibraryRow | None, ...], str | None]:
    """Predicts a call of each size whose buffers are registered; returns None for a
    call that has no symmetric kernel, and why.

    Raises:
        UserError: E415 for 0 bytes.
    """
    _check(sizes)
    found = predict_registered(machine, op, sizes)
    why = next((said for size in sizes if (said := refusal(machine, op, size))), None)
    return tuple(None if p is None else _row(machine, op, p, more) for p in found), why


def _check(sizes: Sequence[int]) -> None:
    if min(sizes) < 1:
        raise fail("E415", "a call of 0 bytes takes a library no time", help="a larger -b")


def _row(machine: NcclMachine, op: OpType, p: Prediction, more: float) -> LibraryRow:
    time = p.time_us + more
    algbw = p.size / time / 1000
    busbw = algbw * Collective(op, machine.ranks, block_count(op, machine.ranks)).bus_factor()
    library = VendorLibrary.RCCL if machine.generation.amd else VendorLibrary.NCCL
    chosen = p.algorithm, p.protocol, p.channels, library, p.algorithm is NcclAlgorithm.SYMMETRIC
    return LibraryRow(p.size, time, algbw, busbw, *chosen)
