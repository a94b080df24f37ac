"""load: files that describe machines, to machines, to one cluster file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hccc.base.diagnostics import Source, fail
from hccc.base.files.reading import read_text
from hccc.ir.topology import Topology
from hccc.lang.cluster import load as cluster
from hccc.lang.machines import cluster_text, identify, nccl_xml, nvidia_smi
from hccc.lang.machines.machine import ImportedMachine
from hccc.lang.xml_reading import MAX_BYTES
from hccc.shipped.hardware.load import Hardware


@dataclass(frozen=True, slots=True)
class ImportedCluster:
    """Machines as a cluster: `text` is the cluster file, `topology` its meaning."""

    machines: tuple[ImportedMachine, ...]
    text: str
    topology: Topology


def import_machines(
    paths: Sequence[Path], *, nodes: int = 1, device: str | None = None, network: str | None = None
) -> ImportedCluster:
    """Makes a cluster of the machines that files describe, in their order.

    nodes: copies of the machine, if there is only one; device, network: names of the GPUs and of
    the network between nodes, whatever the files say.

    Raises:
        UserError: E401, E402, E403, E404 a file cannot be read; E501, E540, E541, E542 its content
        is wrong.
    """
    chosen = identify.device(device) if device else None
    joined = identify.network(network) if network else None
    found = [machine for path in paths for machine in _read(path, chosen, joined)]
    if nodes > 1 and len(found) > 1:
        message = f"these are {len(found)} machines already"
        raise fail("E415", message, help="--nodes is for one machine, which it repeats")
    found *= nodes
    text = cluster_text.text(found)
    return ImportedCluster(tuple(found), text, cluster.parse(Source("imported.cluster", text)))


def _read(path: Path, device: Hardware | None, network: Hardware | None) -> list[ImportedMachine]:
    """Reads the machines of one file: XML, or the table of `nvidia-smi topo -m`."""
    source = Source(path.name if str(path) != "-" else "stdin", read_text(path, MAX_BYTES))
    start = source.text.lstrip()
    if not start:
        raise fail("E403", f"{path} is empty")
    if start.startswith("<"):
        return nccl_xml.machines(source, device, network)
    return [nvidia_smi.machine(source, device, network)]
