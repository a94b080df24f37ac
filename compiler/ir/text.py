"""How pictures write numbers and names: short, the same everywhere, and safe to draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hccc.ir import ranks
from hccc.ir.topology import Rate

LONGEST = 120


def clean(text: str, longest: int = LONGEST) -> str:
    """Returns `text` as one line of printable characters, cut to `longest`: XML allows no others.

    The writer of the file escapes it.
    """
    shown = str(text)
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def fixed(value: float, digits: int) -> str:
    """Writes `digits` decimals, thousands apart, and never a zero with a minus: `1,370.31`,
    `0.0`."""
    return f"{round(value, digits) + 0.0:,.{digits}f}"


def plain(value: float, digits: int) -> str:
    """Writes as `fixed`, but without separators, for columns that programs read."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def microseconds(us: float) -> str:
    """Writes `1,370.31`; without decimals from one second on."""
    return fixed(us, 2 if us < 1e6 else 0)


def percent(share: float) -> str:
    """Writes a share of 0.737 as `73.7`."""
    return fixed(100 * share, 1)


def number(value: float) -> str:
    """Writes three significant digits, thousands apart: `1,117`, `12.5`, `0.0042`."""
    value += 0.0  # -0.0 becomes 0.0
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def size(count: float) -> str:
    """Writes bytes in powers of 1,024, as nccl-tests counts them: `64 MiB`."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.4g} {units[0]}"


def time(us: float) -> str:
    """Writes `12.3 µs`, `4.56 ms`, `1.2 s`; less than a picosecond is 0."""
    us = round(us, 6) + 0.0
    unit, factor = time_unit(us)
    return f"{us / factor:.4g} {unit}"


def time_unit(us: float) -> tuple[str, float]:
    """Returns the unit in which `time` writes a time, and its length in µs."""
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if round(us, 6) >= factor:
            return unit, factor
    return "µs", 1.0


def rate(value: Rate) -> str:
    """Writes `25 GB/s × 2`."""
    count = f" × {value.parallel}" if value.parallel > 1 else ""
    return f"{number(value.bandwidth)} GB/s{count}"


def runs(numbers: Iterable[int], limit: int = 6, prefix: str = "") -> str:
    """Writes numbers as ascending ranges, `0–3, 7`; after `limit` ranges `…`."""
    found = list(ranks.runs(sorted(set(numbers))))
    shown = []
    for a, b in found[:limit]:
        between = ", " if b == a + 1 else "–"
        shown.append(f"{prefix}{a}" if a == b else f"{prefix}{a}{between}{prefix}{b}")
    return ", ".join(shown) + (", …" if len(found) > limit else "")


def nodes(numbers: Iterable[int], limit: int = 6) -> str:
    """Writes nodes, counted from 0, as the cluster language names them: `node1–node4`."""
    return runs((n + 1 for n in numbers), limit, "node")


def named(kind: str, numbers: Sequence[int], limit: int = 6) -> str:
    """Writes `rank 3`, `ranks 0–3`."""
    return f"{kind if len(set(numbers)) == 1 else _plural(kind)} {runs(numbers, limit)}"


def _plural(kind: str) -> str:
    return (
        "leaves" if kind == "leaf" else f"{kind}es" if kind.endswith(("ch", "ss")) else f"{kind}s"
    )


def count(n: int, noun: str) -> str:
    """Writes `1 link`, `28 links`."""
    return f"{n:,} {noun if n == 1 else _plural(noun)}"
