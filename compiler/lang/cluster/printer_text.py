"""printer_text: rates, ids and names in the cluster language."""

from __future__ import annotations

from collections.abc import Sequence

from hccc.ir.ranks import runs
from hccc.ir.topology import Rate, Topology


def number(value: float) -> str:
    """Writes a number in its shortest exact form."""
    return repr(float(value)).removesuffix(".0")


def rate(r: Rate) -> str:
    """Writes `(25, 2, 0.7)`."""
    return f"({number(r.bandwidth)}, {r.parallel}, {number(r.alpha)})"


def numbers(values: Sequence[int]) -> str:
    """Writes ascending numbers as `0..3, 6`; two in a row stay two."""
    return ", ".join(
        f"{a}..{b}" if b - a > 1 else ", ".join(map(str, range(a, b + 1))) for a, b in runs(values)
    )


def gpus(local: Sequence[int]) -> str:
    """Writes ascending ids as `(0..7)`, or `(0,2)`."""
    if len(local) > 2 and local[-1] - local[0] == len(local) - 1:
        return f"({local[0]}..{local[-1]})"
    return f"({','.join(map(str, local))})"


def ids(t: Topology, ranks: Sequence[int]) -> str:
    """Writes ranks by their numbers in their node."""
    return gpus(t.local[list(ranks)].tolist())


def switch_text(t: Topology, k: int) -> str:
    """Writes SWITCH group k: `((0,1), (2,3) >-> (16, 1, 0.7))`."""
    a, b = ids(t, t.side_a.row(k).tolist()), ids(t, t.side_b.row(k).tolist())
    return f"({a}, {b} >-> {rate(t.shared[t.first_switch + k])})"
