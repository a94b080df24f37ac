"""NCCL's and RCCL's times as predicted, beside published measurements of them.

    python -m benchmarks.reality.reality [--table ID] [--rows] [--others] [--plots DIR]

Errors are |predicted / measured - 1|, by size class, over tables not marked context. The figures
are fitted on all of these; `python -m benchmarks.reality.fit --leave-one-out` predicts each by
others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.reality.tables import CLASSES, PublishedTable, others, size_class, tables


def errors(table: PublishedTable) -> np.ndarray:
    """Returns predicted over measured, less 1: f8[rows]."""
    return np.array([p.time_us for p in table.predicted()]) / table.times - 1


def summary(chosen: Iterable[PublishedTable]) -> list[str]:
    """Writes the median error and the share within 30 %, by size class."""
    pairs = [(size_class(t.sizes), np.abs(errors(t))) for t in chosen]
    if not pairs:
        return ["-"] * len(CLASSES)
    classes, error = (np.concatenate(x) for x in zip(*pairs, strict=True))
    cells = []
    for k in range(len(CLASSES)):
        e = error[classes == k]
        cells.append(f"{np.median(e):5.0%} {np.mean(e <= 0.3):5.0%} ({len(e)})" if len(e) else "-")
    return cells


def line(t: PublishedTable) -> str:
    """Writes one table: its machine, and the median of signed errors by class."""
    e, k = errors(t), size_class(t.sizes)
    cells = [
        f"{np.median(e[k == i]):+5.0%} {np.max(np.abs(e[k == i])):5.0%}" if (k == i).any() else ""
        for i in range(3)
    ]
    mark = "context" if t.context else ""
    what = f"{t.machine.nodes}x{t.machine.gpus} {t.op}"
    return f"{t.id:>4} {t.name:<16} {what:<20} {mark:<8}" + "".join(f"{c:>16}" for c in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--table", help="Only this one.")
    parser.add_argument("--rows", action="store_true", help="Every size.")
    parser.add_argument("--plots", type=Path, help="Draw each machine's tables there.")
    parser.add_argument("--others", action="store_true", help="Tables that are not predicted.")
    args = parser.parse_args()
    if args.others:
        print("\n".join(f"{i:>4}  {library:<45} {m} {c}" for i, library, m, c in others()))
        return
    chosen = [t for t in tables() if args.table in (None, t.id)]
    print(" " * 51 + "".join(f"{name:>16}" for _, name in CLASSES))
    for t in chosen:
        print(line(t))
        if args.rows:
            for p, measured in zip(t.predicted(), t.times, strict=True):
                off = p.time_us / measured - 1
                print(
                    f"      {p.size:>12} {measured:>10.4g} {p.time_us:>10.4g} {off:+5.0%} "
                    f"{p.algorithm} {p.protocol} {p.channels}"
                )
    counted = [t for t in chosen if not t.context]
    print(f"{'all':<12}" + "".join(f"{cell:>24}" for cell in summary(counted)))
    if args.plots:
        from benchmarks.reality.plots import draw

        draw(chosen, args.plots)


if __name__ == "__main__":
    main()
