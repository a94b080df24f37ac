"""devices: `define device` and `define network`: hardware of the library, or described by hand."""

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
PLAIN_TIMES = ("launch", "graph", "own", "fence", "step")
TIMES = (*ALPHAS, *BASES, *PLAIN_TIMES)
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
CARDS_LINKED_AS = "A100"  # the latencies of a bridge are those of its NVLink
OF_A_BRIDGE = 0.8  # the share of a bridge that thread blocks get, as of a V100's NVLink
MOST_SIZES = 64  # of a cache
A_CACHE = "(2 MiB -> (45, 90))"
UNKNOWN = Device(estimates=GUESSED)
UNKNOWN_NETWORK = Network(estimates=GUESSED_OF_NETWORKS)
Of = TypeVar("Of", Device, Network)


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The device of some nodes. hardware: its entry in the library, if known; estimates_given:
    whether the file itself names the figures that are estimates."""

    device: Device = UNKNOWN
    hardware: Hardware | None = None
    estimates_given: bool = False

    def without(self, stated: Iterable[str]) -> DeviceChoice:
        """Returns the choice without the estimates in `stated`, since the file replaces them."""
        return self if self.estimates_given else replace(self, device=_settled(self.device, stated))


@dataclass(frozen=True, slots=True)
class NetworkChoice:
    """The network of some nodes. nics: NICs per node, None for the usual number; bandwidth_given:
    whether `bandwidth` is from the file; hardware, estimates_given: as in DeviceChoice."""

    network: Network = UNKNOWN_NETWORK
    hardware: Hardware | None = None
    nics: int | None = None
    bandwidth_given: bool = False
    estimates_given: bool = False

    def without(self, stated: Iterable[str]) -> NetworkChoice:
        """Returns the choice without the estimates in `stated`, since the file replaces them."""
        return (
            self if self.estimates_given else replace(self, network=_settled(self.network, stated))
        )


def _settled(of: Of, stated: Iterable[str]) -> Of:
    gone = set(stated)
    return replace(of, estimates=tuple(name for name in of.estimates if name not in gone))


def read_device(value: Value, old: DeviceChoice) -> DeviceChoice:
    """Reads `H100`, or `{name => H100, …}` with other figures. With `vendor`, or a name unknown to
    the library, missing figures are those of `old`. Raises `Mistake`."""
    if isinstance(value, Word):
        hardware = _known(value, load.device(value.text), load.devices(), "device")
        return DeviceChoice(hardware.device, hardware)
    given = mapping(value, OF_DEVICES, "device")
    found = load.device(name(given["name"], "a device")) if "name" in given else None
    if found is not None and "vendor" not in given:
        old = DeviceChoice(found.device, found)
        del given["name"]
    elif "name" in given:
        old = replace(old, hardware=None)
    old = _bridged(_over_pcie(old, given), given)
    figures = _figures(given)
    if "alpha" in figures or "base" in figures:
        for figure in ("alpha", "base"):
            times = figures.get(figure, {})
            figures[figure] = getattr(old.device, figure)._replace(**times)
    estimates = _estimates(given, old.device.estimates)
    device = replace(old.device, **figures, estimates=estimates)
    return DeviceChoice(device, old.hardware, old.estimates_given or "estimates" in given)


def _known(value: Word, found: Hardware | None, all: Mapping[str, Hardware], noun: str) -> Hardware:
    if found is None:
        near = did_you_mean(value.text, list(all))
        help = f"there are {', '.join(all)}; `{{name => ...}}` describes another"
        help = f"did you mean `{near[0]}`? {help}" if near else help
        raise Mistake("E138", f"hccc knows no {noun} `{clip(value.text)}`", value.at, help)
    return found


def _over_pcie(old: DeviceChoice, given: Mapping[str, Value]) -> DeviceChoice:
    """Replaces the device's links by PCI Express, if the file asks for it."""
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


def _bridged(old: DeviceChoice, given: Mapping[str, Value]) -> DeviceChoice:
    """Gives a card an NVLink bridge to another card, if the file asks for it."""
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
    """Returns the figures of the file as fields of a Device; alpha and base by protocol."""
    found: dict[str, Any] = {}
    if "block" in given:
        found |= dict.fromkeys(BLOCK_RATES, rate(given["block"], "block"))
    readers = {"link": _link, "peer": _yes, "nvls": _yes, "read": _share, "cache": _cache}
    for key, value in given.items():
        if key in NAMES:
            noun = "a device" if key == "name" else f"a {key}" if key == "vendor" else f"`{key}`"
            found[key] = name(value, noun)
        elif key in RATES and key != "block":
            found[key] = rate(value, key)
        elif key in COUNTS:
            found[key] = integer(value, f"`{key}`", 1, MOST_COUNT)
        elif key in PLAIN_TIMES:
            found[key] = latency(value, f"`{key}`")
        elif key in readers:
            found[key] = readers[key](value, key)
    for figure, keys in (("alpha", ALPHAS), ("base", BASES)):
        if times := _times(given, figure, keys):
            found[figure] = times
    return found


def _times(given: Mapping[str, Value], figure: str, keys: tuple[str, ...]) -> dict[str, float]:
    """Returns µs by protocol: `alpha` is that of all protocols, `alpha_ll` of one."""
    found: dict[str, float] = {}
    if figure in given:
        found = dict.fromkeys(ByProtocol._fields, latency(given[figure], f"`{figure}`"))
    own = {key: latency(given[key], f"`{key}`") for key in keys if key in given}
    return found | {key.removeprefix(f"{figure}_"): value for key, value in own.items()}


def _estimates(given: Mapping[str, Value], old: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the estimates that the file names, or else the figures of `old` that it does not
    give."""
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


def _word(value: Value, choices: tuple[str, ...], key: str) -> str:
    if not isinstance(value, Word) or value.text not in choices:
        help = f"there are {', '.join(choices)}"
        raise Mistake("E138", f"`{key}` cannot be {shape(value)}", value.at, help)
    return value.text


def _link(value: Value, key: str) -> str:
    return _word(value, LINKS, key)


def _yes(value: Value, key: str) -> bool:
    return _word(value, ("yes", "no"), key) == "yes"


def read_network(value: Value, old: NetworkChoice | None) -> NetworkChoice:
    """Reads `InfiniBand`, or `{name => InfiniBand, …}` with other figures. Raises `Mistake`."""
    if isinstance(value, Word):
        hardware = _known(value, load.network(value.text), load.networks(), "network")
        return _as_fast(of_library(hardware), value.text)
    given = mapping(value, OF_NETWORKS, "network")
    called = name(given["name"], "a network") if "name" in given else ""
    found = load.network(called) if called else None
    choice = _as_fast(of_library(found), called) if found else old or NetworkChoice()
    network = choice.network
    if "name" in given and found is None:
        network = replace(network, name=called)
        choice = replace(choice, hardware=None)
    changes: dict[str, Any] = {"estimates": _estimates(given, network.estimates)}
    if "bandwidth" in given:
        changes["bandwidth"] = rate(given["bandwidth"], "bandwidth")
    if "delivered" in given:
        changes["delivered"] = _share(given["delivered"], "delivered")
    if "proxy" in given:
        changes["proxy"] = latency(given["proxy"], "`proxy`")
    changes["alpha"] = network.alpha._replace(**_times(given, "alpha", ALPHAS))
    nics = integer(given["nics"], "`nics`", 0, 4096) if "nics" in given else choice.nics
    return replace(
        choice,
        network=replace(network, **changes),
        nics=nics,
        bandwidth_given=choice.bandwidth_given or "bandwidth" in given,
        estimates_given=choice.estimates_given or "estimates" in given,
    )


def _as_fast(choice: NetworkChoice, called: str) -> NetworkChoice:
    """Sets the bandwidth of the NICs to the speed in the network's name, `InfiniBand HDR`."""
    if (speed := load.speed(called)) is None:
        return choice
    return replace(choice, network=replace(choice.network, bandwidth=speed), bandwidth_given=True)


def of_library(found: Hardware) -> NetworkChoice:
    """Returns a network as the library has it."""
    return NetworkChoice(found.network, found)


def _share(value: Value, key: str) -> float:
    """Reads a share of 1: `0.94`."""
    if isinstance(value, Measure) or not isinstance(value, Num):
        raise Mistake("E035", f"`{key}` is a part of 1, not {shape(value)}", value.at)
    if not 0 < value.value <= 1:
        raise Mistake("E132", f"`{key}` is {value.value:g}, not a part of 1", value.at)
    return value.value


def _cache(value: Value, key: str) -> tuple[Cached, ...]:
    """Reads `[(2 MiB -> (45, 90)), (1 GiB -> (7, 12))]`: ascending sizes, with two rates at all or
    at none."""
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
        found.append(Cached(touched, *(rate(rate_value, "a rate") for rate_value in rates)))
    if not 1 <= len(found) <= MOST_SIZES:
        message = f"`{key}` has {len(found)} sizes, not 1 to {MOST_SIZES}"
        raise Mistake("E132", message, value.at)
    return tuple(found)
