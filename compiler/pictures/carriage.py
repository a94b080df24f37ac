"""carriage: the transfers of proxies in a Run, for pictures: bytes between memory domains, by
rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.topology import F8
from hccc.sim.simulate import Run


@dataclass(frozen=True, slots=True, eq=False)
class Carriage:
    """Stretches of a proxy's time, pair by pair in order, with the bytes of one primitive's
    transfer.

    rank, peer, primitive, first, last (micro-batches): i8[n]; begin, end (of the bytes on the
    links), arrival (of the last): f8[n] µs.
    """

    rank: I8
    peer: I8
    primitive: I8
    first: I8
    last: I8
    begin: F8
    end: F8
    arrival: F8

    def __len__(self) -> int:
        return len(self.rank)

    def of(self, rank: int) -> Carriage:
        """Returns the stretches of one rank's proxy."""
        return self._taken(np.flatnonzero(self.rank == rank))

    def _taken(self, rows: I8) -> Carriage:
        return Carriage(
            self.rank[rows],
            self.peer[rows],
            self.primitive[rows],
            self.first[rows],
            self.last[rows],
            self.begin[rows],
            self.end[rows],
            self.arrival[rows],
        )

    def busy(self, least: float) -> tuple[F8, F8]:
        """Returns when anything is carried: begins and ends, with gaps of `least` µs or less
        closed."""
        order = np.argsort(self.begin, kind="stable")
        begin, end = self.begin[order], np.maximum.accumulate(self.end[order])
        new = np.r_[True, begin[1:] > end[:-1] + least][: len(begin)]
        cut = np.flatnonzero(new)
        return begin[cut], end[np.r_[cut[1:], len(begin)] - 1] if len(cut) else begin


def carriage(run: Run, *, merged: bool = False) -> Carriage:
    """Returns the transfers of proxies. merged: micro-batches of a primitive that follow each other
    are one."""
    carried, items = run.machine.transfers, run.carriage
    moves = carried.carries & run.moves[carried.owner]
    items = items[moves[items["transfer"]]]
    transfer = items["transfer"].astype(np.int64)
    pair, batch = carried.pair[transfer], items["batch"].astype(np.int64)
    new = np.ones(len(items), np.bool_)
    if merged:
        new[1:] = np.diff(transfer) != 0
    cut = np.flatnonzero(new)
    last = np.r_[cut[1:], len(items)] - 1 if len(cut) else cut
    return Carriage(
        carried.src[pair[cut]].astype(np.int64),
        carried.dst[pair[cut]].astype(np.int64),
        carried.owner[transfer[cut]].astype(np.int64),
        batch[cut],
        batch[last],
        items["begin"][cut],
        items["end"][last],
        items["arrival"][last],
    )
