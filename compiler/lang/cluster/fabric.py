"""Links and NICs of nodes whose file gives none: as the library knows their device and network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hccc.lang.cluster.devices import Joined, of_library
from hccc.lang.cluster.entries import Made
from hccc.lang.cluster.kinds import Kind
from hccc.lang.cluster.shapes import Speed
from hccc.lang.mistakes import Mistake
from hccc.shipped.hardware import load
from hccc.shipped.hardware.load import Hardware

# Pairs of a DGX-1 with V100 (`nvidia-smi topo -m` of one): two links each, one link each.
TWICE = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
ONCE = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
CUBE = 8  # GPUs of such a node
EIGHT = 8  # GPUs of a node that `nics` of a network is of
IN_NODE = ("direct", "mesh", "switch", "port")


def fill(kind: Kind, *, reached: bool) -> None:
    """Gives a kind of nodes the links and NICs that its file leaves out, and its estimates those
    figures only that it then depends on. reached: whether nodes are joined without NICs."""
    if kind.filled:
        return
    kind.filled = True
    known: set[str] = set()
    if not set(IN_NODE) & set(kind.made):
        kind.made |= _links(kind)
    else:
        known.add("delivered")
    if not any(_silent(kind, what) for what in IN_NODE if what in kind.made):
        known.add("alpha_simple")
    if "base" in kind.launches:
        known.add("launch")
    kind.chosen = kind.chosen.without(known)
    _join(kind, reached)


def _silent(kind: Kind, what: str) -> bool:
    """Whether an entry has no latency of its own, nor does the file give one for its kind."""
    return what not in kind.latency and any(s.alpha is None for _, _, s in kind.made[what])


def _links(kind: Kind) -> dict[str, list[Made]]:
    """`bandwidth` of a node of this device."""
    device, hardware = kind.device, kind.chosen.hardware
    if kind.size == 1 or hardware is None or not device.link:
        return {}
    everyone = list(range(kind.size))
    if device.link == "nvlink" and kind.size == CUBE:
        return _cube(kind, hardware)
    if hardware.word("link") == "pcie" != device.link and kind.size > 2:
        return _pairs(kind, hardware)
    if device.link == "xgmi":
        links = int(hardware.number("links"))
        return _mesh(kind, device.delivered / max(links, kind.size - 1))
    if device.link == "mesh" or (device.link == "nvlink" and kind.size <= CUBE // 2):
        return _mesh(kind, device.delivered / (kind.size - 1))
    return {"port": [(everyone, [], Speed(device.delivered, 1, None, kind.at))]}


def _mesh(kind: Kind, rate: float) -> dict[str, list[Made]]:
    return {"mesh": [(list(range(kind.size)), [], Speed(rate, 1, None, kind.at))]}


def _cube(kind: Kind, hardware: Hardware) -> dict[str, list[Made]]:
    """A hybrid cube mesh; between GPUs without a link, PCI Express."""
    rate = kind.device.delivered / hardware.number("links")
    pairs = [(pair, count) for count, of in ((2, TWICE), (1, ONCE)) for pair in of]
    bus = load.pcie(hardware.word("pcie"), peer=True)
    return _linked(kind, pairs, rate, bus)


def _pairs(kind: Kind, hardware: Hardware) -> dict[str, list[Made]]:
    """Cards with NVLink bridges, each to one other; between others, PCI Express."""
    pairs = [((gpu, gpu + 1), 1) for gpu in range(0, kind.size - 1, 2)]
    return _linked(kind, pairs, kind.device.delivered, hardware)


def _linked(
    kind: Kind, pairs: Sequence[tuple[tuple[int, int], int]], rate: float, bus: Hardware
) -> dict[str, list[Made]]:
    """Links of pairs, so many of each, and PCI Express between all."""
    links: list[Made] = []
    for (u, v), count in pairs:
        speed = Speed(rate, count, None, kind.at)
        links += [([u], [v], speed), ([v], [u], speed)]
    port = Speed(bus.number("delivered"), 1, bus.number("alpha_simple"), kind.at)
    return {"direct": links, "port": [(list(range(kind.size)), [], port)]}


def _join(kind: Kind, reached: bool) -> None:
    """The NICs of its network, where the file has none."""
    hardware = kind.chosen.hardware
    if kind.joined is None and hardware is not None and not reached and "nic" not in kind.made:
        usual = load.network(hardware.word("node_network"))
        kind.joined = of_library(usual) if usual else None
    if kind.joined is None:
        return
    kind.joined = _as_old_as(kind.joined, hardware)
    known: set[str] = set()
    if "nic" not in kind.made and (nics := _count(kind, kind.joined)):
        kind.joined = _on_the_bus(kind, _wired(kind, kind.joined), nics)
        kind.made["nic"] = _nics(kind, kind.joined, nics)
    else:
        known.add("delivered")
    if "nic" not in kind.made or not _silent(kind, "nic"):
        known.add("alpha_simple")
    kind.joined = kind.joined.without(known)


def _as_old_as(joined: Joined, device: Hardware | None) -> Joined:
    """The network, of which the file has the name only, that such devices are joined by."""
    named = joined.hardware
    if device is None or named is None or joined != of_library(named):
        return joined
    older = named.older.get(device.word("generation"))
    return of_library(load.networks()[older]) if older else joined


def _count(kind: Kind, joined: Joined) -> int:
    """How many NICs a node has: as the file says, as nodes with this network, or of its device,
    usually have, or one for each GPU."""
    if joined.nics is not None:
        return joined.nics
    if joined.hardware is not None and "nics" in joined.hardware.figures:
        return max(1, kind.size * int(joined.hardware.number("nics")) // EIGHT)
    if (hardware := kind.chosen.hardware) is None:
        return kind.size
    gpus, nics = (int(hardware.number(f"node_{what}")) for what in ("gpus", "nics"))
    return max(1, kind.size * nics // gpus)


def _wired(kind: Kind, joined: Joined) -> Joined:
    """The network with the GB/s of its NICs."""
    hardware, network = kind.chosen.hardware, joined.network
    if joined.given:
        return joined
    if hardware is not None and hardware.word("node_network") == network.name:
        bandwidth = hardware.number("node_nic")
        return replace(joined, network=replace(network, bandwidth=bandwidth))
    if network.bandwidth == 0:
        help = "`define network = {name => ..., bandwidth => 50}`, or `define nic`"
        raise Mistake("E034", "this network has NICs, and nothing says how fast", kind.at, help)
    return joined


def _on_the_bus(kind: Kind, joined: Joined, nics: int) -> Joined:
    """NICs no faster than the PCI Express that they are on."""
    if (hardware := kind.chosen.hardware) is None:
        return joined
    most = load.nic_limit(hardware, kind.size, nics)
    bandwidth = min(joined.network.bandwidth, most)
    return replace(joined, network=replace(joined.network, bandwidth=bandwidth))


def _nics(kind: Kind, joined: Joined, nics: int) -> list[Made]:
    """GPUs in equal runs on NICs, or several NICs for each GPU."""
    each, size = joined.network.bandwidth * joined.network.delivered, kind.size
    if nics >= size:
        if nics % size:
            message = f"{nics} NICs are not as many for each of {size} GPUs"
            raise Mistake("E132", message, kind.at, "`define nic` says which GPU has which")
        speed = Speed(each, nics // size, None, kind.at)
        return [([gpu], [], speed) for gpu in range(size)]
    speed = Speed(each, 1, None, kind.at)
    runs = [[gpu for gpu in range(size) if gpu * nics // size == nic] for nic in range(nics)]
    return [(run, [], speed) for run in runs]
