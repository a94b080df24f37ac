"""plots: predicted beside measured time, one picture a machine."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.reality.tables import PublishedTable

mpl.use("Agg")


def draw(tables: list[PublishedTable], folder: Path) -> None:
    """Draws NAME.svg of each machine: time over size, measured as dots, predicted as lines."""
    by_name: dict[str, list[PublishedTable]] = defaultdict(list)
    for table in tables:
        by_name[table.name].append(table)
    folder.mkdir(parents=True, exist_ok=True)
    for name, own in by_name.items():
        figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
        for color, t in enumerate(own):
            label = f"{t.id}: {t.machine.nodes}x{t.machine.gpus} {t.op.value}"
            axes.plot(t.sizes, t.times, "o", ms=3, color=f"C{color % 10}")
            predicted = [p.time_us for p in t.predicted()]
            marker = "+" if len(t.sizes) == 1 else ""
            axes.plot(t.sizes, predicted, marker=marker, color=f"C{color % 10}", label=label)
        axes.set(xscale="log", yscale="log", xlabel="size (B)", ylabel="time (µs)", title=name)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=7)
        figure.savefig(folder / f"{name}.svg")
        plt.close(figure)
