"""neighbours: the ranks that meet a rank at the start and at the end of a launch.

Two ranks are neighbours when either touches the other's memory: data, flags or queues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hccc.base.diagnostics import InternalError
from hccc.emit.kernels.canonical import distance
from hccc.emit.kernels.classes import rank_axes
from hccc.emit.kernels.fit import fit
from hccc.emit.kernels.forms import Axis, Form, Grid, names
from hccc.emit.kernels.function import LookupTables
from hccc.emit.kernels.width import INT, code
from hccc.ir.arrays import I8
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The bodies of `hccc_neighbour_count(rank)`, `hccc_neighbour(rank, i)` and, with a network,
    `hccc_memory_domain(rank)`."""

    count_parameters: str
    count: tuple[str, ...]
    item: tuple[str, ...]
    memory_domain: tuple[str, ...] = ()


def pairs(plan: Plan) -> tuple[I8, I8]:
    """Returns all ordered pairs of neighbours, by rank, then alike at every rank: nodes on, GPUs
    on."""
    owner, n = plan.rank_of(), plan.n_ranks
    here, there = [plan.queues.src], [plan.queues.dst]
    for operands in (plan.src, plan.dst):
        memory = operands.buffer != Buffer.QUEUE
        here.append(owner[operands.owner()[memory]])
        there.append(operands.rank[memory])
    here.append(owner[plan.posts.owner()])
    there.append(plan.posts.rank)
    a, b = np.concatenate(here).astype(np.int64), np.concatenate(there).astype(np.int64)
    found = np.unique(np.concatenate([a * n + b, b * n + a]))
    a, b = found // n, found % n
    a, b = a[a != b], b[a != b]
    order = np.lexsort((distance(plan, a, b), a))
    return a[order], b[order]


def neighbours(
    plan: Plan, moduli: tuple[int, ...], tables: LookupTables, *, network: bool
) -> Neighbours:
    """Writes the code that lists the neighbours of a rank, and with a network the memory domain of
    a rank."""
    found = _listed(plan, moduli, tables)
    if not network:
        return found
    axes, gpus = rank_axes(tuple(range(plan.n_ranks)), plan)
    grid = Grid(axes, gpus)
    domain = fit(plan.memory_domain.astype(np.int64).reshape(grid.shape), grid, moduli)
    return replace(found, memory_domain=_body(domain, grid, "return {};", tables))


def _listed(plan: Plan, moduli: tuple[int, ...], tables: LookupTables) -> Neighbours:
    a, b = pairs(plan)
    n = plan.n_ranks
    counts = np.bincount(a, minlength=n)
    axes, gpus = rank_axes(tuple(range(n)), plan)
    grid = Grid(axes, gpus)
    count = fit(counts.reshape(grid.shape), grid, moduli)
    first = _body(count, grid, "return {};", tables)
    parameters = "int rank" if names(count) else "int"
    if not len(a):
        return Neighbours(parameters, first, ("return rank + i;",))
    if counts.min() == counts.max():
        wide = Grid((*axes, Axis("i", np.arange(counts[0]))), gpus)
        item = fit(b.reshape(wide.shape), wide, moduli)
        return Neighbours(parameters, first, _body(item, wide, "return {};", tables))
    start = fit((np.cumsum(counts) - counts).reshape(grid.shape), grid, moduli)
    if len(b) > INT:
        raise InternalError("more pairs of neighbours than an int counts")
    places = Grid((Axis("at", np.arange(len(b))),))
    listed = fit(b, places, moduli)
    at = _body(start, grid, "const int at = {} + i;", tables)
    return Neighbours(parameters, first, (*at, *_body(listed, places, "return {};", tables)))


def _body(form: Form, grid: Grid, statement: str, tables: LookupTables) -> tuple[str, ...]:
    """Writes a statement of the form's value, after the coordinates it reads."""
    reads = names(form)
    lines = [f"const int node = rank / {grid.gpus};"] if "node" in reads else []
    lines += [f"const int local = rank % {grid.gpus};"] if "local" in reads else []
    return (*lines, statement.format(code(form, grid, tables.name)))
