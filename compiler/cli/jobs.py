"""What commands do with a job: prove, simulate, explain, draw it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from hccc.base.diagnostics import fail
from hccc.cli import report
from hccc.cli.options import CommandOptions, given, refuse

if TYPE_CHECKING:
    from pathlib import Path

    from hccc.driver.inputs import Input, JobInput
    from hccc.ir.job import Job, VendorClusters
    from hccc.ir.topology import Topology
    from hccc.launch.job_runs import Vendors


_MOST_BYTES = 1 << 30  # of calls whose micro-batches are told


def job_in(
    what: Input,
    how: CommandOptions,
    more: Collection[str] = (),
    clusters: VendorClusters | None = None,
) -> tuple[Job, Topology | None] | None:
    """Returns the checked job that was given, and the cluster; None of what is no job. more: other
    options that were given and have no effect; clusters: of a text, where no cluster is given.

    Raises:
        UserError: E416 options that are about compiling; as `inputs.job_of`.
    """
    from hccc.driver.inputs import JobInput, job_of, name_of

    if not isinstance(what, JobInput):
        return None
    unused = [name for name in how.given if name != "cluster"]
    refuse({*unused, *more}, f"{name_of(what)} is a job", "leave it out")
    topology = how.load_cluster()
    return job_of(what, topology, clusters), topology


def check(job: Job, as_json: bool) -> None:
    """Prints what is proved of a job."""
    from hccc.passes.expand import expand

    program = expand(job)
    c, crossings = job.collective, job.crossings()
    if as_json:
        facts: dict[str, Any] = {
            "job": job.name,
            "collective": c.name,
            "ranks": c.n_ranks,
            "parts": c.n_chunks,
            "steps": len(job),
            "transfers": len(program),
            "vendor_clusters": job.clusters.texts(),
            "crossings": crossings.tolist(),
        }
        report.as_json(facts)
        return
    print(f"{job.name}: {c.title}, a job over {len(job.clusters)} vendor clusters")
    for k, text in enumerate(job.clusters.texts()):
        sent, got = crossings[k].sum(), crossings[:, k].sum()
        print(f"  vendor cluster {k}: {text}; sends {sent} parts, gets {got}")
    print(f"  result    {c.name} holds at every rank, for every message size")
    print(f"            ({len(job):,} steps, {len(program):,} transfers of {c.n_chunks:,} parts)")
    print("  borders   nothing crosses one that is there already")


def save(
    what: JobInput, how: CommandOptions, unused: Collection[str], output: Path | None, as_json: bool
) -> None:
    """Writes a job's table, with the micro-batches that its cluster says. unused: other options
    that were given and have no effect.

    Raises:
        UserError: E415 it is not said where to; as `job_in`.
    """
    from hccc.base.files.writing import check_place, write_whole
    from hccc.ir.job_table import dumps
    from hccc.predict.jobs import micro_batches

    if output is None:
        raise fail("E415", "say where to: -o FILE", help="`hccc job.rccl -o job.table`")
    if str(output) != "-":
        check_place(output, how.cluster)
    found = job_in(what, how, unused)
    assert found is not None
    job, topology = found
    table = dumps(job, micro_batches(job, topology, _MOST_BYTES) if topology else ())
    if str(output) == "-":
        print(table, end="")
        return
    write_whole(output, lambda file: file.write(table))
    written = output.stat().st_size
    if as_json:
        report.as_json({"job": job.name, "file": str(output), "bytes": written})
    else:
        print(f"{output}: {written:,} bytes, the table of {job.name}")


def runnable(
    what: Input, how: CommandOptions, vendors: Vendors
) -> tuple[Job, Topology | None, tuple[tuple[str, str], ...]] | None:
    """Returns the job that was given, checked, the cluster, and the vendor of each rank;
    None of what is no job. Raises as `job_in`; UserError E473 for `vendors` that do not fit."""
    from hccc.driver.inputs import JobInput
    from hccc.launch.job_runs import clusters_of, vendor_of_ranks

    if not isinstance(what, JobInput):
        return None
    of_runs = ("window", "micro_batch", "device", "network", "trace", "workers")
    clusters = clusters_of(vendors) if vendors else None
    found = job_in(what, how, given(*of_runs), clusters)
    assert found is not None
    return *found, vendor_of_ranks(vendors, found[0].clusters)


def run(
    found: tuple[Job, Topology | None, tuple[tuple[str, str], ...]],
    options: dict[str, Any],
    as_json: bool,
    file: Path | None,
) -> int:
    """Runs a job, and prints the table; returns the number of wrong elements.

    A cluster says in how many micro-batches calls go.
    """
    from hccc.cli.progress import progress
    from hccc.cli.tables import Table, of_job
    from hccc.launch.job_runs import devices_of, measure_job, schedule_of
    from hccc.launch.measure import RunOptions
    from hccc.predict.jobs import micro_batches

    job, topology, vendors = found
    n = job.collective.n_ranks
    wanted = RunOptions(**{f.name: options[f.name] for f in fields(RunOptions)})
    if wanted.procs > n:
        message = f"--procs {wanted.procs}: {job.name} has {n} ranks"
        help = "leave --procs out: each rank is a process"
        raise fail("E473", message, help=help)
    wanted = replace(wanted, procs=wanted.procs or (0 if wanted.hosts else n))
    batches = micro_batches(job, topology, wanted.maxbytes) if topology else []
    with progress():
        rows = measure_job(job, wanted, vendors, batches)
        where = devices_of(vendors) + wanted.where(n).removeprefix(wanted.device)
        table = Table(of_job(job, where, vendors), schedule_of(job.collective, wanted), as_json)
        for row in rows:
            table.add(row)
    table.finish(file)
    return table.wrong


def located(found: tuple[Job, Topology | None]) -> tuple[Job, Topology]:
    """Returns a job and its cluster. Raises UserError E424 without one."""
    from hccc.predict.simulation import no_cluster

    job, topology = found
    if topology is None:
        raise no_cluster()
    return job, topology


def draw(
    job: Job, t: Topology, output: Path | None, what: str | None, trace: Path | None, size: int
) -> None:
    """Draws the timeline of a call. Raises UserError E433 for what there is not of a job."""
    from hccc.pictures.job_timeline import draw_job
    from hccc.pictures.page import write_picture

    if trace is not None or output is None:
        raise fail("E433", "of a job there is one picture", help="-o out.svg, its timeline")
    if output.suffix.lower() not in (".svg", ".png"):
        raise fail("E433", f"-o {output}: neither .svg nor .png", help="a job has no page")
    write_picture(output, draw_job(job, t, what, size))
