"""host: a host as a cluster of ranks that share its memory, by what was measured of it or as usual.

`HCCC_CLUSTER` names the file of what was measured: `hccc profile --device cpu --ranks N -o FILE`.
"""

from __future__ import annotations

import os
from pathlib import Path

from hccc.base.diagnostics import Source, fail
from hccc.driver.inputs import load_cluster, parse_cluster
from hccc.ir.topology import Topology

VARIABLE = "HCCC_CLUSTER"

# What `hccc profile` measured on a server of 2024 (2 cores of a Xeon).
_USUAL = """\
define chunk = 262144
define nodenum = 1
define node1 = {ranks}
define cores = {cores}
define launch = {{base => 2.54, entry => 0.0756, wake => 14.8, small => 4 MiB}}
define device = {{vendor => "cpu", name => "a usual host", reduce => 204, block => 6.59,
    read => 0.24, step => 0.0175, cache => [(512 KiB -> (53.6, 53.6)), (1 MiB -> (45.5, 45.5)),
    (2 MiB -> (25.2, 25.2)), (4 MiB -> (16.9, 16.9)), (8 MiB -> (13.8, 13.8)),
    (32 MiB -> (13.1, 14.3)), (64 MiB -> (10.1, 14.3)), (128 MiB -> (8.35, 8.6)),
    (512 MiB -> (6.59, 6.73))]}}
"""
_LINKS = "define bandwidth = {{mesh => [((0..{last}) -> (53.6, 1, 0.0175))]}}\n"


def host_cluster(ranks: int) -> Topology:
    """Returns this host as a cluster of so many ranks.

    Raises:
        UserError: E424 the file of HCCC_CLUSTER has another number of ranks; what is wrong with it.
    """
    if file := os.environ.get(VARIABLE):
        made = load_cluster(Path(file))
        if len(made) != ranks:
            message = f"{VARIABLE}: {file} has {len(made)} ranks, and {ranks} are asked for"
            raise fail("E424", message, help=f"`hccc profile --device cpu --ranks {ranks}`")
        return made
    return parse_cluster(Source("this host", text_of(ranks)))


def text_of(ranks: int) -> str:
    """Writes this host as a cluster of so many ranks, with usual figures."""
    cores = len(os.sched_getaffinity(0))
    links = _LINKS.format(last=ranks - 1) if ranks > 1 else ""
    return _USUAL.format(ranks=ranks, cores=cores) + links
