"""`define device` and `define network`: hardware of the library, or described by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hccc.ir.device import (
    ALPHAS,
    BASES,
    BLOCK_RATES,
    GUESSED,
    GUESSED_OF_NETWORKS,
    ByProtocol,
    Cached,
    Device,
    Network,
)
from hccc.lang.cluster.shapes import (
    arrow,
    entries,
    integer,
    latency,
    mapping,
    name,
    rate,
    shape,
    size,
    unwrapped,
)
from hccc.lang.cluster.text import Group, Measure, Num, Value, Word
from hccc.lang.mistakes import Mistake, clip, did_you_mean
from hccc.shipped.hardware import load
from hccc.shipped.hardware.load import Hardware

LINKS = ("nvswitch", "nvlink", "mesh", "xgmi", "pcie")
NAMES = ("vendor", "name", "arch", "generation")
RATES = ("reduce", *BLOCK_RATES, "hbm", "wire", "delivered")
COUNTS = ("sms", "blocks")
TIMES = (*ALPHAS, *BASES, "launch", "graph", "step")
OF_DEVICES = (
    *NAMES,
    *RATES,
    *COUNTS,
    "link",
    "peer",
    "nvls",
    "alpha",
    *TIMES,
    "read",
    "cache",
    "estimates",
)
OF_NETWORKS = ("name", "bandwidth", "nics", "delivered", "alpha", *ALPHAS, "proxy", "estimates")
MOST_COUNT = 1 << 20
CARDS_LINKED_AS = "A100"  # whose NVLink has the latencies of a bridge
OF_A_BRIDGE = 0.8  # that thread blocks get, as of NVLink of V100
MOST_SIZES = 64  # of a cache
A_CACHE = "(2 MiB -> (45, 90))"
UNKNOWN = Device(estimates=GUESSED)
UNKNOWN_NETWORK = Network(estimates=GUESSED_OF_NETWORKS)
Of = TypeVar("Of", Device, Network)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The device of some nodes. hardware: where the library knows it; fixed: whether the file says
    itself which figures are estimates."""

    device: Device = UNKNOWN
    hardware: Hardware | None = None
    fixed: bool = False

    def without(self, known: Iterable[str]) -> Chosen:
        """The same where these figures are no estimates, because the file has others."""
        return self if self.fixed else replace(self, device=_settled(self.device, known))


@dataclass(frozen=True, slots=True)
class Joined:
    """The network of some nodes. nics: how many a node has, None for as many as it usually has;
    given: whether `bandwidth` is from the file."""

    network: Network = UNKNOWN_NETWORK
    hardware: Hardware | None = None
    nics: int | None = None
    given: bool = False
    fixed: bool = False

    def without(self, known: Iterable[str]) -> Joined:
        """The same where these figures are no estimates, because the file has others."""
        return self if self.fixed else replace(self, network=_settled(self.network, known))


def _settled(of: Of, known: Iterable[str]) -> Of:
    gone = set(known)
    return replace(of, estimates=tuple(name for name in of.estimates if name not in gone))


def read_device(value: Value, old: Chosen) -> Chosen:
    """`H100`, or `{name => H100, …}` with other figures; with `vendor`, or a name that the library
    does not have, figures that are not given are those of `old`. Raises `Mistake`."""
    if isinstance(value, Word):
        hardware = _known(value, load.device(value.text), load.devices(), "device")
        return Chosen(hardware.device, hardware)
    given = mapping(value, OF_DEVICES, "device")
    found = load.device(name(given["name"], "a device")) if "name" in given else None
    if found is not None and "vendor" not in given:
        old = Chosen(found.device, found)
        del given["name"]
    elif "name" in given:
        old = replace(old, hardware=None)
    old = _bridged(_over_pcie(old, given), given)
    figures = _figures(given)
    if "alpha" in figures or "base" in figures:
        for what in ("alpha", "base"):
            times = figures.get(what, {})
            figures[what] = getattr(old.device, what)._replace(**times)
    estimates = _estimates(given, old.device.estimates)
    device = replace(old.device, **figures, estimates=estimates)
    return Chosen(device, old.hardware, old.fixed or "estimates" in given)


def _known(value: Word, found: Hardware | None, all: Mapping[str, Hardware], what: str) -> Hardware:
    if found is None:
        near = did_you_mean(value.text, list(all))
        help = f"there are {', '.join(all)}; `{{name => ...}}` describes another"
        help = f"did you mean `{near[0]}`? {help}" if near else help
        raise Mistake("E138", f"hccc knows no {what} `{clip(value.text)}`", value.at, help)
    return found


def _over_pcie(old: Chosen, given: Mapping[str, Value]) -> Chosen:
    """The device with what PCI Express delivers, where the file asks for that."""
    asked = _word(given["link"], LINKS, "link") if "link" in given else old.device.link
    if asked != "pcie" or not {"link", "peer"} & set(given) or old.hardware is None:
        return old
    peer = _yes(given["peer"], "peer") if "peer" in given else old.device.peer
    bus = load.pcie(old.hardware.word("pcie"), peer=peer)
    figures = {name: bus.number(name) for name in ("wire", "delivered")}
    gone = {*figures, *ALPHAS}
    kept = tuple(name for name in old.device.estimates if name not in gone)
    guessed = tuple(name for name in bus.estimates if name in gone)
    device = replace(
        old.device,
        wire=figures["wire"],
        delivered=figures["delivered"],
        alpha=bus.by_protocol("alpha"),
        estimates=kept + guessed,
    )
    return replace(old, device=device)


def _bridged(old: Chosen, given: Mapping[str, Value]) -> Chosen:
    """The card with an NVLink bridge to another, where the file asks for that."""
    hardware = old.hardware
    if hardware is None or "link" not in given or hardware.word("link") != "pcie":
        return old
    if (link := _word(given["link"], LINKS, "link")) == "pcie":
        return old
    if link not in ("mesh", "nvlink") or ("bridge" not in hardware.figures and "wire" not in given):
        help = f"{hardware.name} is on PCI Express; `wire` and `delivered` describe links of it"
        raise Mistake("E138", f"{hardware.name} has no `{link}`", given["link"].at, help)
    linked = load.devices()[CARDS_LINKED_AS]
    figures: dict[str, Any] = {"alpha": linked.by_protocol("alpha")}
    if "bridge" in hardware.figures:
        wire = hardware.number("bridge")
        figures |= {"wire": wire, "delivered": OF_A_BRIDGE * wire}
    gone = {"wire", *ALPHAS}
    kept = tuple(name for name in old.device.estimates if name not in gone)
    return replace(old, device=replace(old.device, **figures, estimates=(*kept, "delivered")))


def _figures(given: Mapping[str, Value]) -> dict[str, Any]:
    """What is given, as fields of a Device; alpha and base by protocol."""
    found: dict[str, Any] = {}
    if "block" in given:
        found |= dict.fromkeys(BLOCK_RATES, rate(given["block"], "block"))
    readers = {"link": _link, "peer": _yes, "nvls": _yes, "read": _share, "cache": _cache}
    for key, value in given.items():
        if key in NAMES:
            what = "a device" if key == "name" else f"a {key}" if key == "vendor" else f"`{key}`"
            found[key] = name(value, what)
        elif key in RATES and key != "block":
            found[key] = rate(value, key)
        elif key in COUNTS:
            found[key] = integer(value, f"`{key}`", 1, MOST_COUNT)
        elif key in ("launch", "graph", "step"):
            found[key] = latency(value, f"`{key}`")
        elif key in readers:
            found[key] = readers[key](value, key)
    for what, keys in (("alpha", ALPHAS), ("base", BASES)):
        if times := _times(given, what, keys):
            found[what] = times
    return found


def _times(given: Mapping[str, Value], what: str, keys: tuple[str, ...]) -> dict[str, float]:
    """µs by protocol: `alpha` is that of all, `alpha_ll` of one."""
    found: dict[str, float] = {}
    if what in given:
        found = dict.fromkeys(ByProtocol._fields, latency(given[what], f"`{what}`"))
    own = {key: latency(given[key], f"`{key}`") for key in keys if key in given}
    return found | {key.removeprefix(f"{what}_"): value for key, value in own.items()}


def _estimates(given: Mapping[str, Value], old: tuple[str, ...]) -> tuple[str, ...]:
    """The figures that are estimates: as the file says, else those that it does not give."""
    if "estimates" not in given:
        known = set(given)
        known |= set(BLOCK_RATES if "block" in given else ())
        known |= set(ALPHAS if "alpha" in given else ())
        return tuple(name for name in old if name not in known)
    value = given["estimates"]
    if isinstance(value, Word) and value.text == "none":
        return ()
    items = value.items if isinstance(value, Group) else [value]
    keys = tuple(dict.fromkeys((*OF_DEVICES, *OF_NETWORKS)))
    return tuple(_word(item, keys, "estimates") for item in items)


def _word(value: Value, choices: tuple[str, ...], what: str) -> str:
    if not isinstance(value, Word) or value.text not in choices:
        help = f"there are {', '.join(choices)}"
        raise Mistake("E138", f"`{what}` cannot be {shape(value)}", value.at, help)
    return value.text


def _link(value: Value, key: str) -> str:
    return _word(value, LINKS, key)


def _yes(value: Value, key: str) -> bool:
    return _word(value, ("yes", "no"), key) == "yes"


def read_network(value: Value, old: Joined | None) -> Joined:
    """`InfiniBand`, or `{name => InfiniBand, …}` with other figures. Raises `Mistake`."""
    if isinstance(value, Word):
        hardware = _known(value, load.network(value.text), load.networks(), "network")
        return _as_fast(of_library(hardware), value.text)
    given = mapping(value, OF_NETWORKS, "network")
    called = name(given["name"], "a network") if "name" in given else ""
    found = load.network(called) if called else None
    joined = _as_fast(of_library(found), called) if found else old or Joined()
    network = joined.network
    if "name" in given and found is None:
        network = replace(network, name=called)
        joined = replace(joined, hardware=None)
    changes: dict[str, Any] = {"estimates": _estimates(given, network.estimates)}
    if "bandwidth" in given:
        changes["bandwidth"] = rate(given["bandwidth"], "bandwidth")
    if "delivered" in given:
        changes["delivered"] = _share(given["delivered"], "delivered")
    if "proxy" in given:
        changes["proxy"] = latency(given["proxy"], "`proxy`")
    changes["alpha"] = network.alpha._replace(**_times(given, "alpha", ALPHAS))
    nics = integer(given["nics"], "`nics`", 0, 4096) if "nics" in given else joined.nics
    return replace(
        joined,
        network=replace(network, **changes),
        nics=nics,
        given=joined.given or "bandwidth" in given,
        fixed=joined.fixed or "estimates" in given,
    )


def _as_fast(joined: Joined, called: str) -> Joined:
    """The network with NICs as fast as its name says, `InfiniBand HDR`."""
    if (speed := load.speed(called)) is None:
        return joined
    return replace(joined, network=replace(joined.network, bandwidth=speed), given=True)


def of_library(found: Hardware) -> Joined:
    """A network as the library has it."""
    return Joined(found.network, found)


def _share(value: Value, key: str) -> float:
    """A part of 1: `0.94`."""
    if isinstance(value, Measure) or not isinstance(value, Num):
        raise Mistake("E035", f"`{key}` is a part of 1, not {shape(value)}", value.at)
    if not 0 < value.value <= 1:
        raise Mistake("E132", f"`{key}` is {value.value:g}, not a part of 1", value.at)
    return value.value


def _cache(value: Value, key: str) -> tuple[Cached, ...]:
    """`[(2 MiB -> (45, 90)), (1 GiB -> (7, 12))]`: ascending sizes, two rates at all or at none."""
    found: list[Cached] = []
    for entry in entries(value):
        given = arrow(entry, "->", A_CACHE)
        touched = size(unwrapped(given.left))
        rates = given.right.items if isinstance(given.right, Group) else (given.right,)
        if not 1 <= len(rates) <= 2 or (found and bool(found[0].all) != (len(rates) == 2)):
            help = f"write `{A_CACHE}`: of one thread block, and, at every size or at none, of all"
            raise Mistake("E035", f"`{key}` has one or two rates for a size", entry.at, help)
        if found and touched <= found[-1].size:
            raise Mistake("E134", f"the sizes of `{key}` are not in ascending order", entry.at)
        found.append(Cached(touched, *(rate(each, "a rate") for each in rates)))
    if not 1 <= len(found) <= MOST_SIZES:
        message = f"`{key}` has {len(found)} sizes, not 1 to {MOST_SIZES}"
        raise Mistake("E132", message, value.at)
    return tuple(found)
