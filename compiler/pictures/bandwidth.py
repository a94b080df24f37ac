"""bandwidth: the picture of bus bandwidth and time over message sizes."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from hccc.ir import text
from hccc.pictures import palette
from hccc.pictures.canvas import NORMAL, SMALL, Picture, Sheet, settings


@settings()
def bandwidth(rows: Sequence[tuple[int, float, float]], name: str) -> Picture:
    """Draws rows of (bytes, µs, GB/s of busbw), by size, as two curves side by side."""
    head = f"{text.clean(name, 48)}: predicted, by message size"
    sheet = Sheet(9.6, 3.6)
    sheet.heading(head)
    sizes = [row[0] for row in rows]
    for left, values, title, colour in (
        (0.75, [row[2] for row in rows], "busbw, GB/s", palette.COPY),
        (5.65, [row[1] for row in rows], "time", palette.REDUCE),
    ):
        axes = sheet.plot(left, 0.6, 3.6, 2.2)
        axes.plot(sizes, values, color=colour, marker="o", markersize=4, linewidth=1.6)
        _dress(axes, sizes, title)
        if title == "time":
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(lambda us, _: text.time(us))
            axes.yaxis.set_minor_locator(NullLocator())
        else:
            axes.set_ylim(bottom=0)
    return sheet.picture("bandwidth", head, f"{head}: busbw and time.")


def _dress(axes: Axes, sizes: Sequence[int], title: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(sizes), [text.size(s) for s in sizes], fontsize=SMALL)
    axes.minorticks_off()
    axes.tick_params(axis="y", labelsize=SMALL)
    axes.set_title(title, fontsize=NORMAL, loc="left")
    axes.grid(True, color=palette.RULE, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
