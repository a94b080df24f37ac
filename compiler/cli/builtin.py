"""`hccc builtin`: the built-in algorithms, printed as programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hccc.base.diagnostics import fail
from hccc.base.progress import tell
from hccc.cli.helps import HelpfulCommand
from hccc.cli.progress import progress
from hccc.cli.types import ClusterFile, File
from hccc.ir.limits import MAX_RANKS
from hccc.ir.op_type import NAMES, UNEVEN_NAMES

if TYPE_CHECKING:
    from hccc.ir.collective import OpType
    from hccc.ir.program import Program
    from hccc.ir.topology import Topology

HETCCL, ASSEMBLED = "hetccl", "assembled"
_DESCRIPTION = "HetCCL's job over the libraries of several vendors"
_ASSEMBLED = "An Allgather of your own (--of) backwards, as sums, and then the Allgather"
_DEFAULT = "[default: allreduce, else the first that NAME serves]"


@click.command(
    short_help="Print a built-in algorithm as a program, or list them.",
    cls=HelpfulCommand,
    examples=[
        "hccc builtin list",
        "hccc builtin ring --ranks 8 --collective allreduce -o ring.rccl",
        "hccc builtin hetccl --cluster hetccl-pku-nvidia+v1 --collective allgather",
        "hccc builtin assembled --of allgather.rccl -o allreduce.rccl",
    ],
)
@click.argument("name", metavar="NAME")
@click.option("--ranks", type=click.IntRange(2, MAX_RANKS), help="Without a cluster: how many.")
@click.option("--gpus-per-node", type=click.IntRange(1), help="[default: all ranks]")
@click.option("--cluster", type=ClusterFile(), metavar="FILE", help="The cluster to make it for.")
@click.option("--collective", type=click.Choice([*NAMES, *UNEVEN_NAMES]), help=_DEFAULT)
@click.option("--root", type=click.IntRange(0), default=0, help="The root, where there is one.")
@click.option("--of", type=File(), metavar="ALGO", help="The Allgather of `assembled`.")
@click.option("-o", "--output", type=File(), metavar="FILE", help="Instead of stdout.")
def builtin(
    name: str,
    ranks: int | None,
    gpus_per_node: int | None,
    cluster: Path | None,
    collective: str | None,
    root: int,
    of: Path | None,
    output: Path | None,
) -> None:
    """Print the built-in algorithm NAME, for a number of ranks or a cluster, as a program.

    `hccc builtin list` says which there are. Nodes of unequal size need no --cluster: the last of
    10 ranks with 4 GPUs a node has 2. hetccl is a job over the vendor clusters of --cluster, or
    over nodes; a file that ends in .json holds these too. assembled makes an Allreduce or a
    Reducescatter of the Allgather in --of, a program or a schedule of TE-CCL.
    """
    from hccc.synth.builtin import registry

    if name == "list":
        _list()
        return
    if (name == ASSEMBLED) != (of is not None):
        raise click.UsageError(f"{ASSEMBLED} and --of belong together.")
    if of is not None:
        if ranks or gpus_per_node or cluster:
            raise click.UsageError(f"{ASSEMBLED} has the ranks of --of.")
        _assembled(of, collective, output)
        return
    if name == HETCCL:
        _hetccl(_topology(ranks, gpus_per_node, cluster), cluster, collective, root, output)
        return
    if name not in registry.BUILTINS:
        known = ", ".join([*registry.BUILTINS, HETCCL, ASSEMBLED])
        raise fail("E451", f"there is no built-in algorithm {name!r}", help=f"there are {known}")
    op, uneven = _collective(registry.BUILTINS[name].ops, collective)
    if output is not None and str(output) != "-":
        from hccc.base.files.writing import check_place

        check_place(output, cluster)
    with progress():
        tell("Reading the cluster")
        t = _topology(ranks, gpus_per_node, cluster)
        if root >= len(t):
            raise click.BadParameter(f"{root} is no rank of {len(t)}.", param_hint="'--root'")
        tell("Making the program")
        from hccc.passes.verify import verify

        made = registry.make(name, t, op, root)
        if cluster is None:
            made = replace(made, nics_per_node=made.gpus_per_node)  # as many as a node mostly has
        if uneven:
            made = replace(
                made, name=f"{made.name}v", collective=replace(made.collective, uneven=True)
            )
        program = verify(made)
    _write(program, _comments(name, program, t), output)


def _hetccl(
    t: Topology, cluster: Path | None, collective: str | None, root: int, output: Path | None
) -> None:
    """Prints HetCCL's job over the vendor clusters of `t`; of no `cluster` over its nodes."""
    from hccc.ir.collective import ROOTED, OpType
    from hccc.ir.job import lines
    from hccc.ir.job_json import dumps
    from hccc.network.vendor_clusters import divisions
    from hccc.passes.verify_job import verify_job
    from hccc.predict.jobs import fastest
    from hccc.synth.builtin import hetccl

    op, uneven = _collective(hetccl.OPS, collective)
    if op not in hetccl.OPS:
        have = ", ".join(op.value for op in hetccl.OPS)
        raise fail("E451", f"{HETCCL} does not serve {collective}", help=f"it serves {have}")
    if root >= len(t):
        raise click.BadParameter(f"{root} is no rank of {len(t)}.", param_hint="'--root'")
    of = divisions(t if cluster else replace(t, vendor_cluster=t.node))
    root = root if op in ROOTED else 0
    jobs = [hetccl.hetccl(v, OpType(op), root, uneven) for v in of]
    job = verify_job(fastest(jobs, t)[0] if len(jobs) > 1 else jobs[0])
    v = job.clusters
    if output is not None and output.suffix == ".json":
        _put(dumps(job), output)
        return
    on = f"cluster {t.name}" if t.name else f"{len(t)} ranks"
    comments = [f"{job.collective.name} on {on}: built-in `{HETCCL}`, {_DESCRIPTION}."]
    comments += [f"Vendor cluster {c}: {text}." for c, text in enumerate(v.texts())]
    text = lines(job, says_clusters=len(of) > 1)
    _put("\n".join([*(f"# {line}" for line in comments), *text, ""]), output)


def _assembled(of: Path, collective: str | None, output: Path | None) -> None:
    """Prints what is assembled of the Allgather in a file."""
    from hccc.driver.load import assembled
    from hccc.passes.assemble import OPS

    op, _ = _collective(OPS, collective)
    made = assembled(of, op)
    comments = [f"{op.value} on {made.collective.n_ranks} ranks, assembled of {of.name}."]
    comments.append(f"{_ASSEMBLED if op is OPS[0] else _ASSEMBLED.partition(',')[0]}.")
    _write(made, comments, output)


def _collective(ops: tuple[OpType, ...], collective: str | None) -> tuple[OpType, bool]:
    """Returns a collective, and whether its blocks have lengths of their own."""
    from hccc.ir.collective import OpType, spelled

    if collective is not None and (found := spelled(collective)):
        return found
    return OpType.ALLREDUCE if OpType.ALLREDUCE in ops else ops[0], False


def _topology(ranks: int | None, gpus_per_node: int | None, cluster: Path | None) -> Topology:
    if (ranks is None) == (cluster is None):
        raise click.UsageError("Give either --ranks or --cluster.")
    if cluster is not None:
        if gpus_per_node is not None:
            raise click.UsageError("--gpus-per-node belongs to --ranks: a cluster has its nodes.")
        from hccc.driver.inputs import load_cluster

        return load_cluster(cluster)
    return _switched(ranks or 1, min(gpus_per_node or ranks or 1, ranks or 1))


def _switched(ranks: int, gpus: int) -> Topology:
    """Returns the cluster assumed if none is given: nodes of `gpus` GPUs, the last of the
    remainder, behind one switch, with one NIC for each node."""
    from hccc.base.diagnostics import Source
    from hccc.ir.topology import NOMINAL_DEVICE
    from hccc.lang.cluster.load import parse

    whole, left = divmod(ranks, gpus)
    nodes = [(1, whole, gpus), *([(whole + 1, 1, left)] if left else [])]
    lines = [f"define network = InfiniBand\ndefine nodenum = {whole + bool(left)}"]
    for first, count, size in nodes:
        lines.append(f"define node{first} = {count} * {size}")
        lines.append(
            f"define bandwidth = {{port => [((0..{size - 1}) -> 300)]}}" if size > 1 else ""
        )
        lines.append(f"define nic = [((0..{size - 1}) -> 50)]")
    made = parse(Source("ranks.cluster", "\n".join(lines)))
    return replace(made, name="", devices=(NOMINAL_DEVICE,) * len(made.devices))


def _comments(name: str, p: Program, t: Topology) -> list[str]:
    from hccc.synth.builtin import registry

    steps = int(p.transfers["step"].max(initial=-1)) + 1
    on = f"cluster {t.name}" if t.name else f"{len(t)} ranks"
    nodes = f"{t.n_nodes} node{'s' if t.n_nodes > 1 else ''}"
    return [
        f"{p.collective.op.value} on {on}, {nodes}: built-in `{name}`.",
        f"{registry.BUILTINS[name].description}.",
        f"Steps: {steps}. Transfers: {len(p):,}.",
    ]


def _write(p: Program, comments: list[str], output: Path | None) -> None:
    from hccc.lang.transfer import printer

    _put(printer.text(p, comments), output)


def _put(text: str, output: Path | None) -> None:
    """Writes a text to a file, or else to stdout."""
    if output is None or str(output) == "-":
        click.echo(text, nl=False)
        return
    from hccc.base.files.writing import write_whole

    write_whole(output, lambda file: file.write(text))


def _list() -> None:
    from hccc.passes.assemble import OPS
    from hccc.synth.builtin import registry
    from hccc.synth.builtin.hetccl import OPS as HETCCL_OPS

    rows = [
        (b.name, b.description, ", ".join(op.value.lower() for op in b.ops))
        for b in registry.BUILTINS.values()
    ]
    rows.append((HETCCL, _DESCRIPTION, ", ".join(op.value.lower() for op in HETCCL_OPS)))
    rows.append((ASSEMBLED, _ASSEMBLED, ", ".join(op.value.lower() for op in OPS)))
    width, wide = (max(len(row[i]) for row in rows) for i in (0, 1))
    for name, description, ops in rows:
        print(f"{name:<{width}}  {description:<{wide}}  {ops}")
