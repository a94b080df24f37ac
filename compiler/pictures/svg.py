"""svg: makes matplotlib's SVG small: styles become CSS classes, each with a variant for dark pages.

Several pictures may stand in one page, so that the names of classes begin with the picture's. Light
colours are in force wherever `prefers-color-scheme` is unknown.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hccc.pictures.palette import dark

FONTS = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
MARK = "mark-"
_NUMBER = re.compile(r"-?\d+\.\d+")
_STEP = r"(-?[\d.]+) (-?[\d.]+)"
_RECTANGLE = re.compile(rf"M{_STEP}L{_STEP}L{_STEP}L{_STEP}z")
_FONT = re.compile(r"(?P<weight>bold|\d00)?\s*(?P<size>[\d.]+px) .*")
_COLOURED = ("fill", "stroke")


@dataclass(frozen=True, slots=True)
class Mark:
    """An artist's `tip`, shown where the pointer rests, and attributes for the page's script;
    `viewed`: it lies in the view."""

    tip: str
    data: Mapping[str, str]
    viewed: bool


@dataclass(frozen=True, slots=True)
class ZoomView:
    """The part of a drawing that a page can zoom into, in points from the upper left corner."""

    x: float
    y: float
    width: float
    height: float
    data: Mapping[str, str]


def compact(
    raw: str,
    name: str,
    title: str,
    label: str,
    marks: Sequence[Mark],
    view: ZoomView | None = None,
) -> str:
    """Returns the drawing `raw`, as matplotlib writes it, as a document of its own. O(its length).

    title, label: a name, and a description in a sentence; marks: of the group with the id
    `mark-<i>`; what lies in the view becomes an `<svg>` inside the other, of the same scale.
    """
    root = ET.fromstring(raw)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in [key for key in element.attrib if "}" in key]:
            element.set(key.rpartition("}")[2], element.attrib.pop(key))
    for part in ("metadata", "title"):
        for element in root.findall(part):
            root.remove(element)
    for element in root.findall("defs"):
        root.remove(element)  # the style of all elements, which would be the whole page's
    classes: dict[str, str] = {}
    for element in root.iter():
        _shorten(element)
        _classify(element, name, classes)
    viewed: list[ET.Element] = []
    _ungroup(root, marks, _referred(root), viewed)
    if view is not None:
        root.append(_nested(view, viewed))
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "class": name}
    root.attrib["aria-label"] = label
    heading, style = ET.Element("title"), ET.Element("style")
    heading.text, style.text = title, _style(name, classes)
    root[:0] = [heading, style]
    _without_blanks(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _shorten(element: ET.Element) -> None:
    """Shortens an element: hundredths of a point are enough; a rectangle is two corners; nothing
    turns by 0°."""
    for key in ("d", "x", "y", "width", "height", "transform"):
        if (value := element.get(key)) is not None:
            element.set(key, _NUMBER.sub(lambda found: f"{float(found[0]) + 0.0:.2f}", value))
    if (path := element.get("d")) is not None:
        path = re.sub(r"\s*([MLCQz])\s*", r"\1", path.replace("\n", " ")).strip()
        element.set("d", _RECTANGLE.sub(_corners, path))
    if re.match(r"rotate\(-?0(\.0+)?[ )]", element.get("transform", "")):
        del element.attrib["transform"]


def _corners(found: re.Match[str]) -> str:
    x0, y0, x1, y1, x2, y2, x3, y3 = found.groups()
    if y0 == y1 and x1 == x2 and y2 == y3 and x3 == x0:
        return f"M{x0} {y0}H{x1}V{y2}H{x0}z"
    return found[0]


def _classify(element: ET.Element, name: str, classes: dict[str, str]) -> None:
    """Replaces the style of an element by the class that has it."""
    style = element.attrib.pop("style", None)
    if style is None:
        return
    rules = dict(re.split(r":\s*", rule, maxsplit=1) for rule in style.split("; ") if rule)
    rules.pop("font-family", None)
    if found := _FONT.fullmatch(rules.pop("font", "")):
        rules["font-size"] = found["size"]
        if found["weight"]:
            rules["font-weight"] = found["weight"]
    text = ";".join(f"{key}:{value.strip()}" for key, value in rules.items())
    if text:
        element.set("class", classes.setdefault(text, f"{name}-{len(classes)}"))


def _style(name: str, classes: dict[str, str]) -> str:
    plain = [f".{name}{{stroke-linejoin:round;font-family:{FONTS}}}"]
    at_night = []
    for rules, of in classes.items():
        plain.append(f".{of}{{{rules}}}")
        pairs = (rule.split(":", 1) for rule in rules.split(";"))
        colours = [
            f"{key}:{dark(value)}"
            for key, value in pairs
            if key in _COLOURED and value.startswith("#")
        ]
        if "font-size" in rules and "fill:" not in rules:
            colours.append(f"fill:{dark('#000000')}")
        if colours:
            at_night.append(f".{of}{{{';'.join(colours)}}}")
    return "".join([*plain, "@media screen and (prefers-color-scheme:dark){", *at_night, "}"])


def _referred(root: ET.Element) -> set[str]:
    """Returns the ids that something refers to."""
    found = {value[1:] for e in root.iter() if (value := e.get("href", "")).startswith("#")}
    for element in root.iter():
        for value in element.attrib.values():
            found |= set(re.findall(r"url\(#([^)]+)\)", value))
    return found


def _nested(view: ZoomView, inside: Sequence[ET.Element]) -> ET.Element:
    """Returns the element of a view: what is inside keeps its place."""
    place = [f"{value:.2f}" for value in (view.x, view.y, view.width, view.height)]
    nested = ET.Element("svg", dict(zip(("x", "y", "width", "height"), place, strict=True)))
    nested.attrib |= {"viewBox": " ".join(place), "preserveAspectRatio": "none"}
    nested.attrib |= {"overflow": "visible", **view.data}
    nested.extend(inside)
    return nested


def _ungroup(
    parent: ET.Element, marks: Sequence[Mark], kept: set[str], viewed: list[ET.Element]
) -> None:
    """Replaces groups by their content, puts marks into the elements that they explain, and moves
    those in the view to `viewed`."""
    children: list[ET.Element] = []
    for element in parent:
        _ungroup(element, marks, kept, viewed)
        name = element.get("id", "")
        if name not in kept:
            element.attrib.pop("id", None)
        if name.startswith(MARK) and len(element):
            mark = marks[int(name.removeprefix(MARK))]
            element[0].attrib |= mark.data
            if mark.tip:
                tip = ET.Element("title")
                tip.text = mark.tip
                element[0].insert(0, tip)
            if mark.viewed:
                viewed += list(element)
                continue
        plain = element.tag == "g" and not element.attrib
        children += list(element) if plain else [element]
    parent[:] = children


def _without_blanks(root: ET.Element) -> None:
    for element in root.iter():
        element.tail = "\n" if element.tag not in ("text", "title", "style") else None
        if element.tag not in ("text", "title", "style"):
            element.text = None
    root.tail = None
