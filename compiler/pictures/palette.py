"""palette: the colours of all pictures: Okabe and Ito's, distinct with any kind of colour vision
and, by their lightness, without colour. Each has a counterpart for dark pages."""

from __future__ import annotations

import colorsys
from functools import cache

COPY, REDUCE, LOCAL = "#0072B2", "#E69F00", "#999999"
CARRIED = "#009E73"
WAIT, PAPER, INK, FAINT, RULE = "#E4E7EA", "#FFFFFF", "#1B1F24", "#646C75", "#C9CFD6"
STRIPE = "#F4F5F6"
ORDER = "#7A828B"  # of lines that say what is before what, along which nothing flows
ALERT = "#C23B00"
CRITICAL = "#B3003C"
KINDS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#9467BD")
ALWAYS_DARK, ALWAYS_LIGHT = "#16191D", "#FDFDFD"  # the same on dark pages
_LIGHTEST, _DARKEST = 0.92, 0.13  # the lightness of black and of white on dark pages
_DARK = {
    **{PAPER: "#1D2126", INK: "#E8EAED", FAINT: "#A3ABB5"},  # as the page has them
    **{colour: colour for colour in (ALWAYS_DARK, ALWAYS_LIGHT)},
}


def tint(colour: str, share: float) -> str:
    """Mixes `colour` with white: 1 leaves it, 0 is white."""
    mixed = (255 - (255 - value) * share for value in _channels(colour))
    return "#" + "".join(f"{round(value):02X}" for value in mixed)


def kind(index: int) -> str:
    """Returns the fill of the kind of node with this index; kinds beyond the palette share a
    grey."""
    return tint(KINDS[index], 0.32) if index < len(KINDS) else WAIT


@cache
def dark(colour: str) -> str:
    """Returns the counterpart of `colour` on dark pages: the same hue, its lightness mirrored."""
    if (fixed := _DARK.get(colour.upper())) is not None:
        return fixed
    hue, light, saturation = colorsys.rgb_to_hls(*(value / 255 for value in _channels(colour)))
    mirrored = _LIGHTEST - (_LIGHTEST - _DARKEST) * light
    rgb = colorsys.hls_to_rgb(hue, mirrored, saturation)
    return "#" + "".join(f"{round(255 * value):02X}" for value in rgb)


@cache
def ink_on(fill: str) -> str:
    """Returns the colour of text that is read best on `fill`, on light pages and on dark ones."""
    inks = (INK, PAPER, ALWAYS_DARK, ALWAYS_LIGHT)
    return max(inks, key=lambda ink: min(contrast(ink, fill), contrast(dark(ink), dark(fill))))


def contrast(a: str, b: str) -> float:
    """Returns the contrast of two colours: 1 to 21 (WCAG 2.2)."""
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    values = [value / 255 for value in _channels(colour)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue
