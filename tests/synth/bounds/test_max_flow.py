"""The bounds of all collectives on irregular machines, as networkx's maximum flows have them.

The graphs are made here from the same numbers as the cluster files, by nothing of hccc's: every set
of ranks, every partition of them, and every flow is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest
from scipy.optimize import linprog  # type: ignore[import-untyped]

from hccc.ir.collective import OpType
from hccc.ir.topology import Topology
from hccc.synth.bounds.certificate import tightened
from hccc.testing.clusters import cluster

Arcs = list[tuple[object, object, float]]


@dataclass(frozen=True)
class Machine:
    """A machine as a cluster file, and as arcs of GB/s between ranks, 0 to n - 1, and hubs."""

    n: int
    text: str
    arcs: Arcs


def dies() -> Machine:
    """Makes eight dies of four MI250X, whose links are irregular, and fewer one way than back."""
    wires = [(0, 1, 4), (0, 2, 1), (0, 6, 2), (1, 3, 1), (1, 5, 1), (2, 3, 4), (2, 4, 2)]
    wires += [(3, 7, 1), (4, 5, 4), (4, 6, 1), (5, 7, 1), (6, 7, 4)]
    both = [(a, b, 36.0 * k) for u, v, k in wires for a, b in ((u, v), (v, u))]
    both = [(a, b, w / 2 if (a, b) in ((7, 6), (1, 0)) else w) for a, b, w in both]
    links = ", ".join(f"(({a},{b}) -> {w:g})" for a, b, w in both)
    text = f"define node1 = 8\ndefine bandwidth = {{direct => [{links}]}}"
    return Machine(8, text, list(both))


def sockets() -> Machine:
    """Makes five GPUs on PCI Express of 24 GB/s, three below one socket, and 16 GB/s between."""
    a, b = (0, 1, 2), (3, 4)
    own = [f"(({r}), ({', '.join(str(x) for x in range(5) if x != r)}) >-> 24)" for r in range(5)]
    text = (
        "define node1 = 5\ndefine bandwidth = "
        f"{{switch => [{', '.join(own)}, ((0..2), (3, 4) >-> 16)]}}"
    )
    arcs: Arcs = [("a", "b", 16.0), ("b", "a", 16.0)]
    for side, name in ((a, "a"), (b, "b")):
        arcs += [arc for r in side for arc in ((r, name, 24.0), (name, r, 24.0))]
    return Machine(5, text, arcs)


def nodes() -> Machine:
    """Makes nodes of two, three and two GPUs, with a NIC for all, two NICs, and one for each."""
    text = """
define network = {name => InfiniBand, delivered => 1}
define node1 = 2
define bandwidth = {port => [((0,1) -> 100)]}
define nic = [((0,1) -> 25)]
define node2 = 3
define bandwidth = {port => [((0..2) -> 100)]}
define nic = [((0,1) -> 25), ((2) -> 40)]
define node3 = 2
define bandwidth = {port => [((0,1) -> 100)]}
define nic = [((0) -> 12.5), ((1) -> 12.5)]
"""
    bars: dict[str, tuple[int, ...]] = {"x": (0, 1), "y": (2, 3, 4), "z": (5, 6)}
    arcs: Arcs = []
    for bar, ranks in bars.items():
        arcs += [arc for r in ranks for arc in ((r, bar, 100.0), (bar, r, 100.0))]
    for i, (ranks, rate) in enumerate([((0, 1), 25), ((2, 3), 25), ((4,), 40), ((5,), 12.5)]):
        arcs += _nic(i, ranks, rate)
    return Machine(7, text, arcs + _nic(4, (6,), 12.5))


def _nic(i: int, ranks: tuple[int, ...], rate: float) -> Arcs:
    """Makes the arcs of a NIC that ranks share, which leads to one switch."""
    ways = [arc for r in ranks for arc in ((r, f"out{i}", np.inf), (f"in{i}", r, np.inf))]
    return [*ways, (f"out{i}", "switch", rate), ("switch", f"in{i}", rate)]


MACHINES = {"dies": dies(), "sockets": sockets(), "nodes": nodes()}


@cache
def into(name: str, *, back: bool) -> dict[frozenset[int], float]:
    """Returns the maximum flow from all other ranks into each set of them, or back."""
    machine = MACHINES[name]
    g: nx.DiGraph[object] = nx.DiGraph()
    for u, v, rate in machine.arcs:
        tail, head = (v, u) if back else (u, v)
        g.add_edge(tail, head, **({} if np.isinf(rate) else {"capacity": rate}))
    found = {}
    for k in range(1, machine.n):
        for ranks in combinations(range(machine.n), k):
            h = g.copy()
            h.add_edges_from(("from", r) for r in range(machine.n) if r not in ranks)
            h.add_edges_from((r, "to") for r in ranks)
            found[frozenset(ranks)] = float(nx.maximum_flow_value(h, "from", "to"))
    return found


def partitions(n: int) -> Iterator[list[list[int]]]:
    """Yields all partitions of n ranks."""
    if n == 0:
        yield []
        return
    for parts in partitions(n - 1):
        yield [*parts, [n - 1]]
        for i, part in enumerate(parts):
            yield [*parts[:i], [*part, n - 1], *parts[i + 1 :]]


def rate(name: str, op: OpType, root: int) -> float:
    """Returns the GB/s that the bound lets through as sizes grow."""
    t: Topology = cluster(MACHINES[name].text)
    found, best = tightened(t, op, root)
    assert found.cut is not None
    cut = float(found.cut.algbw)
    return cut if best is None or op is OpType.ALLREDUCE else min(cut, best.algbw)


@pytest.mark.slow
@pytest.mark.parametrize("root", [0, 4])
@pytest.mark.parametrize("name", MACHINES)
def test_of_one_set_of_ranks(name: str, root: int) -> None:
    n = MACHINES[name].n
    for ops, back in (
        ((OpType.GATHER, OpType.BROADCAST), False),
        ((OpType.SCATTER, OpType.REDUCE), True),
    ):
        least = into(name, back=back)
        funnel = min(w * n / (n - len(s)) for s, w in least.items() if root in s)
        whole = min(w for s, w in least.items() if root not in s)
        assert rate(name, ops[0], root) == pytest.approx(funnel, rel=1e-5)
        assert rate(name, ops[1], root) == pytest.approx(whole, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_of_all_ranks(name: str) -> None:
    """Of two GPUs with one NIC neither sees what goes to the other: over trees it is less."""
    n = MACHINES[name].n
    for op, back in ((OpType.ALLGATHER, False), (OpType.REDUCESCATTER, True)):
        cut = min(w * n / (n - len(s)) for s, w in into(name, back=back).items())
        found = rate(name, op, 0)
        assert found <= cut * (1 + 1e-5)
        if name == "dies":  # where no switch is, the trees reach it (Edmonds)
            assert found == pytest.approx(cut, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_of_partitions(name: str) -> None:
    """An Allreduce is bounded as tightly as by each partition and each cut."""
    n = MACHINES[name].n
    found = rate(name, OpType.ALLREDUCE, 0)
    for back in (False, True):
        least = into(name, back=back)
        best = min(least.values())
        for parts in partitions(n):
            if len(parts) > 1:
                total = sum(least[frozenset(part)] for part in parts)
                best = min(best, total / (2 * (len(parts) - 1)))
        assert found <= best * (1 + 1e-5)


@pytest.mark.parametrize("name", MACHINES)
def test_of_flows_from_each_rank_to_each(name: str) -> None:
    machine = MACHINES[name]
    n, arcs = machine.n, machine.arcs
    at = {v: i for i, v in enumerate(dict.fromkeys([*range(n), *(a[0] for a in arcs)]))}
    columns, equal = 1 + n * len(arcs), []
    for target in range(n):
        for v in set(at.values()) - {target}:
            row = np.zeros(columns)
            row[0] = 1 / n if v < n else 0.0
            for j, (a, b, _) in enumerate(arcs):
                row[1 + target * len(arcs) + j] = (at[b] == v) - (at[a] == v)
            equal.append(row)
    held = [j for j, arc in enumerate(arcs) if np.isfinite(arc[2])]
    most = np.zeros((len(held), columns))
    for i, j in enumerate(held):
        most[i, 1 + j :: len(arcs)] = 1.0
    gain = np.zeros(columns)
    gain[0] = -1.0
    solved = linprog(
        gain,
        A_ub=most,
        b_ub=[arcs[j][2] for j in held],
        A_eq=np.array(equal),
        b_eq=np.zeros(len(equal)),
    )
    assert rate(name, OpType.ALLTOALL, 0) == pytest.approx(-float(solved.fun), rel=1e-5)
