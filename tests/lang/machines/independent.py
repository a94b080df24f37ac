"""A second reader of NCCL's and RCCL's topologies, for comparison; it shares no code."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

LANES = {"2.5": 15, "5": 30, "8": 60, "16": 120, "32": 240, "64": 480}  # NCCL's topo.cc
NO_NIC = ("veth", "virbr", "docker", "cni", "lo", "tap", "tun")


@dataclass(frozen=True, slots=True)
class Facts:
    """A machine as its description has it.

    links: between GPUs, in one direction; switched: into a switch, by GPU; near: for each GPU the
    NICs nearest to it; wires: each NIC's Gb/s (0: unknown), GB/s of its PCI Express, its device.
    """

    gpus: int
    numa: int
    links: dict[tuple[int, int], int]
    switched: list[int]
    near: list[frozenset[str]]
    wires: dict[str, tuple[float, float, str]]


def facts(text: str) -> Facts:
    """Reads a description that names its GPUs, or has them as PCI devices."""
    root = ET.fromstring(text)
    above = {child: parent for parent in root.iter() for child in parent}

    def chain(e: ET.Element) -> Iterator[ET.Element]:
        while e is not root:
            yield e
            e = above[e]

    def device(e: ET.Element) -> ET.Element:
        return next(x for x in chain(e) if x.tag in ("pci", "cpu"))

    def of_class(*starts: str) -> list[ET.Element]:
        return [e for e in root.iter("pci") if e.get("class", "").startswith(starts)]

    gpus = list(root.iter("gpu")) or of_class("0x0302")
    if all(e.get("rank") for e in gpus):
        gpus.sort(key=lambda e: int(e.get("rank", "")))
    else:
        gpus.sort(key=lambda e: device(e).get("busid", ""))
    place = {device(e).get("busid", "").lower(): i for i, e in enumerate(gpus)}
    nets = list(root.iter("net")) or of_class("0x02")
    links: dict[tuple[int, int], int] = defaultdict(int)
    switched = [0] * len(gpus)
    owned: dict[str, set[int]] = defaultdict(set)
    for u, gpu in enumerate(gpus):
        for link in (e for e in gpu if e.tag in ("nvlink", "xgmi")):
            to, count = link.get("target", "").lower(), int(link.get("count", 1))
            if place.get(to, u) != u:
                links[u, place[to]] += count
            elif to not in place and link.get("tclass", "").startswith("0x0680"):
                switched[u] += count
            elif to not in place:
                owned[to].add(u)
    kept: dict[str, ET.Element] = {}
    for e in nets:
        kept[f"{e.get('name') or e.get('busid')}/{e.get('port')}"] = e
    kept = {k: e for k, e in kept.items() if not k.startswith(NO_NIC)} or kept
    fastest = max((float(e.get("speed", 0)) for e in kept.values()), default=0)
    kept = {k: e for k, e in kept.items() if float(e.get("speed", 0)) >= fastest / 10}
    common = {
        k: [
            inf
            if u in owned[device(e).get("busid", "").lower()]
            else len(set(chain(e)) & set(chain(gpu)))
            for u, gpu in enumerate(gpus)
        ]
        for k, e in kept.items()
    }
    near = [
        frozenset(k for k, n in common.items() if n[u] == max(m[u] for m in common.values()))
        for u in range(len(gpus))
    ]
    wires = {}
    for k, e in kept.items():
        speed, pci = float(e.get("speed", 0)), device(e)
        bus, found = inf, re.match(r"(\d+(\.5)?)(\.0)? GT/s", pci.get("link_speed", ""))
        if pci.tag == "pci" and found and not owned[pci.get("busid", "").lower()]:
            bus = (int(pci.get("link_width", 0)) or 16) * LANES[found[1]] / 80
        wires[k] = speed / (1e6 if speed > 1e7 else 1e3), bus, pci.get("busid", k)
    return Facts(len(gpus), len(root.findall("cpu")), dict(links), switched, near, wires)


def total(f: Facts, arrives: float) -> float:
    """Returns GB/s of the NICs nearest to any GPU, of whose wire `arrives` arrives."""
    cards: dict[str, list[float]] = defaultdict(list)
    for k in frozenset[str]().union(*f.near):
        wire, bus, card = f.wires[k]
        cards[card].append(min(wire / 8 * arrives, bus))
    bus_of = {card: bus for _, bus, card in f.wires.values()}
    # ports that carry nothing have their part of the card's PCI Express all the same
    return sum(min(sum(rates), bus_of[card]) for card, rates in cards.items())
