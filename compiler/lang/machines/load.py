"""load: files that describe machines, to machines, to one cluster file."""

from __future__ import annotations

import re
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

PAIR = re.compile(r"(\d{1,3})-(\d{1,3})")


@dataclass(frozen=True, slots=True)
class ImportedCluster:
    """Machines as a cluster: `text` is the cluster file, `topology` its meaning."""

    machines: tuple[ImportedMachine, ...]
    text: str
    topology: Topology


def import_machines(
    paths: Sequence[Path],
    *,
    nodes: int = 1,
    device: str | None = None,
    network: str | None = None,
    links: str | None = None,
) -> ImportedCluster:
    """Makes a cluster of the machines that files describe, in their order.

    nodes: copies of the machine, if there is only one; device, network: names of the GPUs and of
    the network between nodes, whatever the files say; links: the pairs of GPUs that links join
    whose other end a file hides, `0-1,2-3`, or `none`.

    Raises:
        UserError: E401, E402, E403, E404 a file cannot be read; E501, E540, E541, E542 its content
        is wrong.
    """
    chosen = identify.device(device) if device else None
    joined = identify.network(network) if network else None
    pairs = None if links is None else _pairs(links)
    found = [machine for path in paths for machine in _read(path, chosen, joined, pairs)]
    if nodes > 1 and len(found) > 1:
        message = f"these are {len(found)} machines already"
        raise fail("E415", message, help="--nodes is for one machine, which it repeats")
    found *= nodes
    text = cluster_text.text(found)
    return ImportedCluster(tuple(found), text, cluster.parse(Source("imported.cluster", text)))


def _pairs(text: str) -> tuple[tuple[int, int], ...]:
    """Returns the pairs of GPUs of `0-1,2-3`; none of `none`."""
    if text == "none":
        return ()
    found = [PAIR.fullmatch(word.strip()) for word in text.split(",")]
    pairs = [(int(m[1]), int(m[2])) for m in found if m and m[1] != m[2]]
    if len(pairs) < len(found):
        help = "give 0-1,2-3, or none"
        raise fail("E410", f"--links {text[:40]!r} are no pairs of GPUs", help=help)
    return tuple(pairs)


def _read(
    path: Path,
    device: Hardware | None,
    network: Hardware | None,
    pairs: tuple[tuple[int, int], ...] | None,
) -> list[ImportedMachine]:
    """Reads the machines of one file: XML, or the table of `nvidia-smi topo -m`."""
    source = Source(path.name if str(path) != "-" else "stdin", read_text(path, MAX_BYTES))
    start = source.text.lstrip()
    if not start:
        raise fail("E403", f"{path} is empty")
    if start.startswith("<"):
        return nccl_xml.machines(source, device, network, pairs)
    return [nvidia_smi.machine(source, device, network)]
