"""A cluster file before there are any arrays: its kinds of nodes, and what joins them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from hccc.ir.device import Device, Network
from hccc.ir.topology import Launch, Rate
from hccc.lang.cluster.devices import Chosen, Joined
from hccc.lang.cluster.entries import Made
from hccc.lang.cluster.shapes import Speed
from hccc.lang.mistakes import At

OUTSIDE = {"direct": 2.6, "switch": 2.6, "leaf": 0.5, "spine": 0.5}


@dataclass(frozen=True, slots=True)
class Entry:
    """One link or resource: a and b are its two sides, or b is empty."""

    a: list[int]
    b: list[int]
    rate: Rate
    at: At


@dataclass(slots=True)
class Kind:
    """`count` nodes alike, the first being node `first` (from 0)."""

    first: int
    count: int
    size: int
    at: At
    chosen: Chosen
    joined: Joined | None
    latency: dict[str, float]  # as far as the file gives any
    cores: int  # thread blocks that run at once; 0: no limit
    launches: dict[str, float]  # as far as the file gives any
    made: dict[str, list[Made]] = field(default_factory=dict)
    filled: bool = False  # what the library knows of its links and NICs is in `made`

    @property
    def device(self) -> Device:
        """The device of its GPUs."""
        return self.chosen.device

    @property
    def network(self) -> Network:
        """What joins it to other nodes."""
        return self.joined.network if self.joined else Network()

    @property
    def launch(self) -> Launch:
        """What the file gives, else its device."""
        return Launch(**{"base": self.device.launch, **self.launches})

    def alpha(self, what: str) -> float:
        """µs of a kind of link: what the file gives, else its device or network."""
        known = self.network if what == "nic" else self.device
        return self.latency.get(what, known.alpha.simple)

    def entries(self, what: str) -> list[Entry]:
        """All of one kind of link, with the latency that holds at the end of the file."""
        return [_entry(a, b, s, self.alpha(what)) for a, b, s in self.made.get(what, [])]


@dataclass(slots=True)
class Between:
    """Links and resources between the nodes of one `define internode`."""

    nodes: list[int]
    at: At
    made: dict[str, list[Made]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tier:
    """A leaf or spine: what is below it (nodes and NICs, or leaves) and its uplinks, if any."""

    below: list[tuple[list[int], list[int] | None]]
    uplinks: Speed | None
    at: At


@dataclass(frozen=True, slots=True)
class Degraded:
    """One thing that is slower than its kind: `(node2, nic, 0) -> (2.25, 1)`. what: also "node",
    routes between node `number` and those of `which`."""

    what: str
    number: int  # of the node, leaf or spine, from 0
    which: list[int] | None
    speed: Speed
    at: At


@dataclass(slots=True)
class Site:
    """A whole cluster file."""

    kinds: list[Kind] = field(default_factory=list)
    between: list[Between] = field(default_factory=list)
    leaves: list[Tier] = field(default_factory=list)
    spines: list[Tier] = field(default_factory=list)
    memory: list[list[int]] = field(default_factory=list)  # nodes of one memory domain
    failed: list[tuple[int, int, At]] = field(default_factory=list)
    failed_nics: list[tuple[int, int, At]] = field(default_factory=list)
    degraded: list[Degraded] = field(default_factory=list)
    outside: dict[str, float] = field(default_factory=lambda: dict(OUTSIDE))
    chunk: int = 1 << 20
    n_nodes: int = 0

    def kind_number(self, node: int) -> int:
        """Which of `kinds` node number `node` is of."""
        return bisect_right(self.kinds, node, key=lambda kind: kind.first) - 1

    def kind(self, node: int) -> Kind:
        """The kind of node number `node`."""
        return self.kinds[self.kind_number(node)]


def _entry(a: list[int], b: list[int], s: Speed, alpha: float) -> Entry:
    return Entry(a, b, Rate(s.bandwidth, s.parallel, alpha if s.alpha is None else s.alpha), s.at)
