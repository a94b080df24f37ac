"""site: several measured hosts as one cluster, whose α are those with which the simulator takes as
long as was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hccc.base.diagnostics import Problem, Source
from hccc.base.version import __version__
from hccc.ir.plan import Plan
from hccc.ir.topology import F8, Topology
from hccc.lang.cluster import load as cluster
from hccc.profile.cluster_file import CHUNK, FIRST_LINE, Profile, commented, digits, node_lines
from hccc.profile.lines import GOOD_R2, SMALL
from hccc.profile.links import Exchange, MeasuredFlows, exchange_plan
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate

ALIKE = 0.25  # by which rates of hosts, pairs or directions may differ and be taken for one
TRIED = 1000.0  # µs of α with which calls are simulated to see how often they pay it
SHARED = 0.85  # of what pairs get alone: what all get at once is less where they share something


@dataclass(frozen=True, slots=True)
class MeasuredNode:
    """One host of the site. ranks: that it takes; alpha: µs of links within it; nic, nic_alpha:
    GB/s each way and µs of its NIC."""

    profile: Profile
    ranks: int
    alpha: float
    nic: float
    nic_alpha: float

    def like(self, other: MeasuredNode) -> bool:
        """Tells whether two hosts are taken for the same."""
        a, b = self.profile, other.profile
        rates = (a.costs.block, b.costs.block), (self.nic, other.nic)
        return (a.name, a.cores, self.ranks) == (b.name, b.cores, other.ranks) and all(
            abs(x - y) <= ALIKE * max(x, y) for x, y in rates
        )


@dataclass(frozen=True, slots=True)
class MeasuredSite:
    """All hosts, and what was measured between them.

    slower: pairs of hosts and the GB/s between them, where that is less than their NICs'; uplink:
    GB/s of each host while all send, where that is less; told: paragraphs for the file.
    """

    nodes: tuple[MeasuredNode, ...]
    slower: tuple[tuple[int, int, float], ...] = ()
    uplink: float | None = None
    told: tuple[str, ...] = ()

    def text(self) -> str:
        """Writes the cluster file. Hosts in a row that are alike are written once, as the one
        whose thread blocks are of medium speed."""
        lines = [*self.comments(), f"define chunk = {CHUNK}"]
        lines.append(f"define nodenum = {len(self.nodes)}")
        first = 1
        for group in self._groups():
            node = sorted(group, key=lambda node: node.profile.costs.block)[len(group) // 2]
            size = f"{node.ranks}" if len(group) == 1 else f"{len(group)} * {node.ranks}"
            lines += node_lines(node.profile, first, size, node.ranks, node.alpha)
            if len(self.nodes) > 1:
                nic = float(np.mean([one.nic for one in group]))
                alpha = float(np.mean([one.nic_alpha for one in group]))
                served = f"0..{node.ranks - 1}" if node.ranks > 1 else "0"
                lines.append(f"define nic = [(({served}) -> ({digits(nic)}, 1, {digits(alpha)}))]")
            first += len(group)
        lines += self._network()
        return "\n".join(lines) + "\n"

    def comments(self) -> Iterator[str]:
        """Yields the lines that say what was measured, and how."""
        return commented(self.told)

    def topology(self) -> Topology:
        """Returns the site as a cluster."""
        return cluster.parse(Source("the hosts", self.text()))

    def _groups(self) -> Iterator[list[MeasuredNode]]:
        """Yields hosts in a row that are alike: all are like the first."""
        group: list[MeasuredNode] = []
        for node in self.nodes:
            if group and not node.like(group[0]):
                yield group
                group = []
            group.append(node)
        yield group

    def _network(self) -> Iterator[str]:
        if self.uplink is not None:
            rate = digits(self.uplink)
            leaves = ", ".join(f"((node{i + 1}) -> ({rate}, 1, 0))" for i in range(len(self.nodes)))
            yield f"define leaf = [{leaves}]"
        if self.slower:
            pairs = (f"((node{a + 1}, node{b + 1}) -> {digits(x)})" for a, b, x in self.slower)
            yield f"define degraded = [{', '.join(pairs)}]"


def predicted(plan: Plan, t: Topology, sizes: Sequence[int]) -> F8:
    """Simulates calls on the site: µs of each, f8[len(sizes)]."""
    machine, window = prepare(plan, t), plan.default_window
    return np.array([simulate(machine, Request(size, window=window)).time for size in sizes])


def _cut(nodes: Sequence[MeasuredNode], ranks: int) -> MeasuredSite:
    """Returns a site of these hosts with so many ranks each."""
    return MeasuredSite(tuple(replace(node, ranks=ranks) for node in nodes))


def explained(e: Exchange, nodes: Sequence[MeasuredNode]) -> F8:
    """Returns the relative error of each time of an exchange, as it is simulated: f8[sizes]."""
    t = _cut([nodes[i] for i in e.hosts], 2 // len(e.hosts)).topology()
    errors: F8 = predicted(exchange_plan(len(e.hosts)), t, e.sizes) / np.array(e.times) - 1
    return errors


def _alpha(e: Exchange, nodes: Sequence[MeasuredNode]) -> float:
    """Returns the α with which small calls take as long as they did, in the median."""
    plan, small = exchange_plan(len(e.hosts)), [size for size in e.sizes if size <= SMALL]

    def at(alpha: float) -> F8:
        those = [replace(nodes[i], alpha=alpha, nic_alpha=alpha) for i in e.hosts]
        return predicted(plan, _cut(those, 2 // len(e.hosts)).topology(), small)

    free, with_alpha = at(0.0), at(TRIED)
    times = (with_alpha - free) / TRIED  # how often α is on the way: of credits and of data
    return max(0.0, float(np.median((e.times[: len(small)] - free) / times)))


def site_of(
    names: Sequence[str],
    profiles: Sequence[Profile],
    ranks: Sequence[int],
    within: Sequence[Exchange],
    between: Sequence[Exchange],
    flows: Sequence[MeasuredFlows],
) -> tuple[MeasuredSite, list[Problem]]:
    """Joins what was measured into a site; returns warnings, too."""
    nics = [_nic(i, between, flows) for i in range(len(profiles))]
    nodes = [
        MeasuredNode(p, n, p.costs.alpha, nic, 0.0)
        for p, n, nic in zip(profiles, ranks, nics, strict=True)
    ]
    for e in within:
        nodes[e.hosts[0]] = replace(nodes[e.hosts[0]], alpha=_alpha(e, nodes))
    found = {e.hosts: _alpha(e, nodes) for e in between}
    for i, node in enumerate(nodes):
        # A route has the larger α of its two NICs, so a slow pair does not slow all its host's.
        mine = [alpha for hosts, alpha in found.items() if i in hosts]
        nodes[i] = replace(node, nic_alpha=float(np.median(mine)) if mine else 0.0)
    slower = tuple(
        (e.hosts[0], e.hosts[1], rate)
        for e in between
        if (rate := _pair(e, flows)) < (1 - ALIKE) * min(nics[i] for i in e.hosts)
    )
    uplink = _uplink(nics, slower, flows)
    told = _told(names, nodes, within, between, flows, uplink)
    site = MeasuredSite(tuple(nodes), slower, uplink, tuple(told))
    return site, list(_warnings(names, [*within, *between], flows))


def _pair(e: Exchange, flows: Sequence[MeasuredFlows]) -> float:
    """Returns the GB/s each way between two hosts, by one pair of ranks or all."""
    both = [f.rate for f in flows if f.ranks > 1 and {*f.flows} == {e.hosts, e.hosts[::-1]}]
    return max([e.line.rate, *both])


def _nic(host: int, between: Sequence[Exchange], flows: Sequence[MeasuredFlows]) -> float:
    """Returns the GB/s of a host's NIC: of the fastest of its pairs."""
    return max((_pair(e, flows) for e in between if host in e.hosts), default=0.0)


def _uplink(
    nics: Sequence[float], slower: Sequence[tuple[int, int, float]], flows: Sequence[MeasuredFlows]
) -> float | None:
    """Returns what each host gets while all send to the next, where that is clearly less than the
    slowest of these pairs gets alone."""
    limits = {frozenset((a, b)): rate for a, b, rate in slower}
    for f in flows:
        if len(f.flows) > 2:
            alone = min(limits.get(frozenset(flow), min(nics[i] for i in flow)) for flow in f.flows)
            if f.rate < SHARED * alone:
                return f.rate
    return None


def _told(
    names: Sequence[str],
    nodes: Sequence[MeasuredNode],
    within: Sequence[Exchange],
    between: Sequence[Exchange],
    flows: Sequence[MeasuredFlows],
    uplink: float | None,
) -> Iterator[str]:
    """Yields the paragraphs of the file: when and where, each link, what explains it how well."""
    date = max(node.profile.date for node in nodes)
    hosts = ", ".join(f"{name} ({node.ranks})" for name, node in zip(names, nodes, strict=True))
    option = "--hosts" if len(nodes) > 1 else "--procs"
    yield f"{FIRST_LINE.removeprefix('# ')} ({option}) {__version__} on {date}: {hosts}."
    for name, node in zip(names, nodes, strict=True):
        p = node.profile
        yield (
            f"{name}: {p.name}, {p.cores or 'no'} cores; {p.launches:,} launches in {p.seconds:g} "
            f"s, explained within {p.error_small:.0%} (small) and {p.error_large:.0%} (large); "
            f"links within it are given what all cores copy at best."
        )
    yield (
        "Exchanges of two ranks in processes, by a SendRecv plan: µs + bytes / (GB/s). R² and the "
        "largest error are those of this line; then how far the simulator is off on this cluster, "
        "in the median and at most. The α below are those that make it right for small sizes."
    )
    for e in (*within, *between):
        line, off = e.line, np.abs(explained(e, nodes))
        yield (
            f"  {' and '.join(names[i] for i in e.hosts)}: {digits(line.alpha)} µs, "
            f"{digits(line.rate)} GB/s up to {e.sizes[-1]:,} bytes, R² {line.r2:.3f}, "
            f"{line.worst:.0%}; simulated {np.median(off):.0%}, {off.max():.0%}."
        )
    for f in flows:
        who = ", ".join(f"{names[a]} to {names[b]}" for a, b in f.flows)
        each = f" from {f.ranks} ranks at once" if f.ranks > 1 else ""
        yield f"  {who}{each}: {digits(f.rate)} GB/s{' each' if len(f.flows) > 1 else ''}."
    if uplink is not None:
        yield (
            "Hosts share something on the way: all at once, each gets no more than its `leaf` here "
            "lets out. Alone a pair is faster than this file says."
        )


def _warnings(
    names: Sequence[str], exchanges: Sequence[Exchange], flows: Sequence[MeasuredFlows]
) -> Iterator[Problem]:
    for e in exchanges:
        if len(e.hosts) > 1 and e.line.r2 < GOOD_R2:
            message = (
                f"{' and '.join(names[i] for i in e.hosts)}: α and GB/s explain little of the "
                f"times (R² {e.line.r2:.2f})"
            )
            yield _warning(message, "measure while nothing else runs, or for longer")
    one_way = {f.flows[0]: f.rate for f in flows if len(f.flows) == 1}
    for (a, b), there in one_way.items():
        back = one_way.get((b, a), there)
        if a < b and abs(there - back) > ALIKE * max(there, back):
            message = (
                f"{names[a]} sends {digits(there)} GB/s to {names[b]}, and gets {digits(back)} "
                "back: the file has one rate for both ways"
            )
            yield _warning(message, "look at both ends of the line")


def _warning(message: str, help: str) -> Problem:
    return Problem("W406", message, severity="warning", help=help)
