"""site: a cluster file before it becomes arrays: its kinds of nodes, and the links between
nodes."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from hccc.ir.device import Device, Network
from hccc.ir.topology import Launch, Rate
from hccc.lang.cluster.devices import DeviceChoice, NetworkChoice
from hccc.lang.cluster.entries import WrittenEntry
from hccc.lang.cluster.shapes import WrittenRate
from hccc.lang.mistakes import At

OUTSIDE = {"direct": 2.6, "switch": 2.6, "leaf": 0.5, "spine": 0.5}


@dataclass(frozen=True, slots=True)
class ResolvedEntry:
    """One link or shared group with its latency: a and b are its two sides, or b is empty."""

    a: list[int]
    b: list[int]
    rate: Rate
    at: At


@dataclass(slots=True)
class NodeKind:
    """`count` equal nodes; `first` is the number of their first (from 0), `size` their GPUs."""

    first: int
    count: int
    size: int
    at: At
    device_choice: DeviceChoice
    network_choice: NetworkChoice | None
    latency: dict[str, float]  # by kind of link, as given in the file
    cores: int  # thread blocks that run at once; 0: no limit
    launches: dict[str, float]  # as given in the file
    written: dict[str, list[WrittenEntry]] = field(default_factory=dict)
    filled: bool = False  # whether the library's links and NICs have been added to `written`

    @property
    def device(self) -> Device:
        """The device of the GPUs."""
        return self.device_choice.device

    @property
    def network(self) -> Network:
        """The network that joins the nodes to others."""
        return self.network_choice.network if self.network_choice else Network()

    @property
    def launch(self) -> Launch:
        """The launch cost: the file's, or else that of the device."""
        return Launch(**{"base": self.device.launch, **self.launches})

    def alpha(self, link: str) -> float:
        """Returns the µs of a kind of link: the file's, or else those of the device or network."""
        known = self.network if link == "nic" else self.device
        return self.latency.get(link, known.alpha.simple)

    def entries(self, link: str) -> list[ResolvedEntry]:
        """Returns all entries of one kind of link, with the latency that holds at the end of the
        file."""
        return [_entry(a, b, s, self.alpha(link)) for a, b, s in self.written.get(link, [])]


@dataclass(slots=True)
class Between:
    """Links and groups between the nodes of one `define internode`."""

    nodes: list[int]
    at: At
    written: dict[str, list[WrittenEntry]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tier:
    """A leaf or spine: the nodes and NICs, or leaves, below it, and its uplinks, if any."""

    below: list[tuple[list[int], list[int] | None]]
    uplinks: WrittenRate | None
    at: At


@dataclass(frozen=True, slots=True)
class Degraded:
    """A part that is slower than its kind: `(node2, nic, 0) -> (2.25, 1)`. kind: "nic", "port",
    "switch", "direct", "leaf", "spine", or "node" for routes between node `number` and the nodes
    `ids`."""

    kind: str
    number: int  # of the node, leaf or spine, from 0
    ids: list[int] | None
    rate: WrittenRate
    at: At


@dataclass(slots=True)
class Site:
    """A whole cluster file."""

    kinds: list[NodeKind] = field(default_factory=list)
    between: list[Between] = field(default_factory=list)
    leaves: list[Tier] = field(default_factory=list)
    spines: list[Tier] = field(default_factory=list)
    memory: list[list[int]] = field(default_factory=list)  # nodes of one memory domain
    clusters: list[list[tuple[int, int]]] = field(default_factory=list)  # GPUs of vendor clusters
    borders: list[tuple[int, int]] = field(default_factory=list)
    failed: list[tuple[int, int, At]] = field(default_factory=list)
    failed_nics: list[tuple[int, int, At]] = field(default_factory=list)
    degraded: list[Degraded] = field(default_factory=list)
    outside: dict[str, float] = field(default_factory=lambda: dict(OUTSIDE))
    chunk: int = 1 << 20
    n_nodes: int = 0

    def kind_number(self, node: int) -> int:
        """Returns the index in `kinds` of node number `node`."""
        return bisect_right(self.kinds, node, key=lambda kind: kind.first) - 1

    def kind(self, node: int) -> NodeKind:
        """Returns the kind of node number `node`."""
        return self.kinds[self.kind_number(node)]


def _entry(a: list[int], b: list[int], s: WrittenRate, alpha: float) -> ResolvedEntry:
    return ResolvedEntry(
        a, b, Rate(s.bandwidth, s.parallel, alpha if s.alpha is None else s.alpha), s.at
    )
