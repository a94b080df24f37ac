"""What commands do with a job: prove, simulate, explain, draw it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from hccc.base.diagnostics import fail
from hccc.cli import report
from hccc.cli.options import CommandOptions, refuse

if TYPE_CHECKING:
    from pathlib import Path

    from hccc.driver.inputs import Input
    from hccc.ir.job import Job
    from hccc.ir.topology import Topology


def job_in(
    what: Input, how: CommandOptions, more: Collection[str] = ()
) -> tuple[Job, Topology | None] | None:
    """Returns the checked job that was given, and the cluster; None of what is no job. more: other
    options that were given and have no effect.

    Raises:
        UserError: E416 options that are about compiling; as `inputs.job_of`.
    """
    from hccc.driver.inputs import JobInput, job_of, name_of

    if not isinstance(what, JobInput):
        return None
    unused = [name for name in how.given if name != "cluster"]
    refuse({*unused, *more}, f"{name_of(what)} is a job", "leave it out")
    topology = how.load_cluster()
    return job_of(what, topology), topology


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
    from hccc.pictures.job_timeline import job_timeline
    from hccc.pictures.page import write_picture
    from hccc.predict.jobs import simulate_job

    if what not in (None, "timeline") or trace is not None or output is None:
        raise fail("E433", "of a job there is one picture", help="-o out.svg, its timeline")
    if output.suffix.lower() not in (".svg", ".png"):
        raise fail("E433", f"-o {output}: neither .svg nor .png", help="a job has no page")
    write_picture(output, job_timeline(job, simulate_job(job, t, [size]).runs[0], t.name))
