"""calls: what a library's calls of several sizes take on a cluster, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum

from hccc.diagnostics import fail
from hccc.facts import Facts
from hccc.ir.collective import PROGRAMMABLE, Collective, OpType, block_count
from hccc.ir.topology import Topology
from hccc.predict.nccl.choose import Forced
from hccc.predict.nccl.machine import Machine, of
from hccc.predict.nccl.model import Prediction, predict
from hccc.predict.simulation import Sizes


class Library(StrEnum):
    """Whose collectives."""

    NCCL = "nccl"
    RCCL = "rccl"


def collective_named(name: str) -> OpType:
    """`allreduce`, `all_reduce`, `AllReduce`: the collective. Raises UserError E465."""
    plain = name.lower().replace("_", "").replace("-", "")
    for op in PROGRAMMABLE:
        if op.value.lower() == plain:
            return op
    known = ", ".join(op.value.lower() for op in PROGRAMMABLE)
    raise fail("E465", f"{name!r} is no collective", help=f"there are {known}")


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


@dataclass(frozen=True, slots=True)
class Calls:
    """A library's calls of one collective on a cluster."""

    library: Library
    op: OpType
    machine: Machine
    cluster: str
    sizes: Sizes
    rows: tuple[Row, ...]

    def facts(self) -> Facts:
        """Everything, for JSON."""
        return {
            "baseline": str(self.library),
            "collective": self.op.value,
            "ranks": self.machine.ranks,
            "nodes": self.machine.nodes,
            "generation": str(self.machine.generation),
            "cluster": self.cluster,
            "results": [asdict(row) for row in self.rows],
        }

    def text(self) -> str:
        """The table."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        m, s = self.machine, self.sizes
        what = f"{self.op.value} over {m.ranks} ranks"
        yield f"# {self.library.upper()} {what}, predicted on {self.cluster} ({m.generation})"
        yield f"# minBytes {s.smallest} maxBytes {s.largest} step: {s.factor:g}(factor)"
        yield "#"
        for head in _HEAD:
            yield ("#" + _LINE.format(*head)[1:]).rstrip()
        for r in self.rows:
            speeds = (f"{r.time:.2f}", f"{r.algbw:.2f}", f"{r.busbw:.2f}")
            yield _LINE.format(r.size, *speeds, r.algorithm, r.protocol, r.channels)


_HEAD = (
    ("size", "time", "algbw", "busbw", "algorithm", "protocol", "channels"),
    ("(B)", "(us)", "(GB/s)", "(GB/s)", "", "", ""),
)
_LINE = "{:>13}  {:>11}  {:>7}  {:>7}  {:>9}  {:>8}  {:>8}"


def calls(library: Library, op: OpType, topology: Topology, sizes: Sizes, forced: Forced) -> Calls:
    """What `library` takes on the cluster.

    Raises:
        UserError: E463 for a cluster that the model is not for, E464 for an algorithm that is not
            there, E466 for a library of another vendor's devices.
    """
    machine = of(topology, rccl=library is Library.RCCL)
    if machine.generation.amd != (library is Library.RCCL):
        other = Library.NCCL if library is Library.RCCL else Library.RCCL
        raise fail(
            "E466",
            f"{library.upper()} does not run on {topology.devices[0].name}",
            help=f"--baseline {other}",
        )
    each = sizes.all()
    if each[0] < 1:
        raise fail("E415", "a call of 0 bytes takes a library no time", help="a larger -b")
    whole = Collective(op, machine.ranks, block_count(op, machine.ranks))
    rows = (_row(p, whole.bus_factor()) for p in predict(machine, op, each, forced))
    return Calls(library, op, machine, topology.name, sizes, tuple(rows))


def _row(p: Prediction, factor: float) -> Row:
    algbw = p.size / p.time_us / 1000
    return Row(p.size, p.time_us, algbw, algbw * factor, p.algorithm, p.protocol, p.channels)
