"""`hccc cluster`: the clusters that ship."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hccc.cli import report
from hccc.cli.options import HELP, json_option
from hccc.cli.types import ClusterFile

if TYPE_CHECKING:
    from hccc.ir.topology import Topology

Row = dict[str, str | int]
COLUMNS = ("name", "nodes", "ranks", "devices", "network", "description")


@click.group(context_settings=HELP, short_help="List the clusters that ship, or print one.")
def cluster() -> None:
    """The clusters that ship with hccc. Their names stand for files: `--cluster resccl-topo4`."""


@cluster.command("list")
@json_option
def list_clusters(as_json: bool) -> None:
    """List the clusters that ship."""
    from hccc.lang.cluster import load
    from hccc.library import shipped

    rows = []
    with report.progress() as on_phase:
        for name in shipped.names(shipped.Kind.CLUSTER):
            on_phase(f"Reading {name}")
            source = shipped.read(Path(f"{name}.cluster"), load.MAX_BYTES, shipped.CLUSTERS)
            rows.append(_row(name, source.text, load.parse(source)))
    if as_json:
        report.as_json({"clusters": rows})
        return
    for line in _table(rows):
        print(line)


@cluster.command("show")
@click.argument("name", type=ClusterFile(), metavar="NAME")
def show_cluster(name: Path) -> None:
    """Print the cluster file NAME; `hccc show NAME -o cluster.svg` draws it."""
    from hccc.inputs import parse_cluster
    from hccc.lang.cluster import load
    from hccc.library import shipped

    source = shipped.read(name, load.MAX_BYTES, shipped.CLUSTERS)
    parse_cluster(source)  # what is no cluster is refused
    print(source.text, end="")


def _row(name: str, text: str, t: Topology) -> Row:
    from hccc.network import summary

    described = text.partition("\n")[0].removeprefix("#").strip().removesuffix(".")
    facts = (name, t.n_nodes, len(t), summary.devices(t), summary.network(t), described)
    return dict(zip(COLUMNS, facts, strict=True))


def _table(rows: list[Row]) -> list[str]:
    """The rows in columns as wide as what stands in them; numbers to the right."""
    shown: list[Row] = [{column: column for column in COLUMNS}, *rows]
    width = {c: max(len(str(row[c])) for row in shown) for c in COLUMNS}
    return [
        "  ".join(
            f"{row[c]:>{width[c]}}" if c in ("nodes", "ranks") else f"{row[c]:<{width[c]}}"
            for c in COLUMNS
        ).rstrip()
        for row in shown
    ]
