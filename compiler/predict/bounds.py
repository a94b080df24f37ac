"""bounds: lower bounds of the time of a collective on a cluster, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hccc.base.diagnostics import fail
from hccc.base.interruptible import interruptible
from hccc.base.shown import brief, preformatted
from hccc.driver.facts import Facts
from hccc.driver.tune.setting import most_blocks
from hccc.ir import text as words
from hccc.ir.collective import (
    PROGRAMMABLE,
    ROOTED,
    Collective,
    OpType,
    block_count,
    recognised,
)
from hccc.ir.demand import Demand
from hccc.ir.text import microseconds as us
from hccc.ir.topology import Topology
from hccc.network.resource_names import names
from hccc.network.summary import devices
from hccc.synth.bounds.best_paths import BestPaths
from hccc.synth.bounds.block_bound import THREAD_BLOCKS, block_bound
from hccc.synth.bounds.bound import Bound, Cut, rational
from hccc.synth.bounds.certificate import tightened
from hccc.synth.bounds.demanded import check_ranks, limits_of
from hccc.synth.bounds.rooted_trees import RootedTrees

ALL = tuple(op for op in PROGRAMMABLE if op is not OpType.SENDRECV)
LONGEST_FRACTION = 24  # letters; a longer one is told as a decimal number only
MOST_NAMES = 4  # of what crosses a cut
HEAD = (
    "",
    "time",
    "latency",
    "bandwidth",
    "algbw",
    "busbw",
    "as sizes grow",
    "trees, paths",
    "limit",
)
UNITS = ("", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "(GB/s)", "(GB/s)", "")


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """The lower bound of one collective; the best over trees or paths, None if there is none or it
    was not computed; and the µs that `blocks` thread blocks a rank take at least."""

    collective: Collective
    bound: Bound
    best: RootedTrees | BestPaths | None
    blocks: int
    block_time: float

    @property
    def limited_by(self) -> str:
        """`thread blocks` where they take longer than the network; else what limits that."""
        return THREAD_BLOCKS if self.block_time > self.bound.time else self.bound.limited_by

    def facts(self, t: Topology) -> Facts:
        """Returns all figures, for JSON."""
        b, cut = self.bound, self.bound.cut
        factor = self.collective.bus_factor()
        rooted = {"root": self.collective.root} if self.collective.rooted else {}
        return {
            "collective": self.collective.op.value,
            **rooted,
            "size": b.size,
            "time": b.time,
            "algbw": b.algbw,
            "busbw": b.algbw * factor,
            "binding": b.binding,
            "limited_by": self.limited_by,
            "thread_blocks": {"count": self.blocks, "time": self.block_time},
            "latency": b.latency,
            "head": b.head,
            "bandwidth": b.bandwidth,
            "cut": None
            if cut is None
            else {
                "name": cut.name,
                "share": cut.share,
                "capacity": cut.capacity,
                "algbw": float(cut.algbw),
                "algbw_exact": str(cut.algbw),
                "parts": cut.parts,
                "resources": names(t, cut.resources),
            },
            "rooted_trees": {"algbw": self.best.algbw, "share": self.best.share.tolist()}
            if isinstance(self.best, RootedTrees)
            else None,
            "paths": {"algbw": self.best.algbw} if isinstance(self.best, BestPaths) else None,
        }

    def lines(self, t: Topology) -> Iterator[str]:
        """Yields all figures, one a line."""
        b, cut, c = self.bound, self.bound.cut, self.collective
        root = f" with root {c.root}" if c.rooted else ""
        rates = (
            f", algbw {b.algbw:.2f}, busbw {b.algbw * c.bus_factor():.2f} GB/s" if b.time else ""
        )
        yield f"{c.op.value}{root} of {words.size(b.size)}: no schedule beats"
        yield f"  time           {us(b.time)} µs{rates}"
        yield f"  limited by     {self.limited_by}"
        if self.block_time:
            yield f"  thread blocks  {us(self.block_time)} µs: {self.blocks} a rank"
        yield f"  latency        {us(b.latency)} µs to the farthest rank"
        if cut is None:
            return
        head = f", and {us(b.head)} µs before the first byte" if b.head else ""
        what = f"{_share(cut)}{words.size(b.size)} {cut.name} at {cut.capacity:.6g} GB/s"
        yield f"  bandwidth      {us(b.bandwidth)} µs: {what}{head}"
        yield f"  which is       {_names(names(t, cut.resources))}"
        yield f"  as sizes grow  algbw {_exact(cut.algbw)}"
        if self.best is not None:
            trees = isinstance(self.best, RootedTrees)
            over = "over trees " if trees else "over paths "
            yield f"  {over}    algbw {self.best.algbw:.2f} GB/s, {self._reached(cut)}"
            reduced = "where each byte is reduced to some root, then broadcast"
            every = c.op is not OpType.ALLREDUCE
            yield f"                 ({'as every schedule of it is' if every else reduced})"

    def _reached(self, cut: Cut) -> str:
        assert self.best is not None
        ratio = self.best.algbw / float(cut.algbw)
        return "the same" if ratio > 1 - 1e-6 else f"{words.percent(ratio)} % of that, at most"

    def row(self) -> tuple[str, ...]:
        """Returns a row of the table of several collectives."""
        b, cut = self.bound, self.bound.cut
        grown = "" if cut is None else f"{float(cut.algbw):.2f}"
        best = "" if self.best is None else f"{self.best.algbw:.2f}"
        busbw = b.algbw * self.collective.bus_factor()
        rates = (f"{b.algbw:.2f}", f"{busbw:.2f}") if b.time else ("", "")
        name = "" if cut is None else b.reason
        if self.limited_by == THREAD_BLOCKS:
            name = f"{self.blocks} thread blocks a rank: {us(self.block_time)} us"
        return (
            self.collective.op.value,
            us(b.time),
            us(b.latency),
            us(b.bandwidth),
            *rates,
            grown,
            best,
            name,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """The lower bounds of some collectives on one cluster."""

    topology: Topology
    cluster: str
    found: tuple[Bounded, ...]

    def __repr__(self) -> str:
        return brief(
            self, f"{self.cluster}: {', '.join(one.collective.name for one in self.found)}"
        )

    def _repr_html_(self) -> str:
        return preformatted(self.text())

    def facts(self) -> Facts:
        """Returns all figures, for JSON."""
        t = self.topology
        return {
            "cluster": self.cluster,
            "nodes": t.n_nodes,
            "ranks": len(t),
            "bounds": [one.facts(t) for one in self.found],
        }

    def text(self) -> str:
        """Writes the page: one collective with all its figures, several as a table."""
        t = self.topology
        count = f"{words.count(t.n_nodes, 'node')}, {words.count(len(t), 'GPU')}"
        lines = [f"{self.cluster}: {count}, {devices(t)}"]
        if len(self.found) == 1:
            return "\n".join([*lines, *self.found[0].lines(t)])
        lines.append(f"No schedule beats this for {words.size(self.found[0].bound.size)}:")
        rows = [HEAD, UNITS, *(one.row() for one in self.found)]
        width = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
        for first, *middle, last in rows:
            cells = [f"{cell:>{w}}" for cell, w in zip(middle, width[1:], strict=False)]
            lines.append("  ".join([f"{first:<{width[0]}}", *cells, last]).rstrip())
        return "\n".join(lines)


@interruptible
def bounds(
    t: Topology,
    cluster: str,
    size: int,
    ops: Sequence[OpType] = ALL,
    root: int = 0,
    max_sms: int | None = None,
) -> Bounds:
    """Computes lower bounds of these collectives, for calls of `size` bytes as nccl-tests counts.

    max_sms: thread blocks of a rank, those that a compiled program may have where left out.

    Raises:
        UserError: E410 there is no such root.
    """
    if not 0 <= root < len(t):
        raise fail("E410", f"root {root} is no rank of {cluster}", help=f"0 to {len(t) - 1}")
    blocks = max_sms or most_blocks(t)
    return Bounds(t, cluster, tuple(_bounded(t, op, size, root, blocks) for op in ops))


@interruptible
def bounds_of(
    t: Topology, cluster: str, size: int, demand: Demand, max_sms: int | None = None
) -> Bounds:
    """Computes the lower bound of a demand.

    Raises:
        UserError: E410 it has other ranks than the cluster.
    """
    check_ranks(demand, t)
    blocks, found = max_sms or most_blocks(t), recognised(demand)
    limits, best = tightened(t, *found) if found else limits_of(t, demand)
    took = block_bound(t, *found, size, blocks) if found else 0.0
    each = Bounded(Collective.of(demand), limits.at(size), best, blocks, took)
    return Bounds(t, cluster, (each,))


def _bounded(t: Topology, op: OpType, size: int, root: int, blocks: int) -> Bounded:
    collective = Collective(op, len(t), block_count(op, len(t)), root if op in ROOTED else 0)
    found, best = tightened(t, op, collective.root)
    took = block_bound(t, op, collective.root, size, blocks)
    return Bounded(collective, found.at(size), best, blocks, took)


def _share(cut: Cut) -> str:
    """Writes a share as `2/3 of ` or `4 times `."""
    share = rational(cut.share)
    return "" if share == 1 else f"{share} of " if share < 1 else f"{share} times "


def _exact(value: Fraction) -> str:
    """Writes a rate as `266.67 GB/s, exactly 800/3` or `200 GB/s`."""
    shown, exact = f"{float(value):.2f}", str(value)
    told = Fraction(shown) == value or len(exact) > LONGEST_FRACTION
    return f"{shown} GB/s" if told else f"{shown} GB/s, exactly {exact}"


def _names(found: list[str]) -> str:
    """Writes the names of the first few resources that cross a cut."""
    rest = f" and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
    return f"{', '.join(found[:MOST_NAMES])}{rest}" if found else "nothing that has a name"
