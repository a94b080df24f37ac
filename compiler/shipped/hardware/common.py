"""common: the most common node of so many GPUs, for programs that no cluster was given for."""

from __future__ import annotations

from hccc.shipped.hardware.load import Hardware, devices

# Of what is trained and served on, the most common first; hccc's estimate.
ORDER = ("H100", "A100", "H200", "MI300X", "V100", "GH200", "A6000", "GB200")


def common_device(gpus: int) -> Hardware:
    """The device of the most common node of `gpus` GPUs; where none has so many, of the most common
    of all."""
    known = devices()
    return next((known[n] for n in ORDER if known[n].number("node_gpus") == gpus), known[ORDER[0]])


def common_cluster(nodes: int, gpus: int) -> str:
    """`nodes` of the most common node of `gpus` GPUs, in the cluster language.

    Each GPU has its part of a node's NICs, at least one of which a node has.
    """
    device = common_device(gpus)
    lines = [
        f"define nodenum = {nodes}",
        f"define device = {device.name}",
        f"define network = {device.word('node_network')}",
        f"define node1 = {nodes} * {gpus}" if nodes > 1 else f"define node1 = {gpus}",
    ]
    if nodes > 1:
        lines.append(f"define nic = [{', '.join(_nics(device, gpus))}]")
    return "\n".join(lines) + "\n"


def _nics(device: Hardware, gpus: int) -> list[str]:
    """A node's NICs, each with the GPUs that it is near."""
    ratio = device.number("node_nics") / device.number("node_gpus")
    nics = min(gpus, max(1, round(gpus * ratio)))
    rate = device.number("node_nic")
    near = [range(gpus * k // nics, gpus * (k + 1) // nics) for k in range(nics)]
    return [f"(({','.join(map(str, of))}) -> ({rate:g},1))" for of in near]
