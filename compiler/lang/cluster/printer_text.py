"""The words of a printed Topology: rates, ids, names, in the cluster language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from hccc.ir.arrays import I4
from hccc.ir.topology import Rate, Topology


def number(value: float) -> str:
    """The shortest text that is the same number again."""
    return repr(float(value)).removesuffix(".0")


def rate(r: Rate) -> str:
    """`(25, 2, 0.7)`."""
    return f"({number(r.bandwidth)}, {r.parallel}, {number(r.alpha)})"


def numbers(found: Sequence[int]) -> str:
    """`0..3, 6` of ascending numbers; two in a row stay two."""
    return ", ".join(
        f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in _runs(found)
    )


def gpus(local: Sequence[int]) -> str:
    """`(0..7)`, or `(0,2)`, of ascending ids."""
    if len(local) > 2 and local[-1] - local[0] == len(local) - 1:
        return f"({local[0]}..{local[-1]})"
    return f"({','.join(map(str, local))})"


def ids(t: Topology, ranks: Sequence[int]) -> str:
    """The GPUs that these ranks are, as their node numbers them."""
    return gpus(t.local[list(ranks)].tolist())


def runs(kind: str, found: Sequence[int]) -> Iterator[str]:
    """`node1..node4`, `node6`, … of numbers from 0."""
    for run in _runs(found):
        first, last = f"{kind}{run[0] + 1}", f"{kind}{run[-1] + 1}"
        yield first if len(run) == 1 else f"{first}..{last}"


def _runs(found: Sequence[int]) -> Iterator[list[int]]:
    """Parts in which each number is one more than the one before."""
    for _, run in groupby(enumerate(found), key=lambda pair: pair[1] - pair[0]):
        yield [value for _, value in run]


def joint(t: Topology, k: int) -> str:
    """SWITCH group k: `((0,1), (2,3) >-> (16, 1, 0.7))`."""
    a, b = ids(t, t.side_a.row(k).tolist()), ids(t, t.side_b.row(k).tolist())
    return f"({a}, {b} >-> {rate(t.shared[t.first_switch + k])})"


def side_nodes(t: Topology) -> tuple[I4, I4]:
    """The nodes of both sides of each SWITCH group: i4[k] each."""
    a, b = (t.node[side.index[side.ptr[:-1]]] for side in (t.side_a, t.side_b))
    return a, b
