"""fabric: the library's links and NICs, for nodes whose file gives none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hccc.lang.cluster.devices import NetworkChoice, of_library
from hccc.lang.cluster.entries import WrittenEntry
from hccc.lang.cluster.shapes import WrittenRate
from hccc.lang.cluster.site import NodeKind
from hccc.lang.mistakes import Mistake
from hccc.shipped.hardware import load
from hccc.shipped.hardware.load import Hardware

# GPUs of a DGX-1 with V100 (`nvidia-smi topo -m`): pairs with two links, pairs with one.
TWICE = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
ONCE = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
CUBE = 8  # GPUs of a DGX-1
EIGHT = 8  # GPUs of the node to which a network's figure `nics` refers
IN_NODE = ("direct", "mesh", "switch", "port")


def fill_from_library(kind: NodeKind, *, reached: bool) -> None:
    """Gives a kind of nodes the links and NICs that its file leaves out, and reduces its estimates
    to the figures used. reached: whether nodes are joined without NICs."""
    if kind.filled:
        return
    kind.filled = True
    known: set[str] = set()
    if not set(IN_NODE) & set(kind.written):
        kind.written |= _links(kind)
    else:
        known.add("delivered")
    if not any(_silent(kind, link) for link in IN_NODE if link in kind.written):
        known.add("alpha_simple")
    if "base" in kind.launches:
        known.add("launch")
    kind.device_choice = kind.device_choice.without(known)
    _join(kind, reached)


def _silent(kind: NodeKind, link: str) -> bool:
    """Tells whether an entry has no latency of its own, nor the file one for this kind of link."""
    return link not in kind.latency and any(s.alpha is None for _, _, s in kind.written[link])


def _links(kind: NodeKind) -> dict[str, list[WrittenEntry]]:
    """Returns the `bandwidth` of a node of this device."""
    device, hardware = kind.device, kind.device_choice.hardware
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
    return {"port": [(everyone, [], WrittenRate(device.delivered, 1, None, kind.at))]}


def _mesh(kind: NodeKind, rate: float) -> dict[str, list[WrittenEntry]]:
    return {"mesh": [(list(range(kind.size)), [], WrittenRate(rate, 1, None, kind.at))]}


def _cube(kind: NodeKind, hardware: Hardware) -> dict[str, list[WrittenEntry]]:
    """Returns a hybrid cube mesh, with PCI Express between GPUs without a link."""
    rate = kind.device.delivered / hardware.number("links")
    pairs = [(pair, count) for count, of in ((2, TWICE), (1, ONCE)) for pair in of]
    bus = load.pcie(hardware.word("pcie"), peer=True)
    return _linked(kind, pairs, rate, bus)


def _pairs(kind: NodeKind, hardware: Hardware) -> dict[str, list[WrittenEntry]]:
    """Returns pairs of cards with an NVLink bridge each, and PCI Express between the pairs."""
    pairs = [((gpu, gpu + 1), 1) for gpu in range(0, kind.size - 1, 2)]
    return _linked(kind, pairs, kind.device.delivered, hardware)


def _linked(
    kind: NodeKind, pairs: Sequence[tuple[tuple[int, int], int]], rate: float, bus: Hardware
) -> dict[str, list[WrittenEntry]]:
    """Returns links of pairs, with the number of links of each, and PCI Express between all."""
    links: list[WrittenEntry] = []
    for (u, v), count in pairs:
        written = WrittenRate(rate, count, None, kind.at)
        links += [([u], [v], written), ([v], [u], written)]
    port = WrittenRate(bus.number("delivered"), 1, bus.number("alpha_simple"), kind.at)
    return {"direct": links, "port": [(list(range(kind.size)), [], port)]}


def _join(kind: NodeKind, reached: bool) -> None:
    """Adds the NICs of the network, if the file has none."""
    hardware = kind.device_choice.hardware
    if (
        kind.network_choice is None
        and hardware is not None
        and not reached
        and "nic" not in kind.written
    ):
        usual = load.network(hardware.word("node_network"))
        kind.network_choice = of_library(usual) if usual else None
    if kind.network_choice is None:
        return
    kind.network_choice = _as_old_as(kind.network_choice, hardware)
    known: set[str] = set()
    if "nic" not in kind.written and (nics := _count(kind, kind.network_choice)):
        kind.network_choice = _on_the_bus(kind, _wired(kind, kind.network_choice), nics)
        kind.written["nic"] = _nics(kind, kind.network_choice, nics)
    else:
        known.add("delivered")
    if "nic" not in kind.written or not _silent(kind, "nic"):
        known.add("alpha_simple")
    kind.network_choice = kind.network_choice.without(known)


def _as_old_as(choice: NetworkChoice, device: Hardware | None) -> NetworkChoice:
    """Returns the network's generation that is usual for the device, if the file gives only the
    network's name."""
    named = choice.hardware
    if device is None or named is None or choice != of_library(named):
        return choice
    older = named.older.get(device.word("generation"))
    return of_library(load.networks()[older]) if older else choice


def _count(kind: NodeKind, choice: NetworkChoice) -> int:
    """Returns the number of NICs of a node: as the file says, as usual with this network or device,
    or one per GPU."""
    if choice.nics is not None:
        return choice.nics
    if choice.hardware is not None and "nics" in choice.hardware.figures:
        return max(1, kind.size * int(choice.hardware.number("nics")) // EIGHT)
    if (hardware := kind.device_choice.hardware) is None:
        return kind.size
    gpus, nics = (int(hardware.number(f"node_{noun}")) for noun in ("gpus", "nics"))
    return max(1, kind.size * nics // gpus)


def _wired(kind: NodeKind, choice: NetworkChoice) -> NetworkChoice:
    """Returns the network with the GB/s of its NICs."""
    hardware, network = kind.device_choice.hardware, choice.network
    if choice.bandwidth_given:
        return choice
    if hardware is not None and hardware.word("node_network") == network.name:
        bandwidth = hardware.number("node_nic")
        return replace(choice, network=replace(network, bandwidth=bandwidth))
    if network.bandwidth == 0:
        help = "`define network = {name => ..., bandwidth => 50}`, or `define nic`"
        raise Mistake("E034", "this network has NICs, and nothing says how fast", kind.at, help)
    return choice


def _on_the_bus(kind: NodeKind, choice: NetworkChoice, nics: int) -> NetworkChoice:
    """Limits NICs to the speed of their PCI Express."""
    if (hardware := kind.device_choice.hardware) is None:
        return choice
    limit = load.nic_limit(hardware, kind.size, nics)
    bandwidth = min(choice.network.bandwidth, limit)
    return replace(choice, network=replace(choice.network, bandwidth=bandwidth))


def _nics(kind: NodeKind, choice: NetworkChoice, nics: int) -> list[WrittenEntry]:
    """Divides the GPUs in equal runs among the NICs, or gives each GPU several NICs."""
    rate, size = choice.network.bandwidth * choice.network.delivered, kind.size
    if nics >= size:
        if nics % size:
            message = f"{nics} NICs are not as many for each of {size} GPUs"
            raise Mistake("E132", message, kind.at, "`define nic` says which GPU has which")
        written = WrittenRate(rate, nics // size, None, kind.at)
        return [([gpu], [], written) for gpu in range(size)]
    written = WrittenRate(rate, 1, None, kind.at)
    runs = [[gpu for gpu in range(size) if gpu * nics // size == nic] for nic in range(nics)]
    return [(run, [], written) for run in runs]
