"""ranks: how far one is from another, and how numbers of them are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np

from hccc.ir.arrays import I4, I8


def rank_distance(n_ranks: int, per_node: int, here: I4 | I8, there: I4 | I8) -> I8:
    """How far on `there` is, alike at every rank: nodes first, then GPUs within the node. i8[n].

    per_node: GPUs of a node; all ranks are one node where it does not divide them.
    """
    gpus = per_node if per_node and n_ranks % per_node == 0 else n_ranks
    a, b = np.asarray(here, np.int64), np.asarray(there, np.int64)
    nodes = (b // gpus - a // gpus) % (n_ranks // gpus)
    distance: I8 = nodes * gpus + (b % gpus - a % gpus) % gpus
    return distance


def runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each part of ascending numbers in which each is one more than the last."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        values = [value for _, value in run]
        yield values[0], values[-1]


def named_runs(prefix: str, numbers: Iterable[int], base: int = 1) -> Iterator[str]:
    """`node1..node4`, `node6`, … of ascending numbers from 0, shown from `base`."""
    for first, last in runs(numbers):
        shown = f"{prefix}{first + base}"
        yield shown if first == last else f"{shown}..{prefix}{last + base}"
