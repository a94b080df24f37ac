"""machine: one node as its description has it, before it becomes a cluster file.

GPUs are numbered like the ranks of the node. GB/s are of one direction. `read` and `assumed` list
in sentences the facts from the description, and those from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hccc.shipped.hardware.load import Hardware

BRIDGE = 12.0  # GB/s of an NVLink between two cards (NCCL 2.30.7 src/graph/topo.h:17-35, SM86)
MAX_GPUS = 256  # of one machine; time and memory are quadratic in them


@dataclass(frozen=True, slots=True)
class Bus:
    """PCI Express or the sockets' interconnect between GPUs `a` and GPUs `b`, in GB/s."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    rate: float


@dataclass(frozen=True, slots=True)
class Nic:
    """`count` NICs of `rate` GB/s each, and the GPUs that send over them."""

    gpus: tuple[int, ...]
    rate: float
    count: int


@dataclass(frozen=True, slots=True)
class ImportedMachine:
    """One node. links: the number of links from one GPU to another; to_switch: each GPU's links
    into a switch; usual_links: whether the links are the usual ones of its device; network: None if
    it is the device's usual one."""

    name: str
    device: Hardware
    gpus: int
    links: Mapping[tuple[int, int], int] = field(default_factory=dict)
    to_switch: tuple[int, ...] = ()
    usual_links: bool = False
    buses: tuple[Bus, ...] = ()
    nics: tuple[Nic, ...] = ()
    network: Hardware | None = None
    read: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def link_rate(self) -> float:
        """GB/s of one NVLink or xGMI link."""
        return link_rate(self.device)

    @property
    def over_buses(self) -> bool:
        """Whether some GPUs reach each other by PCI Express only."""
        joined = sum(1 for n in self.to_switch if n)
        switched = joined * (joined - 1)
        return not self.usual_links and len(self.links) + switched < self.gpus * (self.gpus - 1)


def link_rate(device: Hardware) -> float:
    """Returns GB/s of one NVLink or xGMI link of a device."""
    if device.word("link") == "pcie":
        return BRIDGE
    return device.number("delivered") / device.number("links")


def narrowest(buses: Iterable[Bus]) -> tuple[Bus, ...]:
    """Keeps the slowest of all buses between the same GPUs, sorted by the number of GPUs."""
    least: dict[frozenset[tuple[int, ...]], Bus] = {}
    for bus in buses:
        between = frozenset((bus.a, bus.b))
        if bus.a and bus.b and (between not in least or bus.rate < least[between].rate):
            least[between] = bus
    return tuple(sorted(least.values(), key=lambda bus: (len(bus.a), bus.a, bus.b)))


def counted(count: int, noun: str) -> str:
    """Writes `1 GPU`, `8 GPUs`."""
    return f"{count} {noun}{'s' * (count != 1)}"
