"""The colours of all pictures: Okabe and Ito's, told apart with any kind of colour vision and,
by their lightness, without colour."""

from __future__ import annotations

COPY, REDUCE, LOCAL = "#0072B2", "#E69F00", "#999999"
WAIT, PAPER, INK, FAINT, RULE = "#E4E7EA", "#FFFFFF", "#1B1F24", "#6B737C", "#C9CFD6"
ALERT = "#D55E00"
CRITICAL = "#B3003C"
KINDS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#D55E00")


def tint(colour: str, share: float) -> str:
    """`colour` mixed with white: 1 leaves it, 0 is white."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - (255 - part) * share):02X}" for part in parts)
