"""ranks: the distance between two ranks, and texts for sets of rank numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np

from hccc.ir.arrays import I4, I8


def rank_distance(n_ranks: int, per_node: int, here: I4 | I8, there: I4 | I8) -> I8:
    """Returns the distance from `here` to `there`, nodes first, then GPUs within the node: i8[n].

    It is the same at every rank for the same relative place. per_node: GPUs of a node; if it does
    not divide n_ranks, all ranks are one node.
    """
    gpus = per_node if per_node and n_ranks % per_node == 0 else n_ranks
    a, b = np.asarray(here, np.int64), np.asarray(there, np.int64)
    nodes = (b // gpus - a // gpus) % (n_ranks // gpus)
    distance: I8 = nodes * gpus + (b % gpus - a % gpus) % gpus
    return distance


def runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields (first, last) of each run of consecutive integers in ascending numbers."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        values = [value for _, value in run]
        yield values[0], values[-1]


def named_runs(prefix: str, numbers: Iterable[int], base: int = 1) -> Iterator[str]:
    """Yields `node1..node4`, `node6`, … for ascending numbers from 0, shown from `base`."""
    for first, last in runs(numbers):
        shown = f"{prefix}{first + base}"
        yield shown if first == last else f"{shown}..{prefix}{last + base}"
