"""common: the most common node with a given number of GPUs, for programs without a cluster."""

from __future__ import annotations

from hccc.shipped.hardware.load import Hardware, devices

# Devices for training and serving, the most common first; an estimate of ours.
ORDER = ("H100", "A100", "H200", "MI300X", "V100", "GH200", "A6000", "GB200")


def common_device(gpus: int) -> Hardware:
    """Returns the device of the most common node of `gpus` GPUs; if no node has that many, the most
    common device of all."""
    known = devices()
    return next((known[n] for n in ORDER if known[n].number("node_gpus") == gpus), known[ORDER[0]])


def common_cluster(nodes: int, gpus: int, nics: int = 0) -> str:
    """Writes a cluster of `nodes` most common nodes of `gpus` GPUs, in the cluster language.

    nics: of a node, 0 for as many as those nodes have. Its GPUs share them evenly.
    """
    device = common_device(gpus)
    lines = [
        f"define nodenum = {nodes}",
        f"define device = {device.name}",
        f"define network = {device.word('node_network')}",
        f"define node1 = {nodes} * {gpus}" if nodes > 1 else f"define node1 = {gpus}",
    ]
    if nodes > 1:
        lines.append(f"define nic = [{', '.join(_nics(device, gpus, nics))}]")
    return "\n".join(lines) + "\n"


def _nics(device: Hardware, gpus: int, nics: int) -> list[str]:
    """Returns a node's NICs in the cluster language, each with the GPUs near it."""
    ratio = device.number("node_nics") / device.number("node_gpus")
    nics = nics or min(gpus, max(1, round(gpus * ratio)))
    rate = device.number("node_nic")
    near = [range(gpus * k // nics, gpus * (k + 1) // nics) for k in range(nics)]
    return [f"(({','.join(map(str, of))}) -> ({rate:g},1))" for of in near]
