"""nvidia_smi: the table of `nvidia-smi topo -m`, with a row for each GPU and NIC, to a machine.

An entry is `NV12` (a number of NVLinks), or the distance of two devices: PIX (one PCI switch), PXB
(several), PHB (a host bridge), NODE (host bridges of a NUMA node), SYS (NUMA nodes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from hccc.base.diagnostics import Source, fail
from hccc.lang.machines import identify
from hccc.lang.machines.machine import MAX_GPUS, Bus, ImportedMachine, counted, narrowest
from hccc.lang.machines.nics import FoundNic, nics_and_network
from hccc.shipped.hardware import load
from hccc.shipped.hardware.load import Hardware

FAR = {"X": 0, "PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}
SWITCH, BRIDGE = FAR["PXB"], FAR["NODE"]
COLOUR = re.compile(r"\x1b?\[[0-9;]*m")
NVLINKS = re.compile(r"NV(\d{1,3})")
LEGEND = re.compile(r"\s*(NIC\d+):\s*(\S+)")
AFFINITY = ("CPU", "NUMA", "GPU")  # words of the columns after the devices
MAX_DEVICES = 1024
# The most common GPU by its number of links, if all GPUs of a node have as many.
BY_LINKS = {6: "V100", 8: "H800", 12: "A100", 18: "H100"}
SOCKETS = 16.0  # GB/s between NUMA nodes: the table does not say of which CPU
HELP = "give what `nvidia-smi topo -m` prints, from its first line on"


def machine(source: Source, device: Hardware | None, network: Hardware | None) -> ImportedMachine:
    """Reads the machine of one table.

    Raises:
        UserError: E540 it is no such table; E541 the table contradicts itself.
    """
    names, rows, cpus = _table(source)
    gpus = [i for i, name in enumerate(names) if re.fullmatch(r"GPU\d+", name)]
    links, far = _entries(source, names, rows, cpus, set(gpus))
    pairs = {(gpus.index(u), gpus.index(v)): n for (u, v), n in links.items()}
    read = [counted(len(gpus), "GPU")]
    assumed: list[str] = []
    chosen = device or _device(pairs, len(gpus), assumed)
    to_switch = _switched(pairs, len(gpus), int(chosen.number("links")))
    if pairs:
        read.append(f"{max(pairs.values())} NVLinks of a GPU {'in all' if to_switch else 'a pair'}")
    bus = load.pcie(chosen.word("pcie"), peer=True).number("delivered")
    found = list(_nics(source, names, gpus, far))
    nics, net = nics_and_network(found, chosen, network, read, assumed)
    made = ImportedMachine(
        source.name,
        chosen,
        len(gpus),
        {} if to_switch else pairs,
        to_switch,
        False,
        narrowest(_buses([[far[u][v] for v in gpus] for u in gpus], bus)),
        nics,
        net,
    )
    if made.over_buses:
        assumed.append(
            f"PCI Express is {chosen.word('pcie')} x16, and {SOCKETS:g} GB/s go between NUMA nodes"
        )
    return replace(made, read=tuple(read), assumed=tuple(assumed))


def _table(source: Source) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Returns the names of the devices, their rows, and the nearest CPUs of each, if its row has
    them."""
    lines = [COLOUR.sub("", line).split() for line in source.text.splitlines()]
    start = next((i for i, words in enumerate(lines) if words[:1] == ["GPU0"]), None)
    if start is None:
        raise fail("E540", f"{source.name} is neither XML nor the table of nvidia-smi", help=HELP)
    names = []
    for i, word in enumerate(lines[start]):
        if word in AFFINITY:
            break
        names.append(word[:64] if i < MAX_DEVICES else "")
    if len(set(names)) < len(names):
        raise fail("E541", f"{source.name}: a device is there twice, or there are too many")
    if sum(name.startswith("GPU") for name in names) > MAX_GPUS:
        raise fail("E541", f"{source.name}: one machine has more than {MAX_GPUS} GPUs")
    end = len(names) + 1
    rows = {words[0]: words[1:] for words in lines[start + 1 :] if words}
    missing = [name for name in names if len(rows.get(name, ())) < len(names)]
    if missing:
        message = f"{source.name}: the row of {missing[0]} is missing, or has too few entries"
        raise fail("E541", message, help=HELP)
    every = [rows[name] for name in names]
    return names, [row[: end - 1] for row in every], [row[end - 1 : end] for row in every]


def _entries(
    source: Source,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    cpus: Sequence[Sequence[str]],
    gpus: set[int],
) -> tuple[dict[tuple[int, int], int], list[list[int]]]:
    """Returns NVLinks by pair of GPUs, and all distances of devices; behind NVLinks, those of the
    CPUs."""
    links: dict[tuple[int, int], int] = {}
    far = []
    for u, row in enumerate(rows):
        apart = [FAR["NODE"] if cpus[u] == other else FAR["SYS"] for other in cpus]
        far.append([FAR.get(word, apart[v]) for v, word in enumerate(row)])
        for v, word in enumerate(row):
            where = f"{source.name}: {names[u]} to {names[v]}"
            if (found := NVLINKS.fullmatch(word)) and int(found[1]):
                if u == v or not {u, v} <= gpus:
                    raise fail("E541", f"{where}: {word}, but NVLinks join two GPUs", help=HELP)
                links[u, v] = int(found[1])
            elif word not in FAR and not found:
                raise fail("E541", f"{where}: {word[:40]!r} is neither NVLinks nor a distance")
    return links, far


def _device(links: dict[tuple[int, int], int], gpus: int, assumed: list[str]) -> Hardware:
    """Returns the most common GPU with this number of links, since the table does not name it."""
    most = max(links.values(), default=0)
    each = max(
        (sum(n for (u, _), n in links.items() if u == gpu) for gpu in range(gpus)), default=0
    )
    name = BY_LINKS.get(each) or BY_LINKS.get(most) or ("A6000" if most else "L40S")
    had = f"{min(each, most) if each not in BY_LINKS else each} NVLinks" if most else "no NVLink"
    assumed.append(f"GPUs are {name}, the most common one with {had} (--device)")
    return load.devices()[name]


def _switched(links: dict[tuple[int, int], int], gpus: int, links_per_gpu: int) -> tuple[int, ...]:
    """Returns each GPU's links into a switch, if all pairs have more than could be direct."""
    counts = set(links.values())
    whole = len(links) == gpus * (gpus - 1) and len(counts) == 1
    if not whole or gpus < 2 or max(counts) * (gpus - 1) <= links_per_gpu:
        return ()
    return (max(counts),) * gpus


def _buses(far: list[list[int]], bus: float) -> Iterator[Bus]:
    """Yields each GPU's own PCI Express, that of GPUs below one switch, and that between NUMA
    nodes."""
    n = len(far)
    for gpu in range(n):
        yield Bus((gpu,), tuple(v for v in range(n) if v != gpu), bus)
    for gpus in _within(far, SWITCH):
        if 1 < len(gpus) < n:
            yield Bus(gpus, tuple(v for v in range(n) if v not in gpus), bus)
    for a, b in combinations(_within(far, BRIDGE), 2):
        yield Bus(a, b, SOCKETS)


def _within(far: list[list[int]], limit: int) -> list[tuple[int, ...]]:
    """Returns groups of GPUs that are at most `limit` apart, over others too."""
    left, found = list(range(len(far))), []
    while left:
        group, new = {left[0]}, [left[0]]
        while new:
            u = new.pop()
            more = [v for v in left if v not in group and far[u][v] <= limit]
            group.update(more)
            new += more
        found.append(tuple(sorted(group)))
        left = [v for v in left if v not in group]
    return found


def _nics(
    source: Source, names: Sequence[str], gpus: list[int], far: list[list[int]]
) -> Iterator[FoundNic]:
    """Yields the NICs, with their names from the legend below the table."""
    legend = (LEGEND.match(line) for line in source.text.splitlines())
    called = {m[1]: m[2] for m in legend if m}
    for nic in (i for i in range(len(names)) if i not in gpus):
        name = called.get(names[nic], names[nic])
        # `mlx5` may be InfiniBand or Ethernet: of such servers most have the former.
        kind = "InfiniBand" if name.startswith("mlx") else identify.network_of(name, "", "")
        depth = [-far[gpu][nic] for gpu in gpus]
        yield FoundNic(nic, name, (name, ""), kind, 0, None, tuple(depth))
