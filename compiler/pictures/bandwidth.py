"""bandwidth: the picture of bus bandwidth and time over message sizes, beside the vendor's library
and what no schedule beats."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from hccc.ir import text
from hccc.ir.topology import BYTES_PER_US
from hccc.pictures import palette
from hccc.pictures.canvas import NORMAL, SMALL, Picture, Sheet, settings
from hccc.pictures.legend import LegendEntry, draw_legend
from hccc.pictures.svg_picture import Curve

LABELS = 7  # sizes that are written below an axis at most
_LINES = (
    (palette.COPY, "-"),
    (palette.REDUCE, "-"),
    (palette.CARRIED, "-"),
    (palette.FAINT, "--"),
)


@settings()
def bandwidth(curves: Sequence[Curve], factor: float, name: str) -> Picture:
    """Draws busbw and time of at most four curves, the last one dashed, side by side.

    factor: busbw over algbw.
    """
    head = f"{text.clean(name, 48)}: predicted, by message size"
    sheet = Sheet(10.6, 3.9)
    sheet.heading(head)
    looks = [*_LINES[: len(curves) - 1], _LINES[-1]]
    named = [
        LegendEntry(curve.name, colour, line=1.6)
        for curve, (colour, _) in zip(curves, looks, strict=True)
    ]
    draw_legend(sheet, [named], 3.33)
    sheet.axes.set_zorder(1)  # points lie above the curves
    for left, title in ((0.75, "busbw, GB/s"), (6.1, "time")):
        axes = sheet.plot(left, 0.6, 4.2, 2.2)
        bus = title != "time"
        sizes = sorted({size for curve in curves for size in curve.times})
        points = []
        for curve, (colour, style) in zip(curves, looks, strict=True):
            shown = [(s, us) for s, us in sorted(curve.times.items()) if s and us > 0]
            values = [_busbw(s, us, factor) if bus else us for s, us in shown]
            xs = [s for s, _ in shown]
            axes.plot(xs, values, color=colour, linewidth=1.6, linestyle=style)
            points += [(s, v, colour, curve) for s, v in zip(xs, values, strict=True)]
        _dress(axes, [size for size in sizes if size], title)
        for size, value, colour, curve in points:
            x, y = axes.transData.transform((size, value)) / sheet.figure.dpi
            at = (x - 0.035, y - 0.035, 0.07, 0.07)
            sheet.box(at, colour, palette.PAPER, round=0, line=0.4, tip=_tip(curve, size, factor))
    best = max(curves[0].times, default=0)
    says = f"{head}: {_tip(curves[0], best, factor)}" if best else head
    return sheet.picture("bandwidth", head, f"{says}.")


def _busbw(size: int, us: float, factor: float) -> float:
    return size * factor / us / BYTES_PER_US


def _dress(axes: Axes, sizes: Sequence[int], title: str) -> None:
    axes.set_xscale("log", base=2)
    ticks = list(sizes[:: -(-len(sizes) // LABELS)])
    axes.set_xticks(ticks, [text.size(s) for s in ticks], fontsize=SMALL)
    axes.minorticks_off()
    axes.tick_params(axis="y", labelsize=SMALL)
    axes.set_title(title, fontsize=NORMAL, loc="left")
    axes.grid(True, color=palette.RULE, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if title == "time":
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1,)))
        axes.yaxis.set_major_formatter(lambda us, _: text.time(us))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)


def _tip(curve: Curve, size: int, factor: float) -> str:
    """Describes one size of a curve."""
    us = curve.times[size]
    busbw = text.number(_busbw(size, us, factor))
    return f"{curve.name}, {text.size(size)}: {text.time(us)}, busbw {busbw} GB/s"
