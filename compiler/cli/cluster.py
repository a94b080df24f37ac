"""`hccc cluster`: the clusters that ship, and machines as clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hccc.base.progress import tell
from hccc.cli import report
from hccc.cli.options import HELP, json_option
from hccc.cli.progress import progress
from hccc.cli.types import ClusterFile, File

if TYPE_CHECKING:
    from hccc.ir.topology import Topology
    from hccc.network.dimensions import Dimension

Row = dict[str, str | int]
COLUMNS = ("name", "nodes", "ranks", "devices", "network", "description")
GROUPS_SHOWN, RUNS_SHOWN = 4, 4  # of a dimension, and of a group's ranks


@click.group(context_settings=HELP, short_help="Clusters that ship; import machines as one.")
def cluster() -> None:
    """The clusters that ship with hccc, whose names stand for files: `--cluster resccl-topo4`; and
    machines that are imported as a cluster."""


@cluster.command("list")
@json_option
def list_clusters(as_json: bool) -> None:
    """List the clusters that ship."""
    from hccc.lang.cluster import load
    from hccc.shipped import find as shipped

    rows = []
    with progress():
        for name in shipped.names(shipped.ShippedKind.CLUSTER):
            tell(f"Reading {name}")
            source = shipped.read(Path(f"{name}.cluster"), load.MAX_BYTES, shipped.CLUSTERS)
            rows.append(_row(name, source.text, load.parse(source)))
    if as_json:
        report.as_json({"clusters": rows})
        return
    for line in _table(rows):
        print(line)


@cluster.command("show", short_help="Print the cluster file NAME.")
@click.argument("name", type=ClusterFile(), metavar="NAME")
def show_cluster(name: Path) -> None:
    """Print the cluster file NAME; `hccc show NAME -o cluster.svg` draws it."""
    from hccc.driver.inputs import parse_cluster
    from hccc.lang.cluster import load
    from hccc.shipped import find as shipped

    source = shipped.read(name, load.MAX_BYTES, shipped.CLUSTERS)
    parse_cluster(source)  # what is no cluster is refused
    print(source.text, end="")


@cluster.command("dimensions", short_help="Say which ranks each level of NAME joins.")
@click.argument("name", type=ClusterFile(), metavar="NAME")
@json_option
def cluster_dimensions(name: Path, as_json: bool) -> None:
    """Say at which levels the cluster NAME joins its ranks, and which ranks each level joins.

    A level (SyCCL calls it a dimension) is a node, a rail or leaf, a spine, the core; two ranks are
    joined by the lowest that both are in a group of. Rates are of a rank while all ranks send to
    one peer each. Sketches (`synth --method sketch`) are made of these groups.
    """
    from hccc.driver.inputs import load_cluster
    from hccc.network.dimensions import dimensions

    with progress("Reading the cluster"):
        t = load_cluster(name)
        found = dimensions(t)
    if as_json:
        report.as_json({"dimensions": [d.facts() for d in found]})
        return
    for line in _dimension_lines(found):
        print(line)


@cluster.command("import", short_help="Write machines as a .cluster.")
@click.argument("files", type=File(), metavar="FILE...", nargs=-1, required=True)
@click.option("-o", "--output", type=File(), metavar="FILE", help="Instead of stdout.")
@click.option(
    "--nodes", type=click.IntRange(1, 4096), default=1, help="Repeat the one machine so often."
)
@click.option("--network", metavar="NAME", help="What joins nodes: InfiniBand, RoCE, EFA, ...")
@click.option("--device", metavar="NAME", help="What the GPUs are: A100, H100, MI300X, ...")
@click.option(
    "--links",
    metavar="PAIRS",
    help="GPUs that links join whose other end a virtual machine hides: 0-1,2-3, or none.",
)
@json_option
def import_cluster(
    files: tuple[Path, ...],
    output: Path | None,
    nodes: int,
    network: str | None,
    device: str | None,
    links: str | None,
    as_json: bool,
) -> None:
    """Write the machines that FILEs describe as a .cluster, a node each.

    A FILE is a topology of NCCL or RCCL (what NCCL_TOPO_DUMP_FILE writes, or a vendor's
    NCCL_TOPO_FILE), or what `nvidia-smi topo -m` prints. Comments say what was read and what was
    assumed. `-` is stdin.
    """
    from hccc.base.files.writing import check_place, write_whole
    from hccc.lang.machines.load import import_machines
    from hccc.lang.machines.machine import counted

    to_file = output is not None and str(output) != "-"
    if output is not None and to_file:
        check_place(output, *files)
    with progress("Reading the machines"):
        made = import_machines(files, nodes=nodes, device=device, network=network, links=links)
    if output is not None and to_file:
        write_whole(output, lambda file: file.write(made.text))
    if as_json:
        machines = [
            {
                "file": m.name,
                "gpus": m.gpus,
                "device": m.device.name,
                "network": m.network.name if m.network else None,
                "read": m.read,
                "assumed": m.assumed,
            }
            for m in made.machines
        ]
        report.as_json({"machines": machines, "cluster": made.text})
    elif output is not None and to_file:
        t = made.topology
        print(f"{counted(t.n_nodes, 'node')}, {counted(len(t), 'GPU')} → {output}")
    else:
        print(made.text, end="")


def _dimension_lines(found: tuple[Dimension, ...]) -> list[str]:
    """Lays out dimensions in columns: `node   2 groups of 8   300 GB/s, 3.4 µs   0–7; 8–15`."""
    if not found:
        return ["no level joins two ranks"]
    rows = [(d.name, _group_sizes(d), _rates(d), _members(d)) for d in found]
    width = [max(len(row[k]) for row in rows) for k in range(3)]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, width, strict=False)), row[3]])
        for row in rows
    ]


def _group_sizes(d: Dimension) -> str:
    from hccc.ir.text import count

    sizes = d.sizes
    least, most = int(sizes.min()), int(sizes.max())
    ranks = f"{most}" if least == most else f"{least} to {most}"
    return f"{count(len(sizes), 'group')} of {ranks}{'' if d.alike else ', unlike'}"


def _rates(d: Dimension) -> str:
    from hccc.ir.text import number

    least, most = float(d.rate.min()), float(d.rate.max())
    shown = number(most) if number(least) == number(most) else f"{number(least)} to {number(most)}"
    return f"{shown} GB/s, {number(d.alpha)} µs"


def _members(d: Dimension) -> str:
    """Writes the ranks of the first groups: `0–7; 8–15; …`."""
    from hccc.ir.text import runs

    count = len(d.sizes)
    shown = [runs(d.members(g).tolist(), RUNS_SHOWN) for g in range(min(count, GROUPS_SHOWN))]
    return "; ".join([*shown, *(["…"] if count > GROUPS_SHOWN else [])])


def _row(name: str, text: str, t: Topology) -> Row:
    from hccc.network import summary

    described = text.partition("\n")[0].removeprefix("#").strip().removesuffix(".")
    facts = (name, t.n_nodes, len(t), summary.devices(t), summary.network(t), described)
    return dict(zip(COLUMNS, facts, strict=True))


def _table(rows: list[Row]) -> list[str]:
    """Lays out rows in columns as wide as their contents; numbers to the right."""
    shown: list[Row] = [{column: column for column in COLUMNS}, *rows]
    width = {c: max(len(str(row[c])) for row in shown) for c in COLUMNS}
    return [
        "  ".join(
            f"{row[c]:>{width[c]}}" if c in ("nodes", "ranks") else f"{row[c]:<{width[c]}}"
            for c in COLUMNS
        ).rstrip()
        for row in shown
    ]
