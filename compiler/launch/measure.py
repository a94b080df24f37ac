"""measure: builds a Plan's kernels and runs all ranks in this process, checked and timed.

Joins the compiler (a Plan, or a directory of kernels) and the runtime (builds, launches,
measurement). Rows are yielded as they are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]

from hccc.base.diagnostics import fail
from hccc.base.dtypes import OPS, named
from hccc.base.interruptible import interruptible
from hccc.base.progress import far, tell
from hccc.base.shown import brief, frame, preformatted
from hccc.driver.compiled import Compiled, LoadedDirectory
from hccc.driver.outputs import kernels
from hccc.emit.kept import kept, kept_kernels
from hccc.emit.targets import TARGETS, Target
from hccc.ir import text as words
from hccc.ir.catalogue import Catalogue
from hccc.ir.choices import Bits
from hccc.ir.collective import Collective
from hccc.ir.plan import Plan
from hccc.ir.transport import Transport
from hccc.ir.uneven import check_uneven, modes_of, table_of
from hccc.launch.hosts import hosts_of
from hccc.launch.processes import RankProcesses, shared_out, task_of
from hccc.launch.remote import Shell
from hccc.launch.tracing import Tracer
from hccc.runtime.build import pairs
from hccc.runtime.cpu import CpuCatalogueLauncher, CpuLauncher
from hccc.runtime.cuda import CudaCatalogueLauncher, CudaLauncher
from hccc.runtime.layout import DTYPES, shape_of
from hccc.runtime.machines.gcn.launcher import GcnCatalogueLauncher, GcnLauncher
from hccc.runtime.machines.ptx.launcher import PtxCatalogueLauncher, PtxLauncher
from hccc.runtime.measure import perf
from hccc.runtime.measure.patterns import Pattern, scalars
from hccc.runtime.measure.perf import Bind, PerfRow, RankMemory, Ranks, SizeSchedule, Timed
from hccc.runtime.measure.session import DeviceSession, HostSession
from hccc.runtime.network import RankNetwork, Wire, network_of
from hccc.runtime.request import LaunchRequest

# type, reduction, bytes → a row
Measure = Callable[[Collective, str, str, int, SizeSchedule, Timed], PerfRow]
MOST_SIZES = 10_000  # of one `hccc run`


@dataclass(frozen=True, slots=True)
class EmulatedDevice:
    """A device that is emulated: the target whose text it runs, and its launchers."""

    target: str
    alone: Callable[..., CudaLauncher]
    catalogue: Callable[..., CudaLauncher]


MACHINES = {
    "ptx": EmulatedDevice("cuda", PtxLauncher, PtxCatalogueLauncher),
    "gcn": EmulatedDevice("hip", GcnLauncher, GcnCatalogueLauncher),
}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `hccc run`. Sizes in bytes, `timeout` in seconds."""

    minbytes: int = 1 << 10
    maxbytes: int = 1 << 20
    stepfactor: float = 4.0
    stepbytes: int | None = None
    dtypes: tuple[str, ...] = ("float32",)
    ops: tuple[str, ...] = ("sum",)
    iters: int = 20
    warmup_iters: int = 5
    checks: int = 1
    window: int = 0
    micro_batch: int = 0
    device: str = "cpu"
    arch: str | None = None  # what a machine compiles for, sm_80 or gfx90a; None: its own
    workers: int = 0
    timeout: float = 30.0
    network: tuple[float, float] | None = None  # GB/s of each NIC, µs
    procs: int = 0  # processes that the ranks are in; 0: this one, or one for each on `hosts`
    hosts: str = ""  # where they are, as `hosts_of` reads it; empty: here
    rsh: str | None = None  # the remote shell's command
    remote_python: str | None = None  # the interpreter on the hosts
    trace: Path | None = None  # the file for the recordings of the kernels
    skew: str | None = None  # of the lengths of an uneven collective's blocks; None: all are alike

    def __post_init__(self) -> None:
        if self.minbytes > self.maxbytes:
            message = f"-b {self.minbytes:,} is more than -e {self.maxbytes:,}"
            raise fail("E415", message, help="a smaller -b, or a larger -e")
        if self.arch and self.device not in MACHINES:
            help = "leave it out: a GPU says what it is"
            raise fail("E415", f"--arch is of {' and '.join(MACHINES)}", help=help)
        if (self.procs or self.hosts) and (self.device != "cpu" or self.network):
            what = "--network" if self.network else f"--device {self.device}"
            option = "--hosts" if self.hosts else "--procs"
            raise fail("E473", f"{option}: ranks in processes are the CPU's, without {what}")
        if self.trace and (self.hosts or self.device in ("hip", *MACHINES)):
            where = "on hosts, whose clocks differ" if self.hosts else f"with {self.device}"
            message = f"--trace: launches are recorded on the CPU and on NVIDIA GPUs, not {where}"
            raise fail("E459", message, help="leave --trace out")

    def schedule(self, catalogue: Catalogue) -> SizeSchedule:
        """Returns the sizes and launches to measure for each type and reduction."""
        factor = None if self.stepbytes else self.stepfactor
        return SizeSchedule(
            self.minbytes,
            self.maxbytes,
            factor,
            self.stepbytes or 0,
            self.iters,
            self.warmup_iters,
            self.checks > 0,
            modes_of(catalogue.collective, catalogue.modes, self.skew or ""),
            catalogue.keeps_input,
            self.skew or "",
            any_bits=any(plan.multicast is Bits.ANY for plan in catalogue.plans),
        )

    def check_lengths(self, c: Collective) -> None:
        """Raises UserError E415 for skewed lengths of an even collective."""
        if self.skew:
            check_uneven(c, "--skew")

    def network_of(self, catalogue: Catalogue) -> RankNetwork | None:
        """Returns the network between the ranks of `plan`, if one was asked for or is needed.

        Raises:
            UserError: E436 no network is possible.
        """
        if self.procs or self.hosts:
            return None  # a real one
        networks = [self._network_of(plan) for plan in catalogue.plans]
        return networks[0] if all(networks) else None

    def _network_of(self, plan: Plan) -> RankNetwork | None:
        if self.network is None:
            return between(plan) if plan.transport is Transport.MIXED and self.cpu else None
        if not self.cpu:
            help = "leave --network out: there, ranks reach each other's memory"
            raise fail("E436", f"--network: all ranks are on one device, {self.device}", help=help)
        wired = between(plan, Wire(*self.network))
        if len(set(wired.domain)) > 1 and plan.transport is not Transport.DIRECT:
            return wired
        crossing = plan.transport is Transport.DIRECT and plan.gpus_per_node < plan.n_ranks
        why = "reads memory of other nodes" if crossing else "has all ranks in one memory domain"
        nodes = "a program with GPUPerNode=..., or --cluster"
        help = "compile with --transport auto" if crossing else nodes
        raise fail("E436", f"--network: {plan.name} {why}", help=help)

    @property
    def cpu(self) -> bool:
        """Whether all ranks run on the CPU."""
        return self.device == "cpu"

    def where(self, n_ranks: int) -> str:
        """Describes the device and the place of so many ranks."""
        if not (self.procs or self.hosts):
            return self.device
        said = f"{self.device}, {self.procs or n_ranks} processes"
        n = len(hosts_of(self.hosts, n_ranks)) if self.hosts else 0
        return f"{said} on {n} host{'s' * (n > 1)}" if n else said

    def request(
        self, dtype: str, op: str, count: int, in_place: bool, c: Collective | None = None
    ) -> LaunchRequest:
        """Returns the request of one launch. c: the collective, whose blocks get their lengths."""
        return LaunchRequest(
            count,
            dtype,
            op,
            in_place,
            self.micro_batch,
            self.window,
            self.timeout,
            self.workers,
            trace=self.trace is not None,
            blocks=table_of(c, count, self.skew or "") if c else None,
            scalars=scalars(dtype, c.n_ranks) if c and op == "premul_sum" else (),
        )


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured of a library or a job: a row for each type, reduction and size. title: what
    it does."""

    title: str
    rows: tuple[PerfRow, ...]

    @property
    def wrong(self) -> int:
        """Wrong elements of all rows; 0 also where nothing was checked."""
        return sum(row.wrong for row in self.rows)

    def __repr__(self) -> str:
        rows = f"{len(self.rows)} row{'s' * (len(self.rows) != 1)}, {self.wrong} wrong"
        return brief(self, f"{self.title}: {rows}")

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[PerfRow]:
        return iter(self.rows)

    def records(self) -> list[dict[str, object]]:
        """Returns a record for each row and kind of call: size (bytes), count, dtype, redop, root,
        in_place, time (µs), algbw and busbw (GB/s), wrong (elements)."""
        return [
            {
                **{
                    name: getattr(row, name) for name in ("size", "count", "dtype", "redop", "root")
                },
                "in_place": half is row.in_place,
                **{name: getattr(half, name) for name in ("time", "algbw", "busbw", "wrong")},
            }
            for row in self.rows
            for half in row.halves
        ]

    def to_frame(self) -> Any:
        """Returns `records` as a DataFrame of pandas. Raises UserError E477 where there is none."""
        return frame(self.records())

    def text(self) -> str:
        """Returns `records` as a table, for people."""
        records = self.records()
        names = [name.replace("_", " ") for name in (records[0] if records else ())]
        table = [names, *([_shown(value) for value in one.values()] for one in records)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [zip(row, widths, strict=True) for row in table]
        text = "\n".join("  ".join(f"{word:>{width}}" for word, width in line) for line in lines)
        return f"{self.title}\n{text}"

    def _repr_html_(self) -> str:
        return preformatted(self.text())


def _shown(value: object) -> str:
    """Returns a value of a record for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value}"


def measure(
    compiled: Compiled,
    options: RunOptions,
    tracer: Tracer | None = None,
) -> Iterator[PerfRow]:
    """Builds the kernels; then yields a row for each type, reduction and size, measured on demand.

    tracer: records one launch of each row, if the options allow kernels to record.

    Raises:
        UserError: the kernels cannot be built or launched, or a launch stood still.
    """
    plan, library = compiled.plan, compiled.catalogue
    options.check_lengths(plan.collective)
    schedule = options.schedule(library)
    options = _windowed(library, options)
    network = options.network_of(library)
    sizes = bounded(library.collective, schedule, options, _scratch(library, options))
    ops = _operations(library.narrowest, options)
    variants = pairs(options.dtypes, ops)
    place = _kernels(compiled, _devices(options))
    with ExitStack() as stack:
        tell("Building kernels")
        if options.procs or options.hosts:
            one_row = _processes(stack, place, library, options, variants)
        else:
            binds = [
                _binder(launcher(device, place, library, network, options.arch), options, variants)
                for device in _devices(options)
            ]
            one_row = _here(binds)
        kept = stack.pop_all()  # until the last row

    def rows() -> Iterator[PerfRow]:
        with kept:
            for dtype, op, size in told_rows(plan.collective, variants, sizes):
                timed = _timed(tracer, options, dtype, op)
                yield one_row(plan.collective, dtype, op, size, schedule, timed)

    return rows()


def told_rows(
    c: Collective, variants: Iterable[tuple[str, str]], sizes: Sequence[int]
) -> Iterator[tuple[str, str, int]]:
    """Yields the type, the reduction and the bytes of each row to measure, and reports how far
    that is."""
    rows = [(dtype, op, n) for dtype, op in variants for n in distinct(c, dtype, sizes)]
    for k, (dtype, op, n) in enumerate(rows):
        tell(f"Running {words.size(n)} of {dtype}")
        far(k, len(rows))
        yield dtype, op, n


def _timed(tracer: Tracer | None, options: RunOptions, dtype: str, op: str) -> Timed:
    """Returns a callback for ranks that were timed: it records a launch if there is a tracer."""
    if tracer is None:
        return lambda *_: None
    return lambda ranks, count, in_place: tracer.record(
        ranks, options.request(dtype, op, count, in_place)
    )


def _here(binds: Sequence[Callable[[str, str], Bind]]) -> Measure:
    """Returns a function that measures the ranks of this process."""

    def one_row(
        c: Collective, dtype: str, op: str, size: int, schedule: SizeSchedule, timed: Timed
    ) -> PerfRow:
        bound = [bind(dtype, op) for bind in binds]
        return interruptible(perf.measure)(c, dtype, op, size, schedule, *bound, timed=timed)

    return one_row


def _windowed(library: Catalogue, options: RunOptions) -> RunOptions:
    """Returns the options, with the plan's window if they name none; a catalogue's entry knows its
    own. Raises UserError E426 for a window that a plan cannot run with."""
    for plan in library.plans:
        most = plan.largest_window
        if most and options.window > most:
            message = f"{plan.name} can run with --window 1 to {most} only"
            raise fail("E426", message, help="its queues have no room for more")
    if options.window or not library.alone:
        return options
    return replace(options, window=library.plans[0].default_window)


def _operations(plan: Plan, options: RunOptions) -> tuple[str, ...]:
    """Returns the reductions to measure: one if nothing is reduced."""
    if not plan.reduces:
        return ("sum",)
    if "avg" in options.ops and not plan.averages:
        message = f"{plan.name} cannot average: a custom collective does not say where sums end"
        raise fail("E453", message, help="-o sum")
    known = [named(op) for op in plan.operations]
    every = {*OPS} <= {*options.ops}  # "all" is all that it has
    wanted = [op for op in options.ops if op in known or not every]
    for op in wanted:
        if named(op) not in known:
            help = f"it has {', '.join(known)}"
            if op == "premul_sum":  # `Plan.multiplies`
                help = "--network-lowering slots: a network carries what nothing has multiplied"
            raise fail("E411", f"{plan.name} has no reduction `{op}`", help=help)
    return tuple(map(plan.operation, wanted))


def _devices(options: RunOptions) -> list[str]:
    """Returns the device to measure; a GPU is followed by the CPU, to compare every bit."""
    compare = options.device != "cpu" and options.checks
    return [options.device, "cpu"] if compare else [options.device]


def _binder(
    built: CpuLauncher | CudaLauncher,
    options: RunOptions,
    variants: Sequence[tuple[str, str]],
) -> Callable[[str, str], Bind]:
    """Builds the kernels for a device; returns a function from (dtype, reduction) to a binder of
    memory."""
    if isinstance(built, CpuLauncher):
        built.build([options.request(dtype, op, 0, False) for dtype, op in variants])
    return lambda dtype, op: (
        lambda memory, count, in_place: bound(
            built, options.request(dtype, op, count, in_place, built.collective), memory
        )
    )


def _processes(
    stack: ExitStack,
    place: Path,
    library: Catalogue,
    options: RunOptions,
    variants: Sequence[tuple[str, str]],
) -> Measure:
    """Starts processes for the ranks, which end with the stack; returns a function that measures
    them."""
    c = library.collective
    hosts = hosts_of(options.hosts, c.n_ranks) if options.hosts else []
    each = shared_out(c.n_ranks, options.procs, hosts)
    shell = Shell.of(options.rsh, options.remote_python)
    processes = stack.enter_context(RankProcesses(task_of(c, library.name, options.timeout), each))
    if hosts:
        interruptible(processes.start_on)(hosts, shell, place, variants)
    else:
        interruptible(processes.start_here)(place, variants, trace=options.trace is not None)

    def ranks(p: Pattern, in_place: bool) -> Ranks:
        return processes.ranks(p, in_place, options.micro_batch, options.window)

    def one_row(
        c: Collective, dtype: str, op: str, size: int, schedule: SizeSchedule, timed: Timed
    ) -> PerfRow:
        return interruptible(perf.measure_ranks)(c, dtype, op, size, schedule, ranks, timed)

    return one_row


def between(plan: Plan, wire: Wire | None = None) -> RankNetwork:
    """Returns the network between the memory domains of `plan`: its header's NICs, without limits
    by default."""
    rank = np.arange(plan.n_ranks)
    gpus, nics = plan.gpus_per_node, max(1, plan.nics_per_node)
    nic = rank // gpus * nics + rank % gpus * nics // gpus
    return network_of(plan.memory_domain, nic, wire or Wire())


def launcher(
    device: str,
    place: Path,
    library: Catalogue,
    network: RankNetwork | None = None,
    arch: str | None = None,
) -> CpuLauncher | CudaLauncher:
    """Returns the communicator of all ranks on a device.

    library: a plan or a catalogue, with its directory of kernels `place`; arch: that a machine
    compiles for.

    Raises:
        UserError: E425 this machine has no such device.
    """
    suffix = _target(device).suffix
    if library.alone:
        source, plan = place / f"{library.name}{suffix}", library.plans[0]
        return communicator(device, source, plan, network, arch)
    if device == "cpu":
        dispatch = place / f"{library.name}_cpu_dispatch.cpp"
        return CpuCatalogueLauncher(dispatch, library, network=network)
    if device in MACHINES:
        return MACHINES[device].catalogue(place, suffix, library, arch=arch)
    return _of_device(device, CudaCatalogueLauncher(place, suffix, library))


def communicator(
    device: str,
    source: Path,
    plan: Plan,
    network: RankNetwork | None = None,
    arch: str | None = None,
) -> CpuLauncher | CudaLauncher:
    """Returns the communicator of all ranks of `plan` on a device; `source` has its kernels. Raises
    UserError E425."""
    shape = shape_of(plan)
    if device == "cpu":
        return CpuLauncher(source, plan.name, shape, plan.collective, network=network)
    if device in MACHINES:
        return MACHINES[device].alone(source, shape, plan.collective, plan.warps, arch=arch)
    return _of_device(device, CudaLauncher(source, shape, plan.collective, plan.warps))


def _of_device(device: str, gpu: CudaLauncher) -> CudaLauncher:
    if gpu.device.hip != (device == "hip"):
        installed = "ROCm" if gpu.device.hip else "CUDA"
        raise fail("E425", f"--device {device}, but the CuPy installed here is for {installed}")
    return gpu


def bound(
    built: CpuLauncher | CudaLauncher, request: LaunchRequest, memory: Sequence[RankMemory]
) -> HostSession:
    """Binds the ranks' memory to their communicator, as a session."""
    if isinstance(built, CudaLauncher):
        return DeviceSession(built, request, memory, built.device.cupy)
    return HostSession(built, request, memory)


def bounded(
    c: Collective,
    schedule: SizeSchedule,
    options: RunOptions,
    scratch: Callable[[int, int], int] = lambda count, itemsize: 0,
) -> list[int]:
    """Returns the sizes to measure. scratch: bytes of a rank, for a count of elements.

    Raises:
        UserError: E429 for too large ones, E418 for too many.
    """
    sizes = list(islice(schedule.sizes(), MOST_SIZES + 1))
    if len(sizes) <= MOST_SIZES:
        _fits(c, sizes[-1], options, scratch)
        return sizes
    # All but: no size is further from it than one step.
    _fits(c, schedule.largest, options, scratch)
    option = f"-i {options.stepbytes}" if options.stepbytes else f"-f {options.stepfactor:g}"
    help = f"a larger {option[:2]}, or a smaller -e"
    raise fail("E418", f"{option}: more than {MOST_SIZES:,} sizes", help=help)


def distinct(c: Collective, dtype: str, sizes: Sequence[int]) -> Iterator[int]:
    """Yields the sizes that differ once they are rounded down to whole elements."""
    counts: set[int] = set()
    for size in sizes:
        count = perf.count_of(c, size, DTYPES[dtype].itemsize)
        if count not in counts:
            yield size
        counts.add(count)


def _target(device: str) -> Target:
    """Returns the target that a device runs; a machine runs the text of GPUs."""
    name = MACHINES[device].target if device in MACHINES else device
    return next(target for target in TARGETS if target.name == name)


def _kernels(compiled: Compiled, devices: Sequence[str]) -> Path:
    """Returns a directory of kernels for these devices, in this user's cache.

    A directory that was given is compared with what its plan emits, and nothing in it is run.

    Raises:
        UserError: E427, E428 it has no kernels for a device, or others.
    """
    targets = [_target(device) for device in devices]
    if isinstance(compiled, LoadedDirectory):
        return interruptible(kept_kernels)(compiled.directory, compiled.catalogue, targets)
    return kept(kernels(compiled.catalogue, targets))


def _scratch(library: Catalogue, options: RunOptions) -> Callable[[int, int], int]:
    """Returns a function from a count and the bytes of an element to those of a rank's scratch."""
    shapes = [shape_of(plan) for plan in library.plans]
    return lambda count, itemsize: max(
        shape.scratch_bytes(count, itemsize, options.micro_batch) for shape in shapes
    )


def _fits(
    c: Collective, size: int, options: RunOptions, scratch: Callable[[int, int], int]
) -> None:
    """Raises E429 for a size that would not fit into memory, before anything is allocated."""
    if options.hosts:
        return  # each host looks for itself
    itemsize = min(DTYPES[dtype].itemsize for dtype in options.dtypes)
    more = scratch(perf.count_of(c, size, itemsize), itemsize)
    # Both buffers and the scratch of every rank; while comparing, as much again for a few ranks.
    n = c.n_ranks
    ranks = n + 1 + min(n, psutil.cpu_count() or 1)
    need, free = ranks * (2 * size + more), psutil.virtual_memory().available
    if need > free:
        message = f"{size:,} bytes at {n} ranks need {need / 1e9:.1f} GB of memory"
        raise fail("E429", f"{message}; {free / 1e9:.1f} GB are free", help="use a smaller -e")
