"""node_view: the inside of one node: its GPUs in a row, NICs above them, links and switches below.

Columns are the GPUs the node was built with. Of a node with very many, the first and the last are
drawn, and between them one column for all the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hccc.ir import text
from hccc.ir.topology import Level, Rate, Topology
from hccc.pictures.node_classes import gathered, in_runs

MOST = 20  # GPUs of a node that are drawn one by one
HEAD = 12


@dataclass(frozen=True, slots=True)
class GpuColumn:
    """A column: `label` and `below` name it; `column` is its place from the left."""

    label: str
    below: str
    failed: bool
    column: int


@dataclass(frozen=True, slots=True)
class Hub:
    """A part that several GPUs share: a NIC, or a crossbar with a port for each (`spokes`:
    GB/s)."""

    lines: tuple[str, ...]
    columns: tuple[int, ...]
    capacity: float
    group: int


@dataclass(frozen=True, slots=True)
class Arc:
    """A link between two columns. `both`: one like it leads back."""

    a: int
    b: int
    rate: Rate
    both: bool


@dataclass(frozen=True, slots=True)
class SwitchGroup:
    """A SWITCH group within the node: the columns at its two sides."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    rate: Rate


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node, ready to be drawn."""

    columns: int
    gpus: tuple[GpuColumn, ...]
    nics: tuple[Hub, ...]
    bars: tuple[tuple[Hub, ...], ...]  # of every crossbar, its ports
    arcs: tuple[Arc, ...]
    switches: tuple[SwitchGroup, ...]
    facts: tuple[str, ...]  # what the arcs and bars are, in words


class _Columns:
    """The columns of the GPUs of a node."""

    def __init__(self, t: Topology, node: int) -> None:
        self.t, self.node, self.size = t, node, int(t.node_size[node])
        self.whole = self.size <= MOST
        self.count = self.size if self.whole else HEAD + 2
        self.first = int(t.first_rank[node])
        self.ranks = range(self.first, int(t.first_rank[node + 1]))

    def of_gpu(self, local: int) -> int:
        """Returns the column of a GPU."""
        if self.whole or local < HEAD:
            return local
        return self.count - 1 if local == self.size - 1 else HEAD

    def of(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """Returns the columns of ranks, each once, ascending."""
        return tuple(sorted({self.of_gpu(int(self.t.local[r])) for r in ranks}))


def node_view(t: Topology, node: int) -> NodeView:
    """Returns the parts of a node to draw. O(its links and groups; a mesh counts n² of at most
    MOST)."""
    c = _Columns(t, node)
    meshes = gathered([r for r in c.ranks if t.mesh[r] >= 0], lambda r: int(t.mesh[r]))
    ports = t.port[Level.PORT]
    bars = gathered([r for r in c.ranks if ports[r] >= 0], lambda r: int(t.domain[Level.PORT][r]))
    at_home = (t.node[t.link_src] == node) & (t.node[t.link_dst] == node)
    links: list[int] = np.flatnonzero(at_home).tolist()
    arcs = [arc for mesh in meshes for arc in _mesh_arcs(t, c, mesh)]
    arcs += _link_arcs(t, c, links)
    facts = [
        *(_mesh_fact(t, mesh) for mesh in _alike_meshes(t, meshes)),
        *_bar_facts(t, bars),
        *_link_facts(t, links),
    ]
    return NodeView(
        columns=c.count,
        gpus=tuple(_gpus(t, c)),
        nics=tuple(_nics(t, c)),
        bars=tuple(tuple(_ports(t, c, bar)) for bar in bars),
        arcs=tuple(arcs),
        switches=tuple(_switches(t, c)),
        facts=tuple(facts),
    )


def _gpus(t: Topology, c: _Columns) -> Iterator[GpuColumn]:
    rank_of = {int(t.local[r]): r for r in c.ranks}
    hidden = 0
    for local in range(c.size):
        column = c.of_gpu(local)
        if not c.whole and column == HEAD:
            hidden += 1
            continue
        rank = rank_of.get(local)
        label = "failed" if rank is None else str(rank)
        yield GpuColumn(label, f"GPU {local}", rank is None, column)
    if hidden:
        yield GpuColumn(f"+ {hidden}", "more", False, HEAD)


def _nics(t: Topology, c: _Columns) -> Iterator[Hub]:
    nic = t.port[Level.NIC]
    groups = gathered([r for r in c.ranks if nic[r] >= 0], lambda r: int(nic[r]))
    hidden: list[int] = []
    for i, ranks in enumerate(sorted(groups, key=lambda g: int(nic[g[0]]))):
        k = int(nic[ranks[0]])
        columns = c.of(ranks)
        if not c.whole and columns == (HEAD,):
            hidden.append(k)
            continue
        rate = t.shared[k]
        yield Hub((f"NIC {i}", text.rate(rate)), columns, rate.bandwidth * rate.parallel, k)
    if hidden:
        yield Hub((f"+ {len(hidden)}", "NICs"), (HEAD,), float(t.shared.capacity[hidden[0]]), -1)


def _ports(t: Topology, c: _Columns, bar: Sequence[int]) -> Iterator[Hub]:
    """Yields the ports of one crossbar; of a hidden column the first."""
    seen: set[int] = set()
    for rank in bar:
        k = int(t.port[Level.PORT][rank])
        columns = c.of([rank])
        if columns[0] not in seen:
            seen.add(columns[0])
            yield Hub((text.rate(t.shared[k]),), columns, float(t.shared.capacity[k]), k)


def _mesh_arcs(t: Topology, c: _Columns, mesh: Sequence[int]) -> Iterator[Arc]:
    rate, columns = t.meshes[int(t.mesh[mesh[0]])], c.of(mesh)
    linked = (
        set(zip(t.link_src.tolist(), t.link_dst.tolist(), strict=True))
        if len(mesh) <= MOST
        else set()
    )
    taken = {(c.of([u])[0], c.of([v])[0]) for u, v in linked if u in mesh and v in mesh}
    for i, a in enumerate(columns):
        for b in columns[i + 1 :]:
            if (a, b) not in taken and (b, a) not in taken:
                yield Arc(a, b, rate, True)


def _link_arcs(t: Topology, c: _Columns, links: Sequence[int]) -> Iterator[Arc]:
    """Yields the links; one arc for both ways if they are alike."""
    rates = {(int(t.link_src[i]), int(t.link_dst[i])): t.links[i] for i in links}
    seen: set[tuple[int, int, Rate]] = set()
    for (u, v), rate in rates.items():
        both = rates.get((v, u)) == rate
        (a,), (b,) = c.of([u]), c.of([v])
        key = (min(a, b), max(a, b), rate) if both else (a, b, rate)
        if a != b and key not in seen:
            seen.add(key)
            yield Arc(a, b, rate, both)


def _switches(t: Topology, c: _Columns) -> Iterator[SwitchGroup]:
    for k in range(t.n_switches):
        a, b = t.side_a.row(k).tolist(), t.side_b.row(k).tolist()
        if t.node[a[0]] == c.node == t.node[b[0]]:
            yield SwitchGroup(c.of(a), c.of(b), t.shared[t.first_switch + k])


def _alike_meshes(t: Topology, meshes: Sequence[list[int]]) -> list[list[list[int]]]:
    return in_runs(meshes, lambda m: (len(m), t.meshes[int(t.mesh[m[0]])]))


def _mesh_fact(t: Topology, meshes: Sequence[list[int]]) -> str:
    rate = t.meshes[int(t.mesh[meshes[0][0]])]
    which = "" if len(meshes) == 1 else f" in {len(meshes)} groups"
    return f"mesh: {text.rate(rate)} between every two{which}, each way; α {text.time(rate.alpha)}"


def _bar_facts(t: Topology, bars: Sequence[list[int]]) -> Iterator[str]:
    ports = t.port[Level.PORT]
    for same in gathered(bars, lambda b: tuple(t.shared[int(ports[r])] for r in b)):
        rates = gathered(same[0], lambda r: t.shared[int(ports[r])])
        label = ", ".join(f"{len(r)} × {text.rate(t.shared[int(ports[r[0]])])}" for r in rates)
        alpha = t.shared[int(ports[same[0][0]])].alpha
        yield f"crossbar: ports {label}, each way; α {text.time(alpha)}"


def _link_facts(t: Topology, links: Sequence[int]) -> Iterator[str]:
    for same in gathered(links, lambda i: t.links[int(i)]):
        rate = t.links[int(same[0])]
        u, v = (int(t.local[x[same[0]]]) for x in (t.link_src, t.link_dst))
        what = f"link from GPU {u} to GPU {v}: "
        if len(same) > 1:
            what = f"{len(same)} direct links, one way each: "
        label = f"{what}{text.rate(rate)}"
        yield f"{label}; α {text.time(rate.alpha)}"
