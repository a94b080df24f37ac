"""load: files that describe machines, to Machines, to one cluster file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hccc.base.diagnostics import Source, fail
from hccc.base.files.reading import read_text
from hccc.ir.topology import Topology
from hccc.lang.cluster import load as cluster
from hccc.lang.machines import cluster_text, known, nccl_xml, nvidia_smi
from hccc.lang.machines.machine import Machine
from hccc.lang.xml_reading import MAX_BYTES
from hccc.shipped.hardware.load import Hardware


@dataclass(frozen=True, slots=True)
class Imported:
    """Machines as a cluster: `text` is the file, `topology` what it means."""

    machines: tuple[Machine, ...]
    text: str
    topology: Topology


def import_machines(
    paths: Sequence[Path], *, nodes: int = 1, device: str | None = None, network: str | None = None
) -> Imported:
    """The cluster of the machines that files describe, in their order.

    nodes: how many there are of the one machine of the one file; device, network: what GPUs and
    the network between nodes are, whatever the files say.

    Raises:
        UserError: E401, E402, E403, E404 a file; E501, E540, E541, E542 what it says.
    """
    chosen = known.device(device) if device else None
    joined = known.network(network) if network else None
    found = [machine for path in paths for machine in _read(path, chosen, joined)]
    if nodes > 1 and len(found) > 1:
        message = f"these are {len(found)} machines already"
        raise fail("E415", message, help="--nodes is for one machine, which it repeats")
    found *= nodes
    text = cluster_text.text(found)
    return Imported(tuple(found), text, cluster.parse(Source("imported.cluster", text)))


def _read(path: Path, device: Hardware | None, joined: Hardware | None) -> list[Machine]:
    """The machines of one file, which is XML or the table of `nvidia-smi topo -m`."""
    source = Source(path.name if str(path) != "-" else "stdin", read_text(path, MAX_BYTES))
    start = source.text.lstrip()
    if not start:
        raise fail("E403", f"{path} is empty")
    if start.startswith("<"):
        return nccl_xml.machines(source, device, joined)
    return [nvidia_smi.machine(source, device, joined)]
