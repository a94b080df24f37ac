"""calls: the times of a library's calls of several sizes on a cluster, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from hccc.base.diagnostics import fail
from hccc.driver.facts import Facts
from hccc.ir.collective import OpType
from hccc.ir.device import Device
from hccc.ir.topology import Topology
from hccc.predict.nccl.choose import P2P_OPS, Forced
from hccc.predict.nccl.machine import Generation, NcclMachine, NcclNetwork, is_known
from hccc.predict.nccl.rows import LibraryRow, VendorLibrary, machine_for, registered_rows, rows
from hccc.predict.simulation import Sizes
from hccc.sim.estimates import NAMES


@dataclass(frozen=True, slots=True)
class Calls:
    """A library's calls of one collective on a cluster. estimates: figures that are estimated, not
    measured, and that the times depend on, in words."""

    library: VendorLibrary
    op: OpType
    machine: NcclMachine
    cluster: str
    sizes: Sizes
    rows: tuple[LibraryRow, ...]
    estimates: tuple[str, ...] = ()

    def facts(self) -> Facts:
        """Returns all figures, for JSON."""
        return {
            "baseline": str(self.library),
            "collective": self.op.value,
            "ranks": self.machine.ranks,
            "nodes": self.machine.nodes,
            "generation": str(self.machine.generation),
            "registered": self.rows[0].registered,
            "cluster": self.cluster,
            "estimates": self.estimates,
            "results": [asdict(row) for row in self.rows],
        }

    def text(self) -> str:
        """Writes the table."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        m, s = self.machine, self.sizes
        what = f"{self.op.value} over {m.ranks} ranks"
        how = "with registered buffers" if self.rows[0].registered else "as it is by default"
        named = f"# {self.library.upper()} {how}, {what}"
        yield f"{named}, predicted on {self.cluster} ({m.generation})"
        yield f"# minBytes {s.smallest} maxBytes {s.largest} step: {s.factor:g}(factor)"
        if self.estimates:
            yield f"# estimates: {'; '.join(self.estimates)}"
        yield "#"
        line = _LINE.replace("WIDTH", str(max(8, *(len(row.protocol) for row in self.rows))))
        for head in _HEAD:
            yield ("#" + line.format(*head)[1:]).rstrip()
        for r in self.rows:
            speeds = (f"{r.time:.2f}", f"{r.algbw:.2f}", f"{r.busbw:.2f}")
            yield line.format(r.size, *speeds, r.algorithm, r.protocol, r.channels)


_HEAD = (
    ("size", "time", "algbw", "busbw", "algorithm", "protocol", "channels"),
    ("(B)", "(us)", "(GB/s)", "(GB/s)", "", "", ""),
)
_LINE = "{:>13}  {:>11}  {:>7}  {:>7}  {:>9}  {:>WIDTH}  {:>8}"


def calls(
    library: VendorLibrary,
    op: OpType,
    topology: Topology,
    sizes: Sizes,
    forced: Forced,
    launch: float | None = None,
    *,
    registered: bool = False,
) -> Calls:
    """Predicts the calls of `library` on the cluster.

    launch: µs that the program needs for a call, the least time of a call; None: the cluster's;
    registered: whether the buffers are registered, and NCCL takes symmetric kernels.

    Raises:
        UserError: E463 for a cluster that the model is not for, E464 for an algorithm or symmetric
        kernels that are not there, E466 for a library of another vendor's devices.
    """
    machine = machine_for(library, topology)
    if launch is not None:
        machine = replace(machine, floor=launch)
    if registered:
        with_buffers, why = registered_rows(machine, op, sizes.all())
        if why is not None:
            raise fail("E464", why, help="leave out --registered")
        found = tuple(row for row in with_buffers if row is not None)
    else:
        found = rows(machine, op, sizes.all(), forced)
    guessed = estimates(topology, machine, op, launch=launch is None and _binds(machine, found))
    return Calls(library, op, machine, topology.name, sizes, found, guessed)


def _binds(m: NcclMachine, found: tuple[LibraryRow, ...]) -> bool:
    """Tells whether a call takes about as long as its launch."""
    return min(row.time for row in found) < 1.5 * m.floor


def estimates(t: Topology, m: NcclMachine, op: OpType, *, launch: bool) -> tuple[str, ...]:
    """Lists the parts of a prediction that no published measurement supports: `H20: delivered
    bandwidth`."""
    found = dict.fromkeys(said for d in t.devices if (said := _of_device(d, m, launch)))
    if m.nodes > 1 and m.network is NcclNetwork.ETHERNET:
        found["Ethernet: latency, delivered bandwidth of fast NICs"] = None
    if m.nodes > 1 and m.network is NcclNetwork.TCPX and op is not OpType.ALLGATHER:
        found["TCPX: latency, of AllGather only"] = None
    if op in P2P_OPS - {OpType.SENDRECV} and m.gpus > 2:
        found["sends: time of each further rank"] = None
    return tuple(found)


def _of_device(device: Device, m: NcclMachine, launch: bool) -> str:
    named = {"delivered": m.gpus > 1, "launch": launch}
    said = [NAMES[name] for name, used in named.items() if used and name in device.estimates]
    if not is_known(device):
        said.append(f"taken for a device of {m.generation}")
    elif m.generation is Generation.VOLTA:
        said.append("steps and channels as of Ampere")
    return f"{device.name}: {', '.join(said)}" if said else ""
