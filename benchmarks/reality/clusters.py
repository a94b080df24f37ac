"""clusters: the machines of machines.toml in the cluster language.

    python benchmarks/reality/clusters.py DIR

One file for each machine and number of nodes, as a user would write it: the tables are predicted
through it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def text(machine: Mapping[str, Any], nodes: int) -> str:
    """The cluster of so many nodes of an entry of machines.toml."""
    lines = [f"define device = {machine['device']}"]
    if "network" in machine:
        lines.append(f"define network = {machine['network']}")
    if "launch" in machine:
        lines.append(f"define launch = {machine['launch']}us")
    gpus = machine["gpus"]
    lines.append(f"define node1 = {nodes} * {gpus}" if nodes > 1 else f"define node1 = {gpus}")
    return "\n".join(lines) + "\n"


def main() -> None:
    from tables import tables

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for t in tables():
        path = folder / f"{t.name}-{t.nodes}.cluster"
        path.write_text(t.cluster, "utf-8")


if __name__ == "__main__":
    main()
