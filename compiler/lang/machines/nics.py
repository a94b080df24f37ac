"""nics: from the NICs that a description names to those of a cluster file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hccc.lang.machines import identify
from hccc.lang.machines.machine import Nic, counted
from hccc.lang.machines.nic_sharing import share_nics
from hccc.shipped.hardware import load
from hccc.shipped.hardware.load import Hardware

MBPS = 8000.0  # of one GB/s
FASTEST = 10_000_000  # Mb/s; more is kb/s, as RCCL writes Slingshot's
MOST_NAMES, MOST_LETTERS = 8, 32  # in a comment
SLOW = 0.1  # of the fastest NIC: slower ones carry no collective


@dataclass(frozen=True, slots=True)
class FoundNic:
    """One NIC, or port of a NIC. port: distinguishes it from all others; speed: Mb/s, 0 if unknown;
    bus: GB/s of its PCI Express, which all ports of one `card` share; depth: for each GPU, the
    length of their common path from the top of the tree."""

    number: int
    name: str
    port: tuple[str, str]
    kind: str
    speed: int
    bus: float | None
    depth: tuple[int, ...]
    card: str = ""


def nics_and_network(
    all_nics: Sequence[FoundNic],
    device: Hardware,
    network: Hardware | None,
    read: list[str],
    assumed: list[str],
) -> tuple[tuple[Nic, ...], Hardware | None]:
    """Returns the NICs and their network, and adds sentences about them to `read` and `assumed`.

    network: as the user named it, or None.
    """
    kept = _fast(_real(all_nics), assumed)
    if not kept:
        if network is None:
            return (), None
        assumed.append(f"NICs: those that a node usually has of {network.name}")
        return (), network
    net = identify.for_generation(network or most_common(kept), device)
    if any(nic.speed > FASTEST for nic in kept):
        assumed.append("speeds of NICs above 10 Tb/s are in kb/s")
    rates = _rates(kept, net, device, assumed)
    near = _nearest(kept)
    read.append(f"{counted(len(kept), 'NIC')} of {net.name}{_named(kept)}")
    if not all(nic.speed for nic in kept):
        assumed.append(f"the speed of NICs: as {net.name} of {device.name} usually has")
    assumed.append(
        f"GPUs divide the NICs nearest to them, of whose wire {net.number('delivered'):.0%} arrives"
    )
    if far := [nic for nic in kept if not any(nic.number in nics for nics in near)]:
        assumed.append(f"{counted(len(far), 'NIC')} nearest to no GPU carry nothing{_named(far)}")
    return share_nics(near, rates), net


def most_common(all_nics: Sequence[FoundNic]) -> Hardware:
    """Returns the network of most of the NICs."""
    kinds = [nic.kind for nic in all_nics]
    return load.networks()[max(dict.fromkeys(kinds), key=kinds.count)]


def _real(all_nics: Sequence[FoundNic]) -> list[FoundNic]:
    """Removes virtual NICs and duplicates (a NIC that reduces is listed twice)."""
    once = list({nic.port: nic for nic in all_nics}.values())
    return [nic for nic in once if not identify.VIRTUAL.match(nic.name)] or once


def _fast(all_nics: Sequence[FoundNic], assumed: list[str]) -> list[FoundNic]:
    most = max((nic.speed for nic in all_nics), default=0)
    kept = [nic for nic in all_nics if nic.speed >= SLOW * most]
    if len(kept) < len(all_nics):
        slow = _named([nic for nic in all_nics if nic not in kept])
        assumed.append(f"NICs far slower than the others carry nothing{slow}")
    return kept


def _named(nics: Sequence[FoundNic]) -> str:
    """Writes `: mlx5_0, mlx5_1`, or nothing if they have no names."""
    names = sorted(nic.name[:MOST_LETTERS] for nic in nics if nic.name)
    rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f": {', '.join(names[:MOST_NAMES])}{rest}" if names else ""


def _rates(
    kept: Sequence[FoundNic], net: Hardware, device: Hardware, assumed: list[str]
) -> dict[int, float]:
    """Returns the GB/s that arrive over each NIC, by number: ports of one card have no more
    together than its PCI Express."""
    rates = {nic.number: _rate(nic, net, device) for nic in kept}
    cards: dict[str, list[FoundNic]] = {}
    for nic in kept:
        if nic.card and nic.bus is not None:
            cards.setdefault(nic.card, []).append(nic)
    for ports in cards.values():
        total, bus = sum(rates[nic.number] for nic in ports), ports[0].bus or 0.0
        if len(ports) > 1 and total > bus:
            rates |= {nic.number: rates[nic.number] * bus / total for nic in ports}
            assumed.append(f"ports of one NIC share its {bus:g} GB/s of PCI Express{_named(ports)}")
    return rates


def _rate(nic: FoundNic, net: Hardware, device: Hardware) -> float:
    """Returns the GB/s that arrive over one NIC."""
    speed = nic.speed / 1000 if nic.speed > FASTEST else nic.speed
    wire = speed / MBPS
    if not wire:
        usual = device.word("node_network") == net.name
        wire = device.number("node_nic") if usual else net.number("bandwidth")
    arrives = wire * net.number("delivered")
    return arrives if nic.bus is None else min(arrives, nic.bus)


def _nearest(all_nics: Sequence[FoundNic]) -> list[tuple[int, ...]]:
    """Returns the NICs nearest to each GPU."""
    near = []
    for depths in zip(*(nic.depth for nic in all_nics), strict=True):
        most = max(depths)
        near.append(tuple(nic.number for nic, d in zip(all_nics, depths, strict=True) if d == most))
    return near
