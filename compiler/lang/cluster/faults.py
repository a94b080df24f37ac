"""faults: adds failed parts and slower links, as commands name them, to a cluster's text.

`node2.gpu3` and `node2.nic0` failed, `node1.nic0=18Gbps` and `node1-node2=18Gbps` slower: the same
as `define failed` and `define degraded` in a file, for users without a file of the cluster's
present state.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hccc.base.diagnostics import Source, fail

_FAILED = re.compile(r"(node\d{1,6})\.(?:gpu(\d{1,6})|(nic)(\d{1,6})?)", re.IGNORECASE | re.ASCII)
_SLOWER = re.compile(
    r"(?:(node\d{1,6})(?:\.(nic|port|switch)(\d{1,6})?)?|((?:leaf|spine)\d{1,6})|"
    r"(node\d{1,6})-(node\d{1,6}))"
    r"=(\d{1,9}(?:\.\d{1,6})?)(Gbps|GB/s)?",
    re.IGNORECASE | re.ASCII,
)
_BITS = 8


def with_faults(source: Source, failed: Sequence[str], degraded: Sequence[str]) -> Source:
    """Returns `source` without the parts in `failed`, and with the lower rates in `degraded`.

    Raises:
        UserError: E410 for text that names no part of a cluster.
    """
    text = _added(source.text, "failed", [_lost(item) for item in failed])
    return Source(source.name, _added(text, "degraded", [_slower(item) for item in degraded]))


def _lost(item: str) -> str:
    found = _FAILED.fullmatch(item)
    if not found:
        help = "write node2.gpu3, or node2.nic0"
        raise fail("E410", f"--fail {item}: no GPU or NIC of a node", help=help)
    node, gpu, nic, number = found.groups()
    parts = [node, gpu] if gpu else [node, nic, *([number] if number else [])]
    return f"({', '.join(parts).lower()})"


def _slower(item: str) -> str:
    found = _SLOWER.fullmatch(item)
    if not found:
        help = "write node1-node2=18Gbps, node1.nic0=2.25 (GB/s), node1.port3=100, or leaf1=50"
        raise fail("E410", f"--degrade {item}: nothing of a cluster, or no rate", help=help)
    node, kind, number, above, one_node, other, rate, unit = found.groups()
    speed = float(rate) / (_BITS if (unit or "").lower() == "gbps" else 1)
    if above:
        what = above.lower()
    elif other:
        what = f"{one_node}, {other}".lower()
    else:
        what = ", ".join([node.lower(), (kind or "nic").lower(), *([number] if number else [])])
    return f"(({what}) -> ({speed:.12g},1))"


def _added(text: str, name: str, items: list[str]) -> str:
    """Adds `define NAME` with `items` at the end: there all nodes are defined, and the last of
    several definitions holds."""
    return f"{text.rstrip()}\ndefine {name} = [{', '.join(items)}]\n" if items else text
