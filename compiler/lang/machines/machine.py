"""Machine: one node as its description has it, before it is a cluster file.

GPUs are numbered as ranks of the node are. GB/s are of one direction. `read` and `assumed` say in
sentences what is from the description, and what is from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hccc.shipped.hardware.load import Hardware

BRIDGE = 12.0  # GB/s of an NVLink between two cards (NCCL 2.30.7 src/graph/topo.h:17-35, SM86)
MAX_GPUS = 256  # of one machine; pairs of them are looked at


@dataclass(frozen=True, slots=True)
class Bus:
    """What PCI Express or the sockets' interconnect carries between GPUs `a` and GPUs `b`, GB/s."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    rate: float


@dataclass(frozen=True, slots=True)
class Nic:
    """GPUs that send over `count` NICs of `rate` GB/s."""

    gpus: tuple[int, ...]
    rate: float
    count: int


@dataclass(frozen=True, slots=True)
class Machine:
    """One node. links: how many links lead from a GPU to another; to_switch: how many into a
    switch, of each GPU; usual_links: whether the links are those that its device usually has;
    network: a name of the library, None where it is the device's usual one."""

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
        """GB/s that one NVLink or xGMI link delivers."""
        if self.device.word("link") == "pcie":
            return BRIDGE
        return self.device.number("delivered") / self.device.number("links")

    @property
    def over_buses(self) -> bool:
        """Whether some GPUs reach each other by PCI Express only."""
        joined = sum(1 for n in self.to_switch if n)
        switched = joined * (joined - 1)
        return not self.usual_links and len(self.links) + switched < self.gpus * (self.gpus - 1)


def narrowest(buses: Iterable[Bus]) -> tuple[Bus, ...]:
    """Of the buses between the same GPUs the slowest; those of the fewest GPUs first."""
    least: dict[frozenset[tuple[int, ...]], Bus] = {}
    for bus in buses:
        between = frozenset((bus.a, bus.b))
        if bus.a and bus.b and (between not in least or bus.rate < least[between].rate):
            least[between] = bus
    return tuple(sorted(least.values(), key=lambda bus: (len(bus.a), bus.a, bus.b)))


def several(count: int, what: str) -> str:
    """`1 GPU`, `8 GPUs`."""
    return f"{count} {what}{'s' * (count != 1)}"
