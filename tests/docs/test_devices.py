"""docs/devices.md has every figure of the library, with its source or that it is an estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hccc.ir.device import ALPHAS, BASES
from hccc.shipped.hardware import load
from hccc.shipped.hardware.load import Hardware
from tests.docs import pages

Generated = Callable[[str, str, str], None]
PAGE = "devices.md"
BLOCKS = ("arch", "generation", "sms", "hbm", "block", "store", "load", "proxy", "reduce", "blocks")
NODE = ("gpus", "nics", "nic", "network")
LINKS = (
    "link",
    "links",
    "wire",
    "delivered",
    "bridge",
    "nvls",
    "peer",
    "pcie",
    *(f"node_{x}" for x in NODE),
)
TIMES = (*ALPHAS, *BASES, "launch", "graph", "own", "fence")
NETWORKS = ("bandwidth", "delivered", *ALPHAS, "proxy")
OPTIONAL = ("nics", "bridge")
PCIE = ("wire", "delivered", *ALPHAS)
TABLES = {"blocks": BLOCKS, "links": LINKS, "latencies": TIMES}


def _cell(hardware: Hardware, name: str) -> str:
    if name in OPTIONAL and name not in hardware.figures:
        return ""
    value = hardware.figures[name].value
    said = {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value}"
    return f"*{said}*" if hardware.figures[name].estimate else said


def _table(library: Mapping[str, Hardware], names: Sequence[str]) -> str:
    head = ("", *(name.replace("_", " ") for name in names))
    rows = [[name, *(_cell(x, figure) for figure in names)] for name, x in library.items()]
    return pages.table(head, rows)


def _sources(hardware: Hardware) -> str:
    """Returns a list: each source or derivation, with its figures."""
    of: dict[tuple[bool, str], list[str]] = {}
    for name, figure in hardware.figures.items():
        of.setdefault((figure.estimate, figure.source), []).append(name)
    lines = [
        f"- {', '.join(names)}: {'estimate, ' if estimate else ''}{source}\n"
        for (estimate, source), names in sorted(of.items(), key=lambda entry: entry[0][0])
    ]
    return f"### {hardware.name}\n\n{''.join(lines)}\n"


def test_the_page_has_every_figure(generated: Generated) -> None:
    for name, figures in TABLES.items():
        generated(PAGE, name, _table(load.devices(), figures))
    generated(PAGE, "networks", _table(load.networks(), (*NETWORKS, *OPTIONAL)))
    generated(PAGE, "pcie", _table(load.library("pcie.toml"), PCIE))
    every = [*load.devices().values(), *load.networks().values()]
    every += load.library("pcie.toml").values()
    generated(PAGE, "sources", "".join(map(_sources, every)))


def test_no_figure_is_left_out() -> None:
    shown = {"vendor", *(name for figures in TABLES.values() for name in figures)}
    assert all(set(x.figures) | {*OPTIONAL} == shown | {*OPTIONAL} for x in load.devices().values())
    assert all(set(x.figures) - {*OPTIONAL} == set(NETWORKS) for x in load.networks().values())
    assert all(set(x.figures) == set(PCIE) for x in load.library("pcie.toml").values())
