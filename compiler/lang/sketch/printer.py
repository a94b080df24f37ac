"""printer: sketches as their text, which `load` reads back as the same value."""

from __future__ import annotations

from collections.abc import Iterator

from hccc.ir.ranks import runs
from hccc.ir.sketch import Allotment, Sketch


def text(allotment: Allotment) -> str:
    """Writes an allotment."""
    lines = list[str]()
    for sketch, share in zip(allotment.sketches, allotment.shares, strict=True):
        lines.append(f"sketch {share}:" if len(allotment.sketches) > 1 else "sketch:")
        lines += _stages(sketch)
    return "\n".join(lines) + "\n"


def _stages(sketch: Sketch) -> Iterator[str]:
    for stage in sketch.stages:
        yield "    stage:"
        for d in stage:
            sources, targets = _ranks(d.sources), _ranks(d.targets)
            yield f"        {d.dimension} {d.group}: {sources} -> {targets}"


def _ranks(ranks: tuple[int, ...]) -> str:
    """Writes ranks as `0-3, 8`, in their order."""
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs(ranks))
