"""build_tables: tables that `build` fills kind by kind, and renumbers after failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hccc.ir.arrays import B1, I4, I8, Csr, starts
from hccc.ir.topology import F8, Rate, Rates


@dataclass(slots=True)
class RateRows:
    """Rows of ids and their rates, filled kind by kind."""

    ids: list[I8] = field(default_factory=list)
    rate: list[F8] = field(default_factory=list)

    def add(self, ids: I8, rates: Sequence[Rate], repeat: int) -> None:
        """Adds any rows `ids`, and a rate per entry for each of `repeat` nodes."""
        self.ids.append(ids)
        self.rate.append(np.tile(np.array(rates, np.float64).reshape(-1, 3), (repeat, 1)))

    def rates(self) -> Rates:
        """Returns all rates, in order."""
        table = np.concatenate([np.zeros((0, 3)), *self.rate])
        return as_rates(table)


def as_table(rates: Rates) -> F8:
    """Returns bandwidth, parallel, alpha as f8[m, 3]."""
    return np.stack([rates.bandwidth, rates.parallel, rates.alpha], axis=1)


def as_rates(table: F8) -> Rates:
    """Makes Rates of a table from `as_table`."""
    return Rates(table[:, 0], table[:, 1].astype(np.int32), table[:, 2])


def pick(rates: Rates, rows: B1) -> Rates:
    """Returns the given rows."""
    return Rates(rates.bandwidth[rows], rates.parallel[rows], rates.alpha[rows])


def compressed(domain: I4) -> I8:
    """Renumbers domains without gaps, in their order."""
    kept = np.unique(domain[domain >= 0])
    return np.where(domain >= 0, np.searchsorted(kept, domain), -1)


def dense(mesh: I8, meshes: Rates, least: int) -> tuple[I8, Rates]:
    """Renumbers without gaps the meshes that still have `least` members."""
    stays = np.bincount(mesh[mesh >= 0], minlength=len(meshes)) >= least
    number = np.where(stays, np.cumsum(stays) - 1, -1)
    kept = np.where(mesh >= 0, number[mesh], -1) if len(number) else mesh
    return kept, pick(meshes, stays)


def working(rows: list[tuple[I8, I8]], alive: B1, rank: I8) -> tuple[I8, I8]:
    """Returns (group, rank) of the working members."""
    group = np.concatenate([np.zeros(0, np.int64), *(g for g, _ in rows)])
    gpu = np.concatenate([np.zeros(0, np.int64), *(g for _, g in rows)])
    stays = alive[gpu]
    return group[stays], rank[gpu[stays]]


def members(group: I8, rank: I8, stays: B1) -> Csr:
    """Returns the members of the groups that stay, group by group."""
    group, rank = group[stays[group]], rank[stays[group]]
    order = np.lexsort((rank, group))
    counts = np.bincount(group, minlength=len(stays))[stays]
    return Csr(starts(counts), rank[order])
