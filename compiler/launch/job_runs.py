"""job_runs: runs a Job by ranks in processes, each with its vendor's library, checked and timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from hccc.base.diagnostics import fail
from hccc.base.interruptible import interruptible
from hccc.ir import job_json
from hccc.ir.collective import Collective
from hccc.ir.job import Job, VendorClusters, vendor_clusters
from hccc.ir.limits import MAX_RANKS
from hccc.ir.uneven import check_uneven, modes_of
from hccc.launch.hosts import hosts_of
from hccc.launch.measure import RunOptions, bounded, told_rows
from hccc.launch.processes import RankProcesses, shared_out, task_of
from hccc.launch.remote import Shell
from hccc.runtime.build import pairs
from hccc.runtime.job.loaded import MicroBatches
from hccc.runtime.measure import perf
from hccc.runtime.measure.patterns import Pattern
from hccc.runtime.measure.perf import PerfRow, Ranks, SizeSchedule
from hccc.runtime.vendor.files import PLATFORMS

# A vendor, its library's file or "", and how many ranks it serves.
Vendors = Sequence[tuple[str, str, int]]
OPS = ("sum", "prod", "max", "min", "avg", "premul_sum", "band", "bor", "bxor", "land", "lor")


def vendors_of(text: str) -> Vendors:
    """Reads `mpich:4,own:2`, or with a library's file `mpich=/opt/lib/libmpi_abi.so.1:4`.

    Raises:
        ValueError: a word of it is something else.
    """
    found = []
    for word in text.split(","):
        what, _, count = word.strip().rpartition(":")
        name, _, file = what.partition("=")
        if not (name.isidentifier() and count.isdecimal() and 0 < int(count) <= MAX_RANKS):
            raise ValueError(f"{word!r} is no vendor with its ranks, as mpich:4")
        found.append((name.lower(), file, int(count)))
    return tuple(found)


def clusters_of(vendors: Vendors) -> VendorClusters:
    """Returns the vendor clusters of ranks in a row, all of them border ranks."""
    rows, first = [], 0
    for vendor, _, n in vendors:
        ranks = list(range(first, first + n))
        rows.append((vendor, ranks, ranks, [1] * n))
        first += n
    return vendor_clusters(rows)


def vendor_of_ranks(vendors: Vendors, v: VendorClusters) -> tuple[tuple[str, str], ...]:
    """Returns whose library serves each rank, and its file; none where `vendors` is empty.

    Raises:
        UserError: E473 they are not as many ranks as a job has, or the ranks of a vendor cluster
        would have several.
    """
    each = tuple((vendor, file) for vendor, file, n in vendors for _ in range(n))
    if not each:
        return ()
    if len(each) != v.n_ranks:
        message = f"--vendors names the libraries of {len(each)} ranks, and the job has {v.n_ranks}"
        raise fail("E473", message, help="give each vendor its number of ranks: mpich:4,own:2")
    for c in range(len(v)):
        if len(found := {each[r] for r in v.members(c)}) > 1:
            message = f"--vendors: vendor cluster {c}, {v.texts()[c]}, would have"
            help = "its ranks, in the order of --vendors, need one library"
            raise fail(
                "E473", f"{message} {' and '.join(sorted(name for name, _ in found))}", help=help
            )
    return each


def devices_of(vendors: Sequence[tuple[str, str]]) -> str:
    """Names the devices of the ranks' memory, `cpu` or `cuda and cpu`; without vendors the host."""
    found = {PLATFORMS.get(name, "cpu") for name, _ in vendors}
    return " and ".join(sorted(found, reverse=True)) or "cpu"


def schedule_of(c: Collective, options: RunOptions) -> SizeSchedule:
    """Returns the sizes and calls to measure of a job of a collective. Raises UserError E415 for
    skewed lengths of blocks that are all alike."""
    if options.skew:
        check_uneven(c, "--skew")
    return SizeSchedule(
        options.minbytes,
        options.maxbytes,
        None if options.stepbytes else options.stepfactor,
        options.stepbytes or 0,
        options.iters,
        options.warmup_iters,
        options.checks > 0,
        modes_of(c, (False, True), options.skew or ""),
        skew=options.skew or "",
    )


def measure_job(
    job: Job,
    options: RunOptions,
    vendors: tuple[tuple[str, str], ...],
    micro_batches: MicroBatches,
) -> Iterator[PerfRow]:
    """Starts the ranks, each in a process unless the options say how many there are; then yields a
    row for each type, reduction and size, measured on demand.

    Raises:
        UserError: ranks cannot start, or a call failed.
    """
    c, schedule = job.collective, schedule_of(job.collective, options)
    hosts = hosts_of(options.hosts, c.n_ranks) if options.hosts else []
    each = shared_out(c.n_ranks, options.procs or (0 if hosts else c.n_ranks), hosts)
    sizes = bounded(c, schedule, options)
    task = replace(
        task_of(c, job.name, options.timeout),
        job=job_json.dumps(job),
        vendors=vendors,
        micro_batches=tuple(micro_batches),
    )
    with ExitStack() as stack:
        processes = stack.enter_context(RankProcesses(task, each))
        shell = Shell.of(options.rsh, options.remote_python)
        interruptible(processes.start_job)(hosts, shell)
        kept = stack.pop_all()  # until the last row

    def ranks(p: Pattern, in_place: bool) -> Ranks:
        return processes.ranks(p, in_place, 0, 0)

    def rows() -> Iterator[PerfRow]:
        with kept:
            variants = pairs(options.dtypes, _operations(job, options))
            for dtype, op, size in told_rows(c, variants, sizes):
                one = interruptible(perf.measure_ranks)
                yield one(c, dtype, op, size, schedule, ranks)

    return rows()


def _operations(job: Job, options: RunOptions) -> tuple[str, ...]:
    if not job.collective.reduces:
        return ("sum",)
    if unknown := [op for op in options.ops if op not in OPS]:
        message = f"{job.name} is a job, and has no reduction `{unknown[0]}`"
        raise fail("E411", message, help=f"it has {', '.join(OPS)}")
    return options.ops
