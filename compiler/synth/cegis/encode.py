"""encode: "a schedule of so many steps" as a LinearModel, in one of two encodings.

`full` has HeteCCL's variables (Eq. 2-3): Send(k, u, v, t) for every link and Has(k, v, t).
`aggregated` has these inside nodes only. Between nodes, where a transfer over a switch uses the
resources of its sender and of its receiver and no others, the pairing of senders and receivers does
not matter: out(k, u, M, t) copies of k leave rank u for node M, in(k, v, t) arrive, as many as
leave for every k, M and t. Schedules of both are the same.

Eager, all of Eq. 2-6 holds in the model. Lazy, Eq. 4-6 hold only for the resources, and the
receivers of a chunk, that a counterexample named (`kept`).

Of a schedule too long for a solver `full` encodes the first steps. `then` more follow, and what any
schedule needs for that holds as these end: few enough chunks have yet to come into every node.

Variables that no schedule of so many steps (one or more) uses are left out: before a chunk can be
there, after it can get anywhere in time, at ranks that have it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import B1, I4, I8
from hccc.synth.cegis.hubs import Hubs
from hccc.synth.cegis.model import FREE, ONE, ZERO, ConstraintRows, LinearModel
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.least_steps import NEVER, distance, linked_ranks, missing_at_most
from hccc.synth.greedy.schedule import CopyDemand, Schedule


@dataclass(frozen=True, slots=True, eq=False)
class KeptConstraints:
    """Constraints that counterexamples gave. resources: b1[R]; receivers: b1[chunks, ranks]."""

    resources: B1
    receivers: B1

    def __len__(self) -> int:
        return int(np.count_nonzero(self.resources) + np.count_nonzero(self.receivers))


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleEncoding:
    """A LinearModel, and the translation of its values into a Schedule. resource, variable: i8[m]
    of each use of a resource, in any step."""

    model: LinearModel
    decode: Callable[[I8], Schedule]
    resource: I8
    variable: I8


@dataclass(frozen=True, slots=True, eq=False)
class _Sends:
    """Send: i8[m] chunk, src, dst, step, and the variable of each."""

    chunk: I8
    src: I8
    dst: I8
    step: I8
    variable: I8

    def schedule(self, values: I8) -> Schedule:
        chosen = values[self.variable] > 0
        return Schedule(self.chunk[chosen], self.src[chosen], self.dst[chosen], self.step[chosen])


class _Table:
    """When each chunk can be at each rank, and the variables that follow."""

    def __init__(self, c: Chunked, demand: CopyDemand, steps: int, then: int = 0) -> None:
        self.c, self.demand, self.steps, self.then = c, demand, steps, then
        need = demand.post & ~demand.pre
        self.since = distance(c, demand.pre)
        turned = distance(c.reversed(), need)
        self.until = np.where(turned == NEVER, -1, steps + then - turned)  # serves anybody, till
        self.variables = 0
        self.has = self._has(need)

    def new(self, count: int) -> I8:
        self.variables += count
        return np.arange(self.variables - count, self.variables)

    def _has(self, need: B1) -> I8:
        """Returns the variable, ZERO or ONE of every chunk at every rank as a step begins:
        i8[chunks, ranks, steps + 1]."""
        t = np.arange(self.steps + 1)
        can = self.since[:, :, None] <= t
        has = np.where(can, 0, ZERO)
        has[self.demand.pre] = ONE
        open_ = has == 0
        has[open_] = self.new(int(np.count_nonzero(open_)))
        if not self.then:
            last = has[:, :, -1]
            last[need] = ONE
        return has

    def received(self) -> B1:
        """Tells whether a chunk may come to a rank in a step: b1[chunks, ranks, steps]."""
        t = np.arange(self.steps)
        timely = (self.since[:, :, None] <= t + 1) & (t < self.until[:, :, None])
        return timely & ~self.demand.pre[:, :, None]

    def sent(self) -> B1:
        """Tells whether a rank may have a chunk to send in a step: b1[chunks, ranks, steps]."""
        return self.since[:, :, None] <= np.arange(self.steps)

    def sends(self, linked: B1) -> _Sends:
        """Makes variables for every link of `linked`."""
        src, dst = np.nonzero(linked)
        possible = self.sent()[:, src] & self.received()[:, dst]
        chunk, link, step = np.nonzero(possible)
        return _Sends(chunk, src[link], dst[link], step, self.new(len(chunk)))


def full(
    c: Chunked,
    demand: CopyDemand,
    steps: int,
    kept: KeptConstraints | None = None,
    then: int = 0,
) -> ScheduleEncoding:
    """Encodes with a variable per link; lazy if `kept` is given; of a schedule with `then` steps
    more."""
    table, rows = _Table(c, demand, steps, then), ConstraintRows()
    sends = table.sends(linked_ranks(c))
    rows.at_most(sends.variable, table.has[sends.chunk, sends.src, sends.step])
    if kept is None:
        _arrivals(table, rows, [(sends.chunk, sends.dst, sends.step, sends.variable)])
    else:
        _lazy_arrivals(table, rows, sends, kept)
    row = c.use[sends.src * c.n + sends.dst]
    resource, step, variable = _uses(row, sends.step, sends.variable)
    _capacities(c, rows, steps, (resource, step, variable), kept)
    if demand.exclusive:
        _exclusive(table, rows, [(sends.chunk, sends.src, sends.step, sends.variable)])
    if then:
        _in_time(table, rows)
    upper = np.ones(table.variables, np.int64)
    return ScheduleEncoding(rows.model(upper), sends.schedule, resource, variable)


def aggregated(c: Chunked, demand: CopyDemand, steps: int, hubs: Hubs) -> ScheduleEncoding:
    """Encodes with a variable per link inside nodes, per rank between them."""
    table, rows = _Table(c, demand, steps), ConstraintRows()
    near = table.sends(linked_ranks(c) & (c.node[:, None] == c.node))
    rows.at_most(near.variable, table.has[near.chunk, near.src, near.step])
    received, sent = table.received(), table.sent()
    cells = len(hubs.port)
    of_cell = np.zeros((cells, c.n), np.bool_)
    joined = hubs.cell >= 0
    of_cell[hubs.cell[joined], np.flatnonzero(joined)] = True
    wanted = np.stack([received[:, members].any(axis=1) for members in of_cell], axis=1)
    chunk, rank, step = np.nonzero(received & joined[None, :, None])
    arrive = table.new(len(chunk))
    u, cell = np.nonzero(hubs.joins(c.node))
    k, way, t = np.nonzero(sent[:, u] & wanted[:, cell])
    leave = table.new(len(k))
    u, cell = u[way], cell[way]
    copies = np.minimum(hubs.most_out(c)[u], np.count_nonzero(of_cell, axis=1)[cell])
    upper = np.ones(table.variables, np.int64)
    upper[leave] = copies
    rows.at_most(leave[copies == 1], table.has[k, u, t][copies == 1])
    for many in np.unique(copies[copies > 1]):
        these = copies == many
        rows.at_most(leave[these], table.has[k, u, t][these], int(many))
    key = (chunk * cells + hubs.cell[rank]) * steps + step
    keys, at = np.unique(np.append(key, (k * cells + cell) * steps + t), return_inverse=True)
    balance = (at[: len(key)], arrive, 1), (at[len(key) :], leave, -1)
    rows.add(0, 0, len(keys), *balance)
    _arrivals(
        table, rows, [(near.chunk, near.dst, near.step, near.variable), (chunk, rank, step, arrive)]
    )
    row = c.use[near.src * c.n + near.dst]
    uses = (
        _uses(row, near.step, near.variable),
        _uses(hubs.out[u], t, leave),
        _uses(hubs.into[rank], step, arrive),
    )
    used, when, variable = (np.concatenate(part) for part in zip(*uses, strict=True))
    _capacities(c, rows, steps, (used, when, variable), None)
    if demand.exclusive:
        _exclusive(
            table, rows, [(near.chunk, near.src, near.step, near.variable), (k, u, t, leave)]
        )

    def decode(values: I8) -> Schedule:
        inside = near.schedule(values)
        senders = np.repeat(np.arange(len(leave)), values[leave])
        receivers = np.flatnonzero(values[arrive] > 0)
        # As many of one as of the other for each chunk, cell and step: both in that order.
        senders = senders[np.argsort(at[len(key) :][senders], kind="stable")]
        receivers = receivers[np.argsort(at[: len(key)][receivers], kind="stable")]
        return Schedule(
            np.append(inside.chunk, k[senders]),
            np.append(inside.src, u[senders]),
            np.append(inside.dst, rank[receivers]),
            np.append(inside.step, t[senders]),
        )

    return ScheduleEncoding(rows.model(upper), decode, used, variable)


_Terms = tuple[I8, I8, I8, I8]  # chunk, rank, step, variable


def _arrivals(table: _Table, rows: ConstraintRows, arriving: list[_Terms]) -> None:
    """Adds Eq. 3 and Eq. 6: a rank that has a chunk had it before, or receives it, and not both."""
    chunk, rank = np.nonzero(~table.demand.pre)
    has = table.has[chunk, rank]
    steps = table.steps
    where = np.full(table.demand.pre.shape, -1)
    where[chunk, rank] = np.arange(len(chunk))
    cells = np.arange(len(chunk) * steps)
    terms = [(where[k, v] * steps + t, x, -1) for k, v, t, x in arriving]
    after, before = (cells, has[:, 1:].ravel(), 1), (cells, has[:, :-1].ravel(), -1)
    rows.add(0, 0, len(cells), after, before, *terms)


def _lazy_arrivals(
    table: _Table, rows: ConstraintRows, sends: _Sends, kept: KeptConstraints
) -> None:
    """Adds Eq. 2 and Eq. 3; Eq. 6 for receivers that are kept."""
    chunk, rank = np.nonzero(~table.demand.pre)
    steps = table.steps
    where = np.full(table.demand.pre.shape, -1)
    where[chunk, rank] = np.arange(len(chunk))
    cells = np.arange(len(chunk) * steps)
    has = table.has[chunk, rank]
    after, before = has[:, 1:].ravel(), has[:, :-1].ravel()
    at = where[sends.chunk, sends.dst] * steps + sends.step
    rows.at_most(sends.variable, table.has[sends.chunk, sends.dst, sends.step + 1])
    each = np.arange(len(at))
    had = table.has[sends.chunk, sends.dst, sends.step]
    rows.add(-np.inf, 1, len(at), (each, sends.variable, 1), (each, had, 1))
    rows.at_most(before, after)
    rows.add(
        -np.inf, 0, len(cells), (cells, after, 1), (cells, before, -1), (at, sends.variable, -1)
    )
    once = kept.receivers[sends.chunk, sends.dst]
    keys, row = np.unique(at[once] // steps, return_inverse=True)
    rows.add(-np.inf, 1, len(keys), (row, sends.variable[once], 1))


def _in_time(table: _Table, rows: ConstraintRows) -> None:
    """Adds that the steps that follow can bring all that is missing as these end."""
    c, demand = table.c, table.demand
    need, last = demand.post & ~demand.pre, table.has[:, :, -1]
    outside, lacking = missing_at_most(c, demand, table.then)
    for node, few, many in zip(range(len(outside)), outside, lacking, strict=True):
        inside = c.node == node
        rank = np.flatnonzero(inside)
        wanted = last[:, inside][need[:, inside]]
        rows.add(len(wanted) - many, FREE, 1, (np.zeros_like(wanted), wanted, 1))
        chunk = np.flatnonzero(need[:, inside].any(axis=1) & ~demand.pre[:, inside].any(axis=1))
        came, each = table.new(len(chunk)), np.arange(len(chunk))
        there = (np.repeat(each, len(rank)), last[np.ix_(chunk, rank)].ravel(), -1)
        rows.add(-FREE, 0, len(chunk), (each, came, 1), there)
        rows.add(len(chunk) - few, FREE, 1, (np.zeros_like(came), came, 1))


def _uses(row: I4, step: I8, variable: I8) -> tuple[I8, I8, I8]:
    """Returns the resource, the step and the variable of each use."""
    owner, column = np.nonzero(row >= 0)
    return row[owner, column].astype(np.int64), step[owner], variable[owner]


def _capacities(
    c: Chunked,
    rows: ConstraintRows,
    steps: int,
    uses: tuple[I8, I8, I8],
    kept: KeptConstraints | None,
) -> None:
    """Adds Eq. 4 and Eq. 5. uses: the resource, the step and the variable of each."""
    resource, step, variable = uses
    if kept is not None:
        these = kept.resources[resource]
        resource, step, variable = resource[these], step[these], variable[these]
    keys, row = np.unique(resource * steps + step, return_inverse=True)
    rows.capacity(row, variable, c.capacity[keys // steps])


def _exclusive(table: _Table, rows: ConstraintRows, leaving: list[_Terms]) -> None:
    """Adds Eq. 8: a rank sends a chunk once a step."""
    k, u, t, variable = (np.concatenate(part) for part in zip(*leaving, strict=True))
    keys, row = np.unique((k * table.c.n + u) * table.steps + t, return_inverse=True)
    rows.capacity(row, variable, np.ones(len(keys), np.int64))
