"""nics: the NICs that a description names, as those that a cluster file has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hccc.lang.machines import known
from hccc.lang.machines.machine import Nic, several
from hccc.lang.machines.nic_sharing import shared
from hccc.shipped.hardware import load
from hccc.shipped.hardware.load import Hardware

MBPS = 8000.0  # of one GB/s
FASTEST = 10_000_000  # Mb/s; more is kb/s, as RCCL writes Slingshot's
MOST_NAMES, MOST_LETTERS = 8, 32  # that a comment has
SLOW = 0.1  # of the fastest NIC: what is slower carries no collective


@dataclass(frozen=True, slots=True)
class Found:
    """One NIC. port: what no other has; speed: Mb/s, 0 where unknown; bus: GB/s of its PCI Express;
    depth: how much of the way from the top each GPU has in common with it."""

    number: int
    name: str
    port: tuple[str, str]
    kind: str
    speed: int
    bus: float | None
    depth: tuple[int, ...]


def wired(
    found: Sequence[Found],
    device: Hardware,
    joined: Hardware | None,
    read: list[str],
    assumed: list[str],
) -> tuple[tuple[Nic, ...], Hardware | None]:
    """The NICs and their network, told in `read` and `assumed`. joined: as the user says."""
    kept = _fast(_real(found), assumed)
    if not kept:
        if joined is None:
            return (), None
        assumed.append(f"NICs: those that a node usually has of {joined.name}")
        return (), joined
    net = known.as_old_as(joined or network(kept), device)
    if any(nic.speed > FASTEST for nic in kept):
        assumed.append("speeds of NICs above 10 Tb/s are in kb/s")
    rates = {nic.number: _rate(nic, net, device) for nic in kept}
    near = _nearest(kept)
    read.append(f"{several(len(kept), 'NIC')} of {net.name}{_named(kept)}")
    if not all(nic.speed for nic in kept):
        assumed.append(f"the speed of NICs: as {net.name} of {device.name} usually has")
    assumed.append(
        f"GPUs divide the NICs nearest to them, of whose wire {net.number('delivered'):.0%} arrives"
    )
    if far := [nic for nic in kept if not any(nic.number in nics for nics in near)]:
        assumed.append(f"{several(len(far), 'NIC')} nearest to no GPU carry nothing{_named(far)}")
    return shared(near, rates), net


def network(found: Sequence[Found]) -> Hardware:
    """The network of most of the NICs."""
    kinds = [nic.kind for nic in found]
    return load.networks()[max(dict.fromkeys(kinds), key=kinds.count)]


def _real(found: Sequence[Found]) -> list[Found]:
    """Without virtual NICs, and each once (a NIC that reduces is there twice)."""
    once = list({nic.port: nic for nic in found}.values())
    return [nic for nic in once if not known.VIRTUAL.match(nic.name)] or once


def _fast(found: Sequence[Found], assumed: list[str]) -> list[Found]:
    most = max((nic.speed for nic in found), default=0)
    kept = [nic for nic in found if nic.speed >= SLOW * most]
    if len(kept) < len(found):
        slow = _named([nic for nic in found if nic not in kept])
        assumed.append(f"NICs far slower than the others carry nothing{slow}")
    return kept


def _named(nics: Sequence[Found]) -> str:
    """`: mlx5_0, mlx5_1`; nothing where they have no names."""
    names = sorted(nic.name[:MOST_LETTERS] for nic in nics if nic.name)
    rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f": {', '.join(names[:MOST_NAMES])}{rest}" if names else ""


def _rate(nic: Found, net: Hardware, device: Hardware) -> float:
    """GB/s that arrive over one NIC."""
    speed = nic.speed / 1000 if nic.speed > FASTEST else nic.speed
    wire = speed / MBPS
    if not wire:
        usual = device.word("node_network") == net.name
        wire = device.number("node_nic") if usual else net.number("bandwidth")
    arrives = wire * net.number("delivered")
    return arrives if nic.bus is None else min(arrives, nic.bus)


def _nearest(found: Sequence[Found]) -> list[tuple[int, ...]]:
    """The NICs nearest to each GPU."""
    near = []
    for depths in zip(*(nic.depth for nic in found), strict=True):
        most = max(depths)
        near.append(tuple(nic.number for nic, d in zip(found, depths, strict=True) if d == most))
    return near
