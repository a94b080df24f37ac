"""cluster_text: machines as a cluster file, with comments on facts read and facts assumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from textwrap import wrap

from hccc.lang.cluster.printer_text import gpus as group
from hccc.lang.cluster.printer_text import numbers
from hccc.lang.machines.machine import Bus, ImportedMachine, counted
from hccc.shipped.hardware import load

FIRST_LINE = "# Imported by `hccc cluster import`"
WIDTH = 98
PCIE_ALPHA = "alpha_simple"


def text(machines: Sequence[ImportedMachine]) -> str:
    """Writes the cluster file of machines, one node each, on one switch."""
    count, gpus = len(machines), sum(machine.gpus for machine in machines)
    lines = [f"{FIRST_LINE}: {counted(count, 'node')}, {counted(gpus, 'GPU')}."]
    if count > 1:
        lines += _comment("Assumed of the network: one switch that slows nobody joins all NICs.")
    first = 1
    body = {id(m): tuple(_body(m)) for m in {id(m): m for m in machines}.values()}
    for _, same in groupby(machines, key=lambda m: (m.name, body[id(m)])):
        alike = list(same)
        lines += ["", *_comments(alike[0]), *_node(alike[0], first, len(alike))]
        first += len(alike)
    return "\n".join(lines) + "\n"


def _comments(m: ImportedMachine) -> Iterator[str]:
    yield from _comment(f"{m.name}: {'; '.join(m.read)}.")
    for sentence in m.assumed:
        yield from _comment(f"Assumed: {sentence}.")


def _comment(sentence: str) -> list[str]:
    plain = "".join(c if c.isprintable() else "?" for c in sentence)
    return [f"# {line}" for line in wrap(plain, WIDTH)]


def _node(m: ImportedMachine, first: int, count: int) -> Iterator[str]:
    yield f"define node{first} = {f'{count} * ' if count > 1 else ''}{m.gpus}"
    yield from _body(m)


def _body(m: ImportedMachine) -> Iterator[str]:
    """Yields the lines of a node after its `define nodeN`."""
    joined = bool(m.links or m.to_switch or m.usual_links or m.gpus == 1)
    pcie = "" if joined or m.device.word("link") == "pcie" else ", link => pcie"
    name = f"{{name => {m.device.name}{pcie}}}" if pcie else m.device.name
    yield f"define device = {name}"
    kinds = dict(_bandwidth(m))
    if kinds:
        yield from _list("define bandwidth = {", "}", kinds)
    if m.network is not None:
        yield f"define network = {m.network.name}"
    if m.nics:
        entries = [f"({group(nic.gpus)} -> {_rate(nic.rate, nic.count)})" for nic in m.nics]
        yield from _wrapped("define nic = [", entries, "]")


def _bandwidth(m: ImportedMachine) -> Iterator[tuple[str, list[str]]]:
    """Yields the kinds of links, with the entries of each."""
    if m.usual_links or m.gpus == 1:
        return
    if m.to_switch:
        counts = groupby(range(m.gpus), key=m.to_switch.__getitem__)
        runs = [(count, list(same)) for count, same in counts if count]
        yield "port", [f"({group(run)} -> {_rate(m.link_rate * count)})" for count, run in runs]
    if m.links:
        alike = set(m.links.values())
        if len(m.links) == m.gpus * (m.gpus - 1) and len(alike) == 1:
            yield "mesh", [f"({group(range(m.gpus))} -> {_rate(m.link_rate, alike.pop())})"]
        else:
            yield "direct", list(_direct(m))
    if m.over_buses:
        yield from _buses(m)


def _direct(m: ImportedMachine) -> Iterator[str]:
    for (u, v), count in sorted(m.links.items()):
        yield f"(({u},{v}) -> {_rate(m.link_rate, count)})"


def _buses(m: ImportedMachine) -> Iterator[tuple[str, list[str]]]:
    """Yields PCI Express: a port per GPU if nothing is shared, else a switch entry per bus."""
    alpha = load.pcie(m.device.word("pcie"), peer=True).number(PCIE_ALPHA)
    alone = [bus for bus in m.buses if len(bus.a) == 1]
    flat = len(alone) == len(m.buses) == m.gpus and len({bus.rate for bus in alone}) == 1
    if flat and not m.to_switch:
        yield "port", [f"({group(range(m.gpus))} -> {_rate(alone[0].rate, 1, alpha)})"]
        return
    yield "switch", [_joint(bus, alpha) for bus in m.buses]


def _joint(bus: Bus, alpha: float) -> str:
    return f"({_ids(bus.a)}, {_ids(bus.b)} >-> {_rate(bus.rate, 1, alpha)})"


def _ids(gpus: Sequence[int]) -> str:
    """Writes `(0..3, 6)`."""
    return f"({numbers(gpus)})"


def _rate(rate: float, count: int = 1, alpha: float | None = None) -> str:
    last = "" if alpha is None else f", {alpha:g}"
    return f"({rate:.5g}, {count}{last})"


def _list(begin: str, end: str, kinds: Mapping[str, list[str]]) -> Iterator[str]:
    for i, (kind, entries) in enumerate(kinds.items()):
        last = i + 1 == len(kinds)
        head = begin if i == 0 else " " * len(begin)
        yield from _wrapped(f"{head}{kind} => [", entries, f"]{end}" if last else "],")


def _wrapped(begin: str, entries: Sequence[str], end: str) -> Iterator[str]:
    """Yields `begin`, the entries and `end`, in lines of WIDTH."""
    line = begin
    for i, entry in enumerate(entries):
        more = f"{entry}{end if i + 1 == len(entries) else ','}"
        if len(line) + len(more) >= WIDTH and line != begin:
            yield line.rstrip()
            line = " " * len(begin)
        line += more + " "
    yield line.rstrip()
