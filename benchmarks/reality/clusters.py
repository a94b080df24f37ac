"""clusters: the machines of machines.toml in the cluster language.

    python benchmarks/reality/clusters.py DIR

One file for each machine and number of nodes. The launch floor is the measuring program's, and the
kind of network has no place in the language yet.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tables import tables

from hccc.predict.nccl.machine import Generation, Link, Machine

_DEVICES = {
    Generation.VOLTA: "V100", Generation.AMPERE: "A100", Generation.HOPPER: "H100",
    Generation.BLACKWELL: "B200", Generation.MI200: "MI250X", Generation.MI300: "MI300X",
    Generation.MI350: "MI355X",
}  # fmt: skip


def text(m: Machine) -> str:
    """The cluster that `m` is."""
    vendor = "amd" if m.generation.amd else "nvidia"
    last = m.gpus - 1
    lines = [
        f"define nodenum = {m.nodes}",
        f'define device = {{vendor => {vendor}, name => "{_DEVICES[m.generation]}"}}',
        f"define node1 = {m.nodes} * {m.gpus}" if m.nodes > 1 else f"define node1 = {m.gpus}",
    ]
    if m.gpus > 1:
        mesh = m.link in {Link.XGMI_MESH, Link.NVLINK_MESH}
        rate = m.wire / last if mesh else m.wire
        kind = "mesh" if mesh else "port"
        lines.append(f"define bandwidth = {{{kind} => [((0..{last}) -> ({rate:.10g},1))]}}")
    if m.nodes > 1:
        lines.append(f"define nic = [{', '.join(_nics(m))}]")
        leaf = ", ".join(f"node{i + 1}" for i in range(m.nodes))
        lines.append(f"define leaf = [(({leaf}) -> ({m.nic:g},{max(1, m.nics)}))]")
    return "\n".join(lines) + "\n"


def _nics(m: Machine) -> list[str]:
    """NICs shared by equal runs of GPUs; a GPU with several has them in parallel."""
    groups, parallel = min(m.nics, m.gpus), max(1, m.nics // m.gpus)
    size = m.gpus // groups
    each = [(g * size, g * size + size - 1) for g in range(groups)]
    names = [f"({a})" if a == b else f"({a}..{b})" for a, b in each]
    return [f"({name} -> ({m.nic:g},{parallel}))" for name in names]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for t in tables():
        path = folder / f"{t.name}-{t.machine.nodes}.cluster"
        path.write_text(text(t.machine), "utf-8")


if __name__ == "__main__":
    main()
