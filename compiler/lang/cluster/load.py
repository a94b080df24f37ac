"""The cluster language (`.cluster`; HeteCCL App. A, Fig. 10): text to Topology.

    define nodenum = 2
    define node1 = 2
    define bandwidth = {direct => [((0,1) -> (25,2)), ((1,0) -> (25,2))]}
    define node2 = 4
    define bandwidth = {switch => [((0,1), (2,3) >-> (16,1))], direct => [...]}
    define internode = (node1, node2)
    define interbandwidth = {switch => [((0,1), (0,1,2,3) >-> (8,1))]}

Of the paper: `(u,v) -> (GB/s, links)` is a link from u to v; `(A),(B) >-> (GB/s, links)` is a
resource that all transfers between A and B share, each way with its whole capacity, except those
that have a direct link. Ids are those of the node, between nodes those of the two nodes named.
`define bandwidth` is about the node defined last. Ranks are numbered node by node.

Extensions, all `define NAME = ...`; those marked * are about the node defined last, or before any
node about all nodes:

| `node1 = 64 * 8`             | 64 nodes of 8 GPUs: node1 to node64, all with what follows     |
| `bandwidth` with `mesh`      | `[((0..3) -> (150,1))]`: a link between every two, each way     |
| `bandwidth` with `port`      | `[((0..7) -> (450,1))]`: each has a port into one crossbar      |
| `nic`                        | `[((0,1) -> (50,1)), ...]`: GPUs that share a NIC               |
| `device` *                   | `H100`, of the library; `{name => H100, block => 30}`, with     |
|                              | other figures; `{vendor =>, name =>, reduce =>, block =>}`, by  |
|                              | hand: GB/s of a reduction (1/γ) and that a thread block copies  |
| `network` *                  | `InfiniBand`, of the library, and so on                         |
| `cores` *                    | thread blocks of a node that run at once; more take turns       |
| `launch` *                   | `43`: µs of a launch; `{base => 43, entry =>, wake =>}`: also µs|
|                              | for each thread block of a core, and where several cores run    |
|                              | them; 0 where not given. All nodes launch at once               |
| `latency` *                  | `{direct => 0.7, mesh =>, switch =>, port =>, nic =>}`: α in µs |
| `interlatency`               | `{direct =>, switch =>, leaf =>, spine =>}`                     |
| `leaf`                       | `[((node1, node2) -> (25,16)), ...]`: NICs below a switch, and  |
|                              | its uplinks; `(node1, (0,1), node2, (0))` names NICs            |
| `rail`                       | `[(0) -> (50,64), (1), ...]`: a leaf of NIC i of every node;    |
|                              | without uplinks nothing crosses rails                           |
| `spine`                      | `[((leaf1, leaf2) -> (100,8)), ...]`: leaves below a spine      |
| `internode` of many          | every pair of the nodes named                                   |
| `memory`                     | `[(node1..node4)]`: nodes whose GPUs address each other's memory|
| `cluster`                    | `[(node1), (node2, (0,1))]`: vendor clusters of jobs            |
| `border`                     | `[(node1, (0,2))]`: their border ranks                          |
| `chunk = 1 MiB`              | S_chunk: the micro-batch that costs are given for               |
| `failed`                     | `[(node1, 3)]`: GPUs that are no ranks; the others move up;     |
|                              | `(node1, nic, 0)`, `(node1, nic)`: NICs                         |
| `degraded`                   | `[((node2, nic, 0) -> (2.25,1))]`: also `(node2, nic)`, `(node1,|
|                              | port, 3)`, `(node1, switch, 0)`, `(node1, direct, 0, 1)`, (leaf1)|
|                              | and `(node1, node2)`: all routes between two nodes together     |

Everywhere: `0..7` and `node1..node4` are ranges, `#` begins a comment, line breaks mean nothing, a
third number of a rate is its α, `(25)` or 25 is one link. Without `leaf` and `rail` all NICs hang
on one switch that nothing slows down; without `spine` so do all leaves.

A device of the library brings its links, latencies and launches, a network its NICs (`fabric`).
Defaults where file and library are silent: α 0.7 µs within a node (NVLink of an NDv2 in the
topologies that TE-CCL, SIGCOMM'24, released; TACCL's, NSDI'23, have 0.3) and 2.6 µs between nodes
(InfiniBand in both), 0.5 µs for each further tier (ours); a block copies 6.25 GB/s (ResCCL Fig. 4:
four fill 25 GB/s); reductions 300 GB/s (a third of a V100's memory bandwidth).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from hccc.base.diagnostics import Source
from hccc.ir.arrays import I8
from hccc.ir.ranks import named_runs
from hccc.ir.topology import Topology
from hccc.lang.cluster.build import build
from hccc.lang.cluster.devices import UNKNOWN
from hccc.lang.cluster.read_site import read_site
from hccc.lang.cluster.site import NodeKind, Site
from hccc.lang.cluster.text import parse_defines
from hccc.lang.mistakes import Mistake, clip, did_you_mean
from hccc.network.graph import disconnected
from hccc.shipped import find as shipped
from hccc.shipped.hardware.load import device, devices

MAX_BYTES = 8 << 20


def load(path: str | Path) -> Topology:
    """Loads the cluster in a file, or the shipped one of that name. Raises `UserError`."""
    return parse(shipped.read(Path(path), MAX_BYTES, shipped.CLUSTERS))


def parse(source: Source) -> Topology:
    """Parses the cluster in a text. Raises `UserError`. Linear in the text and the cluster."""
    try:
        if not source.text.strip("\ufeff \t\r\n"):
            help = "a cluster begins with `define nodenum = 2`"
            raise Mistake("E403", f"{source.name} is empty", help=help)
        site = read_site(parse_defines(source.text.removeprefix("\ufeff")))
        topology = build(site)
        _check_reach(topology, site)
    except Mistake as mistake:
        raise mistake.in_source(source) from None
    return replace(topology, name=source.name)


def _check_reach(t: Topology, site: Site) -> None:
    if (pair := disconnected(t)) is None:
        return
    u, v = pair
    ahead = 0 in u
    lost, found = (v, u) if ahead else (u, v)
    where, start = (_cut(t, ranks) for ranks in (lost, found))
    way = f"cannot be reached from {start}" if ahead else f"cannot reach {start}"
    kind = site.kind(int(t.node[lost[0]]))
    help: str | None = "`define nic`, or `define internode` and `interbandwidth`, join nodes"
    if t.node[lost[0]] == t.node[found[0]]:
        help = _unknown(kind)
    elif site.failed or site.failed_nics:
        help = "what failed was the only way: without the GPUs of one side the rest is a cluster"
    raise Mistake("E135", f"{where} {way}", kind.at, help)


def _cut(t: Topology, ranks: I8) -> str:
    """Writes `GPU 3 of node1`, `GPUs 0..2 of node1`, `node2`, `node1, node3..node5`, or `9
    GPUs`."""
    nodes = np.unique(t.node[ranks])
    if np.isin(t.node, nodes).sum() == len(ranks) and (len(nodes) > 1 or len(ranks) > 1):
        return ", ".join(named_runs("node", nodes.tolist()))
    if len(nodes) > 1:
        return f"{len(ranks)} GPUs of {', '.join(named_runs('node', nodes.tolist()))}"
    gpus = ", ".join(named_runs("", t.local[ranks].tolist(), 0))
    return f"GPU{'s' if len(ranks) > 1 else ''} {gpus} of node{nodes[0] + 1}"


def _unknown(kind: NodeKind) -> str | None:
    """Explains that a node has no links because the library does not know its device."""
    called = kind.device.name
    if kind.device_choice.hardware is not None or called == UNKNOWN.name:
        return None
    if device(called) is not None:
        return f"`define device = {{name => {clip(called)}}}`, without `vendor`, has its links"
    near = did_you_mean(called, list(devices()))
    known = f" (did you mean `{near[0]}`?)" if near else ""
    return f"hccc knows no device `{clip(called)}`{known}: `define bandwidth` gives it links"
