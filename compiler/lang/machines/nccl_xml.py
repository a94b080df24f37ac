"""nccl_xml: topologies as NCCL and RCCL dump them, and as vendors ship them.

`<system>` has `<cpu>`s, these the tree of PCI Express (`<pci>`), in which are `<gpu>`s with their
`<nvlink>`s or `<xgmi>`s, and `<nic>`s with their `<net>`s. A vendor's file often has only the PCI
tree, which NCCL completes on the machine: there the PCI class identifies GPUs and NICs.
Sources: NCCL 2.30.7 src/graph/xml.cc, topo.cc; RCCL's the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hccc.base.diagnostics import Source, fail
from hccc.lang.machines import identify
from hccc.lang.machines.elements import MAX_DEPTH, Element, parse
from hccc.lang.machines.machine import MAX_GPUS, Bus, ImportedMachine, counted, link_rate, narrowest
from hccc.lang.machines.nics import FoundNic, nics_and_network
from hccc.shipped.hardware import load
from hccc.shipped.hardware.load import Hardware

CPU_CLASS = "0x068001"
GPU_CLASSES = ("0x0302", "0x1200", "0x0380")
NIC_CLASS, SWITCH_CLASS = "0x02", "0x068000"
LINKS = ("nvlink", "xgmi")
WIDEST = 16  # lanes, if the description has none
MAX_CPUS = 32  # with GPUs: every pair gets a bus
MAX_LINKS = 4096  # between two GPUs, as in the cluster language
UNKNOWN_TARGET = "fffffff:ffff:ff"  # NCCL's name for the switch of a virtual machine


@dataclass(frozen=True, slots=True)
class _Place:
    """A GPU or NIC in the tree: its elements from the CPU down to its own."""

    path: tuple[Element, ...]
    own: Element

    @property
    def pci(self) -> Element:
        """The PCI device of the GPU or NIC, or the CPU that it hangs on."""
        return next(e for e in reversed(self.path) if e.name in ("pci", "cpu"))


def machines(
    source: Source,
    device: Hardware | None,
    network: Hardware | None,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> list[ImportedMachine]:
    """Reads the machines of one file: one, or several if the dump is of several hosts.

    device, network: of the GPUs and NICs, if the user named them; pairs: of GPUs that links join
    whose other end is hidden, if the user named them.

    Raises:
        UserError: E540 the file describes no machine; E541 it contradicts itself; E542 the GPUs
        cannot be identified.
    """
    root = parse(source)
    if root.name != "system":
        hint = (
            "a graph file: give the topology, NCCL_TOPO_DUMP_FILE" if "graph" in root.name else ""
        )
        message = f"{source.name} begins with <{root.name[:40]}>, not with <system>"
        raise fail("E540", message, help=hint or "NCCL_TOPO_DUMP_FILE=FILE has NCCL write one")
    hosts: dict[str, list[Element]] = {}
    for cpu in root.of("cpu"):
        hosts.setdefault(cpu.get("host_hash"), []).append(cpu)
    found = [_Host(source, cpus, device, network, pairs).machine() for cpus in hosts.values()]
    if not found:
        raise fail("E540", f"{source.name} has no <cpu>, so no GPUs")
    if len(found) > 1 and any(any(machine.to_switch) for machine in found):
        said = "no NVLink joins hosts: `memory` and `interbandwidth` describe one that does"
        found = [replace(machine, assumed=(*machine.assumed, said)) for machine in found]
    return found


class _Host:
    """Reads the CPUs of one host."""

    def __init__(
        self,
        source: Source,
        cpus: list[Element],
        device: Hardware | None,
        network: Hardware | None,
        pairs: Sequence[tuple[int, int]] | None,
    ) -> None:
        self.source, self.cpus, self.given, self.network = source, cpus, device, network
        self.pairs = pairs
        self.read: list[str] = []
        self.near: dict[tuple[int, str], int] = {}  # links from a GPU to the NIC of a bus address
        self.assumed: list[str] = []
        every = [_Place(path, path[-1]) for cpu in cpus for path in _paths(cpu, ())]
        self.gpus = self._gpus(every)
        nets = [place for place in every if place.own.name == "net"]
        self.nets = nets or [p for p in every if _is_pci(p.own, (NIC_CLASS,))]
        self.device = self._device()

    def machine(self) -> ImportedMachine:
        """Returns the whole machine."""
        n, numbers = len(self.gpus), {_bus(p): i for i, p in enumerate(self.gpus)}
        links, to_switch = self._links(numbers)
        usual = not links and not any(to_switch) and self._silent()
        if usual and n > 1:
            self.assumed.append(f"links between GPUs: those of a usual node of {self.device.name}")
        nics, net = nics_and_network(
            self._found_nics(), self.device, self.network, self.read, self.assumed
        )
        made = ImportedMachine(
            self.source.name,
            self.device,
            n,
            links,
            tuple(to_switch) if any(to_switch) else (),
            usual,
            narrowest(self._buses()),
            nics,
            net,
        )
        if made.over_buses:
            self.assumed.append(
                "GPUs without a link reach each other over PCI Express, as NCCL rates "
                "it; NICs take nothing of it"
            )
        where = counted(len(self.cpus), "NUMA node")
        self.read.insert(0, f"{counted(n, 'GPU')} in {where}")
        return replace(made, read=tuple(self.read), assumed=tuple(self.assumed))

    def _gpus(self, every: Sequence[_Place]) -> list[_Place]:
        """Returns the GPUs in the order of their ranks, or else of their numbers, or else of the
        bus."""
        found = [place for place in every if place.own.name == "gpu"]
        if not found:
            found = [place for place in every if _is_pci(place.own, GPU_CLASSES)]
            if found:
                self.assumed.append("what each GPU is called: GPUs are in the order of the bus")
        if not found:
            help = "NCCL completes such a file on the machine: NCCL_TOPO_DUMP_FILE=FILE writes all"
            raise fail("E540", f"{self.source.name} names no GPU", help=help)
        if len(found) > MAX_GPUS:
            raise found[MAX_GPUS].own.wrong(f"one machine has more than {MAX_GPUS} GPUs")
        for key in ("rank", "dev"):
            numbers = [place.own.number(key, -1) for place in found]
            if len(set(numbers)) == len(found) and min(numbers) >= 0:
                return [found[i] for i in sorted(range(len(found)), key=numbers.__getitem__)]
        return sorted(found, key=_bus)

    def _device(self) -> Hardware:
        """Identifies the GPUs: named by the user, by PCI device, by architecture, by generation."""
        own, pci = self.gpus[0].own, self.gpus[0].pci
        if self.given is not None:
            return self.given
        by_pci = identify.pci_device(pci.get("vendor"), pci.get("device"))
        by_arch = identify.architecture(own.get("gcn"), own.number("sm", 0))
        if name := by_pci or by_arch:
            self.read.append(f"GPUs are {name}, by their {'PCI device' if by_pci else 'arch'}")
            if not by_pci:
                self.assumed.append(f"the most common GPU of its architecture: {name} (--device)")
        else:
            name = identify.BY_PCIE.get(
                identify.GENERATION.get(identify.lane(pci.get("link_speed")) or 0, "")
            )
            if name is None:
                message = f"{self.source.name} does not say what its GPUs are"
                raise fail("E542", message, help="--device H100 says it")
            self._check_cpu()
            self.assumed.append(f"GPUs are {name}, the usual one of its PCIe generation (--device)")
        return load.devices()[name]

    def _check_cpu(self) -> None:
        """Raises UserError E542 where PCI Express is faster than the CPU's: a virtual machine made
        it up, and it says nothing of the GPUs."""
        cpu, pci = self.gpus[0].path[0], self.gpus[0].pci
        family, model = cpu.number("familyid", 0), cpu.number("modelid", 0)
        most = identify.cpu_lane(cpu.get("vendor"), family, model)
        if most is not None and (identify.lane(pci.get("link_speed")) or 0) > most:
            message = (
                f"{self.source.name} does not say what its GPUs are: their "
                f"{pci.get('link_speed')[:20]} are more than the CPU above them has"
            )
            raise fail("E542", message, help="--device V100 says it")

    def _silent(self) -> bool:
        """Tells whether the description leaves links for NCCL to find, as vendors' files do, and
        the user said nothing of them."""
        card = self.gpus[0].pci.get("device").lower() in identify.CARDS
        return (
            self.pairs is None
            and self.device.word("link") != "pcie"
            and not card
            and (self.gpus[0].own.name == "pci" or self.device.word("vendor") == "nvidia")
        )

    def _links(self, numbers: dict[str, int]) -> tuple[dict[tuple[int, int], int], list[int]]:
        """Returns the number of links from GPU to GPU, and of each GPU into a switch."""
        links: dict[tuple[int, int], int] = {}
        nics = {place.pci.get("busid").lower() for place in self.nets}
        to_switch, lost, to_cpu = [0] * len(self.gpus), 0, 0
        hidden: dict[int, Element] = {}
        for u, place in enumerate(self.gpus):
            for link in place.own.of(*LINKS):
                target, count = link.get("target").lower(), link.number("count", 1)
                if not 1 <= count <= MAX_LINKS:
                    raise link.wrong(f"count={count} is not 1 to {MAX_LINKS}")
                v = numbers.get(target)
                if v == u:
                    hidden[u] = link
                elif v is not None:
                    links[u, v] = min(links.get((u, v), 0) + count, MAX_LINKS)
                elif link.get("tclass").startswith(SWITCH_CLASS) or target == UNKNOWN_TARGET:
                    to_switch[u] = min(to_switch[u] + count, MAX_LINKS)
                elif target in nics:
                    self.near[u, target] = min(count, MAX_LINKS)
                elif link.get("tclass").startswith(CPU_CLASS):
                    to_cpu += 1
                else:
                    lost += 1
        self._join_hidden(hidden, links)
        if links:
            pairs = len({(min(pair), max(pair)) for pair in links})
            self.read.append(f"{sum(links.values())} links each way between {pairs} pairs of GPUs")
        if any(to_switch):
            self.read.append(f"{max(to_switch)} links of a GPU into a switch")
        if self.near:
            self.read.append(f"{counted(len(self.near), 'NIC')} on links of their GPUs")
        if to_cpu:
            self.assumed.append(f"{to_cpu} links lead to CPUs, and carry what PCI Express would")
        if lost:
            self.assumed.append(f"{lost} links lead to nothing of the file: left out")
        return links, to_switch

    def _join_hidden(self, hidden: dict[int, Element], links: dict[tuple[int, int], int]) -> None:
        """Adds links whose other end a virtual machine hides, which lead from a GPU to itself, as
        the user says that they join GPUs. Raises UserError E541 where nobody does."""
        if not hidden:
            return
        first = next(iter(hidden))
        if self.pairs is None:
            help = "--links 0-1,2-3 says which GPUs they join, --links none leaves them out"
            raise hidden[first].wrong(f"links of GPU {first} lead to itself", help)
        joined = [gpu for pair in self.pairs for gpu in pair]
        if wrong := [gpu for gpu in joined if gpu not in hidden]:
            raise fail("E541", f"{self.source.name}: GPU {wrong[0]} has no links to itself")
        for pair in self.pairs:
            for u, v in (pair, pair[::-1]):
                links[u, v] = max(1, hidden[u].number("count", 1) // joined.count(u))
        if self.pairs:
            self.assumed.append("links that lead to their own GPU join pairs, as --links says")
        else:
            self.assumed.append("links that lead to their own GPU are left out (--links none)")

    def _buses(self) -> Iterator[Bus]:
        """Yields the links of the PCI tree above one or several GPUs, and those between CPUs."""
        n = len(self.gpus)
        below: dict[int, list[int]] = {}
        element: dict[int, Element] = {}
        for gpu, place in enumerate(self.gpus):
            for e in place.path:
                if e.name in ("cpu", "pci"):
                    below.setdefault(id(e), []).append(gpu)
                    element[id(e)] = e
        for key, gpus in below.items():
            if element[key].name == "pci" and len(gpus) < n:
                others = tuple(gpu for gpu in range(n) if gpu not in gpus)
                yield Bus(tuple(gpus), others, self.pcie(element[key]))
        sides = [(cpu, tuple(below[id(cpu)])) for cpu in self.cpus if id(cpu) in below]
        if len(sides) > MAX_CPUS:
            raise sides[MAX_CPUS][0].wrong(f"more than {MAX_CPUS} CPUs have GPUs")
        for (x, a), (_, b) in combinations(sides, 2):
            yield Bus(a, b, identify.sockets(x.get("vendor"), x.number("modelid", 0)))

    def pcie(self, pci: Element) -> float:
        """Returns the GB/s of a PCI device's link upwards; of the GPU's PCI Express generation if
        unknown."""
        lane = identify.lane(pci.get("link_speed"))
        if lane is None:
            return load.pcie(self.device.word("pcie"), peer=True).number("delivered")
        width = pci.number("link_width", WIDEST)
        if width > WIDEST * 2:
            raise pci.wrong(f"link_width={width} is more than PCI Express has lanes")
        return (width or WIDEST) * lane / 80

    def _found_nics(self) -> list[FoundNic]:
        """Returns every NIC, with its distance from the GPUs."""
        found = []
        for i, place in enumerate(self.nets):
            pci, above = place.pci, {id(e) for e in place.path}
            bus = self.pcie(pci) if pci.name == "pci" else None
            card = pci.get("busid").lower()
            linked = {gpu: n for (gpu, target), n in self.near.items() if target == card}
            depth = tuple(
                MAX_DEPTH + 1 if u in linked else sum(id(e) in above for e in gpu.path)
                for u, gpu in enumerate(self.gpus)
            )
            if linked:
                bus = max(bus or 0.0, sum(linked.values()) * link_rate(self.device))
            name, direct = place.own.get("name"), place.own.get("gdr") == "1"
            kind = identify.network_of(name, pci.get("class"), pci.get("vendor"), direct=direct)
            port = (name or _bus(place), place.own.get("port"))
            speed = place.own.number("speed", 0)
            found.append(FoundNic(i, name, port, kind, speed, bus, depth, card))
        return found


def _paths(element: Element, above: tuple[Element, ...]) -> Iterator[tuple[Element, ...]]:
    path = (*above, element)
    yield path
    for child in element.children:
        yield from _paths(child, path)


def _is_pci(element: Element, classes: tuple[str, ...]) -> bool:
    return element.name == "pci" and element.get("class").lower().startswith(classes)


def _bus(place: _Place) -> str:
    return place.pci.get("busid").lower()
