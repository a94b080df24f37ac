"""load: the library of devices and networks, each figure with its source or marked as an estimate.

The figures are in the TOML files beside this module (`devices.toml` explains each). Names are
looked up regardless of case, spaces and dashes, by the names that drivers print, and without words
that do not change the hardware's links (`NVIDIA A100-SXM4-80GB`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from hccc.ir.device import ByProtocol, Device, Network

Value = float | str | bool
WORDS = ("vendor", "arch", "generation", "link", "nvls", "peer")
RATES = (
    "reduce",
    "block",
    "store",
    "load",
    "proxy",
    "hbm",
    "wire",
    "delivered",
    "launch",
    "graph",
    "own",
    "fence",
)

# Words of a name that do not change the hardware's links: vendors, series, forms, systems.
IGNORED_WORDS = re.compile(
    r"nvidia|amd|tesla|instinct|quadro|geforce|hgx|dgx|gpu|tensor|core|sxm\d?|oam|hbm\d?e?|ac|oem|nvl\d+"
    r"|grace|hopper|blackwell|superchip|aws|amazon|gcp|google|hpe|cray|mellanox|network|fabric|gpudirect"
)
SIZE = re.compile(r"\b\d+ ?gi?b\b")
SPEED = re.compile(r"\b(\d+) ?(?:g|gb?e|gbps|gbit|gb?/s|gbit/s)\b")
SPEEDS = {
    "fdr": 6.8,
    "edr": 12.5,
    "hdr100": 12.5,
    "hdr": 25,
    "hdr200": 25,
    "ndr200": 25,
    "ndr": 50,
    "ndr400": 50,
    "xdr": 100,
    "xdr800": 100,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. source: where it comes from; for an `estimate`, how it was derived."""

    value: Value
    source: str
    estimate: bool = False

    @property
    def number(self) -> float:
        """The value of a numeric figure."""
        assert not isinstance(self.value, str)
        return float(self.value)


@dataclass(frozen=True, slots=True)
class Hardware:
    """All figures of one device, network or bus. names: other names; older: by device generation,
    the network used there instead."""

    name: str
    names: tuple[str, ...]
    figures: Mapping[str, Figure]
    older: Mapping[str, str] = field(default_factory=dict)

    def number(self, figure: str) -> float:
        """Returns a numeric figure."""
        return self.figures[figure].number

    def word(self, figure: str) -> str:
        """Returns a figure that is a name."""
        return str(self.figures[figure].value)

    @property
    def estimates(self) -> tuple[str, ...]:
        """The names of the figures that are estimates, in order."""
        return tuple(name for name, figure in self.figures.items() if figure.estimate)

    @property
    def device(self) -> Device:
        """The figures of a device that a Topology keeps."""
        said = {name: self.figures[name].value for name in WORDS}
        rates = {name: self.number(name) for name in RATES}
        counts = {name: int(self.number(name)) for name in ("sms", "blocks")}
        times = {"alpha": self.by_protocol("alpha"), "base": self.by_protocol("base")}
        values: dict[str, Any] = {**said, **rates, **counts, **times}
        return Device(name=self.name, **values, estimates=self.estimates)

    @property
    def network(self) -> Network:
        """The figures of a network that a Topology keeps."""
        bandwidth, delivered = self.number("bandwidth"), self.number("delivered")
        alpha, proxy = self.by_protocol("alpha"), self.number("proxy")
        return Network(self.name, bandwidth, delivered, alpha, proxy, self.estimates)

    def by_protocol(self, figure: str) -> ByProtocol:
        """Returns `alpha` or `base`, with its value for each protocol."""
        return ByProtocol(*(self.number(f"{figure}_{p}") for p in ByProtocol._fields))


def device(name: str) -> Hardware | None:
    """Finds a device by any of its names."""
    known = _named("devices.toml")
    return known.get(_plain(name)) or known.get(_without(name, SIZE))


def network(name: str) -> Hardware | None:
    """Finds a network by any of its names, which may include its speed (`InfiniBand NDR`,
    `100GbE`)."""
    known = _named("networks.toml")
    rest = _without(name, SPEED, SPEEDS)
    if not rest and "gbe" in name.casefold():
        rest = "ethernet"
    elif not rest and speed(name) and not SPEED.search(_words(name)):
        rest = "infiniband"
    return known.get(_plain(name)) or known.get(rest)


def speed(name: str) -> float | None:
    """Returns a NIC's speed in GB/s if the network's name states it: 50 for `InfiniBand NDR`."""
    words = _words(name)
    if said := SPEED.search(words):
        return int(said[1]) / 8
    return next((SPEEDS[word] for word in words.split() if word in SPEEDS), None)


def pcie(generation: str, *, peer: bool) -> Hardware:
    """Returns the figures of PCI Express x16 (`gen4`), with or without peer access of GPUs."""
    return library("pcie.toml")[generation if peer else f"{generation}-host"]


def nic_limit(device: Hardware, gpus: int, nics: int) -> float:
    """Returns the most GB/s of each NIC of a node: the PCI Express of the NIC and, except behind a
    Grace CPU, its share of the GPUs' PCI Express."""
    bus = max(pcie(device.word("pcie"), peer=True).number("wire"), device.number("node_nic"))
    grace = device.name.startswith(("GB", "GH"))
    return bus if grace else min(bus, bus * gpus / nics)


def devices() -> Mapping[str, Hardware]:
    """Returns all devices, by name."""
    return library("devices.toml")


def networks() -> Mapping[str, Hardware]:
    """Returns all networks, by name."""
    return library("networks.toml")


@cache
def library(file: str) -> Mapping[str, Hardware]:
    """Loads one of the TOML files."""
    text = (files("hccc.shipped.hardware") / file).read_text(encoding="utf-8")
    found: dict[str, Hardware] = {}
    for name, table in tomllib.loads(text).items():
        below = found[table["like"]] if "like" in table else None
        names, older = tuple(table.get("names", ())), dict(table.get("older", {}))
        found[name] = Hardware(name, names, _figures(table, below), older)
    return MappingProxyType(found)


def _figures(table: Mapping[str, Any], below: Hardware | None) -> Mapping[str, Figure]:
    """Returns the figures of a TOML table; those of its `like` table are defaults."""
    figures: dict[str, Figure] = {}
    if below is not None:
        said = f"as {below.name}"
        figures = {key: Figure(f.value, said, True) for key, f in below.figures.items()}
    for key, given in table.items():
        if key in ("like", "source", "names", "older"):
            continue
        if not isinstance(given, dict):
            figures[key] = Figure(given, table["source"])
        elif "estimate" in given:
            figures[key] = Figure(given["value"], given["estimate"], True)
        else:
            figures[key] = Figure(given["value"], given["source"])
    return MappingProxyType(figures)


@cache
def _named(file: str) -> Mapping[str, Hardware]:
    found = library(file)
    return {_plain(name): x for key, x in found.items() for name in (key, *x.names)}


def _plain(name: str) -> str:
    return _words(name).replace(" ", "")


def _words(name: str) -> str:
    """Splits a name into lower-case words, joined by single spaces."""
    return re.sub(r"[ _()-]+", " ", name).strip().casefold()


def _without(name: str, figure: re.Pattern[str], words: Iterable[str] = ()) -> str:
    """Returns a plain name without the words in IGNORED_WORDS, the pattern `figure` and `words`."""
    rest = figure.sub(" ", _words(name)).split()
    return "".join(w for w in rest if not IGNORED_WORDS.fullmatch(w) and w not in words)
