"""identify: finds the hardware behind the numbers and names in a machine's description."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hccc.base.diagnostics import fail
from hccc.shipped.hardware import load
from hccc.shipped.hardware.load import Hardware

# GPUs by PCI device (pci.ids of 2026); CARDS are without a switch.
PCI = {
    "0x10de": {
        "0x1db1": "V100",
        "0x1db5": "V100",
        "0x1db8": "V100",
        "0x20b0": "A100",
        "0x20b2": "A100",
        "0x20bd": "A800",
        "0x2330": "H100",
        "0x2324": "H800",
        "0x2329": "H20",
        "0x2335": "H200",
        "0x2342": "GH200",
        "0x2901": "B200",
        "0x2941": "GB200",
        "0x26b9": "L40S",
        "0x2230": "A6000",
        "0x2235": "A40",
        "0x1db4": "V100",
        "0x1db6": "V100",
        "0x20b5": "A100",
        "0x20f1": "A100",
        "0x2331": "H100",
        "0x2321": "H100",
        "0x2322": "H800",
        "0x31c2": "GB300",
        "0x31c3": "GB300",
    },
    "0x1002": {
        "0x66a0": "MI60",
        "0x66a1": "MI60",
        "0x738c": "MI100",
        "0x7408": "MI250X",
        "0x740c": "MI250X",
        "0x740f": "MI250X",
        "0x74a0": "MI300A",
        "0x74a1": "MI300X",
        "0x74b5": "MI300X",
        "0x74a5": "MI325X",
        "0x75a0": "MI350X",
        "0x75a3": "MI355X",
    },
}
CARDS = frozenset({"0x1db4", "0x1db6", "0x20b5", "0x20f1", "0x2331", "0x2321", "0x2322"})
# RCCL's `gcn`, in its three spellings, and compute capabilities: the most common GPU of each.
GCN = {
    "906": "MI60",
    "908": "MI100",
    "910": "MI250X",
    "90a": "MI250X",
    "940": "MI300A",
    "941": "MI300X",
    "942": "MI300X",
    "950": "MI355X",
}
SM = {
    70: "V100",
    80: "A100",
    86: "A6000",
    89: "L40S",
    90: "H100",
    100: "B200",
    103: "GB300",
}
BY_PCIE = {"gen3": "V100", "gen4": "A100", "gen5": "H100"}
# GT/s of a lane: NCCL's unit of speed, 80 of which are a GB/s on one lane (topo.cc:545-556).
LANE = {2.5: 15, 5.0: 30, 8.0: 60, 16.0: 120, 32.0: 240, 64.0: 480}
GENERATION = {60: "gen3", 120: "gen4", 240: "gen5", 480: "gen5"}
# GB/s between two CPUs (NCCL 2.30.7 src/graph/topo.h:17-35): Intel's by model, from newer to older.
INTEL = ((207, 40.0), (143, 22.0), (85, 10.0), (0, 6.0))
SOCKETS = {"AuthenticAMD": 16.0, "GenuineIntel": 10.0, "IBM": 32.0}
OTHER_SOCKETS = 6.0  # ARM, and unknown CPUs
SLINGSHOT, ELASTIC, VERBS = r"(cxi|hsn)\d", r"(rdmap|efa)\d", r"(mlx|bnxt_re|irdma|ionic|roce)"
VIRTUAL = re.compile(r"(veth|virbr|docker|br-|cni|lo$|tap|tun)")
# NICs by their PCI vendor (pci.ids of 2026): those that are always of one network, and those that
# do RDMA over Ethernet where they are no InfiniBand.
VENDORS = {"0x1d0f": "EFA", "0x17db": "Slingshot"}
RDMA = frozenset({"0x15b3", "0x1dd8"})  # Mellanox, Pensando
# The PCI Express of a CPU in GT/s: Intel's by model, from newer to older; AMD's by family, as CPUID
# has it and as NCCL writes it, and model.
INTEL_PCIE = ((143, 32.0), (106, 16.0), (0, 8.0))
AMD_PCIE = {(23, 1): 8.0, (23, 49): 16.0, (25, 1): 16.0, (25, 48): 16.0, (25, 17): 32.0}
AMD_FAMILIES = {143: 23, 175: 25}


def pci_device(vendor: str, device: str) -> str | None:
    """Returns the name of a GPU by its PCI device; None if unknown."""
    return PCI.get(vendor.lower(), {}).get(device.lower())


def architecture(gcn: str, sm: int | None) -> str | None:
    """Returns the most common GPU of an architecture. sm: the number of compute units of an AMD
    GPU, the compute capability of an NVIDIA GPU."""
    if not gcn:
        return SM.get(sm or 0)
    name = GCN.get(gcn.removeprefix("gfx").split(":")[0])
    return {("MI300X", 228): "MI300A", ("MI300A", 304): "MI300X"}.get((name or "", sm or 0), name)


def device(name: str) -> Hardware:
    """Returns the device that the user named. Raises UserError E542."""
    return _named("device", name, load.device(name), load.devices())


def network(name: str) -> Hardware:
    """Returns the network that the user named. Raises UserError E542."""
    return _named("network", name, load.network(name), load.networks())


def _named(kind: str, name: str, found: Hardware | None, known: Iterable[str]) -> Hardware:
    if found is None:
        help = f"there are {', '.join(known)}"
        raise fail("E542", f"hccc knows no {kind} {name[:64]!r}", help=help)
    return found


def network_of(name: str, pci_class: str, vendor: str, *, direct: bool = False) -> str:
    """Returns the network of a NIC, by its vendor, name and PCI class. direct: GPUs reach it by
    RDMA, so it is never one of sockets."""
    if known := VENDORS.get(vendor.lower()):
        return known
    if re.match(ELASTIC, name):
        return "EFA"
    if re.match(SLINGSHOT, name):
        return "Slingshot"
    if pci_class.startswith("0x0207"):
        return "InfiniBand"
    return "RoCE" if direct or vendor.lower() in RDMA or re.match(VERBS, name) else "Ethernet"


def for_generation(network: Hardware, device: Hardware) -> Hardware:
    """Returns the generation of a network that is usual for a device."""
    older = network.older.get(device.word("generation"))
    return load.networks()[older] if older else network


def lane(speed: str) -> int | None:
    """Returns the speed of one lane in NCCL's unit, for `16 GT/s` or `32.0 GT/s PCIe`."""
    found = re.match(r"\s*(\d{1,3}(?:\.\d{1,3})?)\s*GT/s", speed)
    return LANE.get(float(found[1])) if found else None


def cpu_lane(vendor: str, family: int, model: int) -> int | None:
    """Returns the fastest lane of a CPU, as `lane` does; None if the CPU is unknown."""
    speed = None
    if vendor == "GenuineIntel" and family == 6:
        speed = next(rate for least, rate in INTEL_PCIE if model >= least)
    elif vendor == "AuthenticAMD":
        speed = AMD_PCIE.get((AMD_FAMILIES.get(family, family), model))
    return LANE[speed] if speed else None


def sockets(vendor: str, model: int) -> float:
    """Returns GB/s between two CPUs, each way."""
    if vendor == "GenuineIntel":
        return next(rate for least, rate in INTEL if model >= least)
    return SOCKETS.get(vendor, OTHER_SOCKETS)
