"""assumed: the clusters of programs that none is given for.

For GPUs, nodes of the most common kind of as many GPUs as the program's header has. For CPUs, this
host as ranks that share its memory, by what was measured of it or as usual, or several hosts, which
a network joins. Their names end in ASSUMED, so that whatever tells a cluster's name tells that
nobody gave it.

`HCCC_CLUSTER` names the file of what was measured: `hccc profile --device cpu --ranks N -o FILE`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hccc.base.diagnostics import Source, fail
from hccc.driver.headers import says
from hccc.driver.inputs import load_cluster, parse_cluster
from hccc.driver.options import Options
from hccc.driver.structures import MOST_SCHEDULED
from hccc.emit.targets import CPU
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.shipped.hardware import common as hardware
from hccc.shipped.hardware.common import common_device

VARIABLE = "HCCC_CLUSTER"
ASSUMED = " (assumed)"

# What `hccc profile` measured on a server of 2024 (2 cores of a Xeon), and TCP at 10 Gbit/s.
_USUAL = """\
define chunk = 262144
define nodenum = {hosts}
define launch = {{base => 2.54, entry => 0.0756, wake => 14.8, small => 4 MiB}}
define device = {{vendor => "cpu", name => "a usual host", reduce => 204, block => 6.59,
    read => 0.24, step => 0.0175, cache => [(512 KiB -> (53.6, 53.6)), (1 MiB -> (45.5, 45.5)),
    (2 MiB -> (25.2, 25.2)), (4 MiB -> (16.9, 16.9)), (8 MiB -> (13.8, 13.8)),
    (32 MiB -> (13.1, 14.3)), (64 MiB -> (10.1, 14.3)), (128 MiB -> (8.35, 8.6)),
    (512 MiB -> (6.59, 6.73))]}}
"""
# A node of GPUs, as they are most often.
_GPUS = {"cuda": "H100", "hip": "MI300X"}
_HOST = "define node{number} = {ranks}\ndefine cores = {cores}\n"
_LINKS = "define bandwidth = {{mesh => [((0..{last}) -> (53.6, 1, 0.0175))]}}\n"
_NETWORK = "define latency = {nic => 30us}\n"
_NICS = "define nic = [{}]\n"


def common_cluster(program: Program) -> Topology:
    """Returns nodes of the most common kind of as many GPUs as the program's header has, with as
    many NICs, by hccc's device library."""
    nodes, gpus = _shape(program)
    device = common_device(gpus).name
    name = f"{gpus} {device}" if nodes == 1 else f"{nodes} nodes of {gpus} {device}"
    text = hardware.common_cluster(nodes, gpus, program.nics_per_node)
    return parse_cluster(Source(f"{name}{ASSUMED}", text))


def host_cluster(program: Program) -> Topology:
    """Returns this host with a rank for each of the program's; as many hosts as its header has
    nodes, each with as many NICs as it says, else one.

    Raises:
        UserError: E424 what was measured (HCCC_CLUSTER) has another number of ranks.
    """
    nodes, each = _shape(program)
    name = "this host" if nodes == 1 else f"{nodes} hosts"
    nics = program.nics_per_node if says(program, "NICPerNode") else 1
    return replace(cluster_of([each] * nodes, nics=nics), name=f"{name}{ASSUMED}")


def as_written(program: Program) -> None:
    """Makes no cluster: a program is compiled as its header says, and nothing is chosen."""


def tuned_for(
    options: Options, targets: Sequence[str] = ()
) -> Callable[[Program], Topology | None]:
    """Returns what makes the cluster that a program is compiled for without one: hosts where all
    targets are CPUs, else common nodes.

    It makes None for what is compiled as its header says: with `--tune off`, or if it takes long to
    simulate.
    """
    makes = host_cluster if set(targets) == {CPU.name} else common_cluster
    off = not options.tuned
    return lambda made: None if off or len(made) > MOST_SCHEDULED else makes(made)


def _shape(program: Program) -> tuple[int, int]:
    """Returns the number of nodes in a program's header, and of GPUs in each."""
    gpus = program.gpus_per_node
    return max(1, program.collective.n_ranks // gpus), gpus


def cluster_of(hosts: Sequence[int], platform: str = "cpu", nics: int = 1) -> Topology:
    """Returns hosts of so many ranks each: this one, or several; or one of so many GPUs.

    nics: of each of several hosts.

    Raises:
        UserError: E424 the file of HCCC_CLUSTER has another number of ranks; what is wrong with it.
    """
    ranks = sum(hosts)
    if file := os.environ.get(VARIABLE):
        made = load_cluster(Path(file))
        if len(made) != ranks:
            message = f"{VARIABLE}: {file} has {len(made)} ranks, and {ranks} are asked for"
            measured = f"`hccc profile --device cpu --ranks {ranks}`"
            help = measured if platform == "cpu" else f"a node of {ranks} GPUs"
            raise fail("E424", message, help=help)
        return made
    if platform != "cpu":
        return _parsed(f"define node1 = {ranks}\ndefine device = {_GPUS[platform]}\n")
    if len(hosts) > 1:
        return usual_hosts(hosts, nics)
    return _parsed(text_of(hosts, len(os.sched_getaffinity(0))))


def usual_hosts(hosts: Sequence[int], nics: int = 1) -> Topology:
    """Returns hosts with usual figures and a core for each rank, the same on every machine."""
    return _parsed(text_of(hosts, nics=nics))


def _parsed(text: str) -> Topology:
    return parse_cluster(Source("the hosts", text))


def text_of(hosts: Sequence[int], cores: int = 0, nics: int = 1) -> str:
    """Writes hosts of so many ranks each as a cluster, with usual figures.

    cores: of each host, by default one for each rank. nics: of each of several hosts, which divide
    its ranks evenly.
    """
    text = _USUAL.format(hosts=len(hosts)) + (_NETWORK if len(hosts) > 1 else "")
    for number, ranks in enumerate(hosts, 1):
        text += _HOST.format(number=number, ranks=ranks, cores=cores or ranks)
        text += _LINKS.format(last=ranks - 1) if ranks > 1 else ""
        if len(hosts) > 1:
            text += _NICS.format(", ".join(_nic(ranks, nic, nics) for nic in range(nics)))
    return text


def _nic(ranks: int, nic: int, nics: int) -> str:
    """Writes which of a host's ranks share a NIC, and its GB/s."""
    shared = [rank for rank in range(ranks) if rank * nics // ranks == nic]
    last = f"..{shared[-1]}" if len(shared) > 1 else ""
    return f"(({shared[0]}{last}) -> 1.15)"
