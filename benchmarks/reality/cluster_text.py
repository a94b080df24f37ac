"""cluster_text: an entry of machines.toml in the cluster language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def cluster_text(machine: Mapping[str, Any], nodes: int) -> str:
    """Writes the cluster of `nodes` nodes of a machine, an entry of machines.toml."""
    lines = [f"define device = {machine['device']}"]
    if "network" in machine:
        lines.append(f"define network = {machine['network']}")
    if "launch" in machine:
        lines.append(f"define launch = {machine['launch']}us")
    gpus = machine["gpus"]
    lines.append(f"define node1 = {nodes} * {gpus}" if nodes > 1 else f"define node1 = {gpus}")
    return "\n".join(lines) + "\n"
