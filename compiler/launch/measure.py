"""measure: builds a Plan's kernels and runs all ranks in this process, checked and timed.

Joins the compiler (a Plan, or a directory of kernels) and the runtime (builds, launches,
measurement). Rows come as they are measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import psutil  # type: ignore[import-untyped]

from hccc.diagnostics import fail
from hccc.driver import Compiled
from hccc.emit import directory
from hccc.emit.compare import compare_kernels
from hccc.emit.targets import TARGETS, Target
from hccc.interruptible import interruptible
from hccc.ir.plan import Plan
from hccc.ir.transport import Transport
from hccc.outputs import kernels
from hccc.runtime.cpu import CpuCommunicator
from hccc.runtime.cuda import CudaCommunicator
from hccc.runtime.layout import DTYPES, shape_of
from hccc.runtime.measure import perf
from hccc.runtime.measure.perf import Bind, Memory, Row, Schedule
from hccc.runtime.measure.session import DeviceSession, HostSession
from hccc.runtime.network import Network, Wire, network_of
from hccc.runtime.request import Request

MOST_SIZES = 10_000  # of one `hccc run`


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
    workers: int = 0
    timeout: float = 30.0
    network: tuple[float, float] | None = None  # GB/s of each NIC, µs

    def __post_init__(self) -> None:
        if self.minbytes > self.maxbytes:
            message = f"-b {self.minbytes:,} is more than -e {self.maxbytes:,}"
            raise fail("E415", message, help="a smaller -b, or a larger -e")

    def schedule(self, plan: Plan) -> Schedule:
        """What to measure at each type and reduction."""
        factor = None if self.stepbytes else self.stepfactor
        return Schedule(
            self.minbytes, self.maxbytes, factor, self.stepbytes or 0,
            self.iters, self.warmup_iters, self.checks > 0, plan.modes,
            plan.keeps_input,
        )  # fmt: skip

    def network_of(self, plan: Plan) -> Network | None:
        """What is between the ranks of `plan`, as asked for, and where it needs one.

        Raises:
            UserError: E436 there can be none.
        """
        if self.network is None:
            return between(plan) if plan.transport is Transport.MIXED and self.cpu else None
        if not self.cpu:
            help = "leave --network out: there, ranks reach each other's memory"
            raise fail("E436", f"--network: all ranks are on one device, {self.device}", help=help)
        found = between(plan, Wire(*self.network))
        if len(set(found.domain)) > 1 and plan.transport is not Transport.DIRECT:
            return found
        crossing = plan.transport is Transport.DIRECT and plan.gpus_per_node < plan.n_ranks
        why = "reads memory of other nodes" if crossing else "has all ranks in one memory domain"
        nodes = "a program with GPUPerNode=..., or --cluster"
        help = "compile with --transport auto" if crossing else nodes
        raise fail("E436", f"--network: {plan.name} {why}", help=help)

    @property
    def cpu(self) -> bool:
        """Whether all ranks run on the CPU."""
        return self.device == "cpu"

    def request(self, dtype: str, op: str, count: int, in_place: bool) -> Request:
        """One launch."""
        return Request(
            count, dtype, op, in_place, self.micro_batch, self.window, self.timeout, self.workers
        )


def measure(
    compiled: Compiled, options: RunOptions, on_phase: Callable[[str], None] = lambda _: None
) -> Iterator[Row]:
    """Builds the kernels; then, as they are asked for, a row for each type, reduction and size.

    Raises:
        UserError: the kernels cannot be built or launched, or a launch stood still.
    """
    plan = compiled.plan
    schedule = options.schedule(plan)
    most = plan.largest_window
    if not options.window:
        options = replace(options, window=plan.default_window)
    if most and options.window > most:
        message = f"{plan.name} can run with --window 1 to {most} only"
        raise fail("E426", message, help="its queues have no room for more")
    network = options.network_of(plan)
    sizes = _bounded(plan, schedule, options)
    ops = _operations(plan, options)
    variants = [(dtype, op) for dtype in options.dtypes for op in ops]
    with ExitStack() as stack:
        place = stack.enter_context(_kernels(compiled, _devices(options)))
        on_phase("Building kernels")
        binds = [
            _binder(
                communicator(device, _source(place, plan, device), plan, network), options, variants
            )
            for device in _devices(options)
        ]
        kept = stack.pop_all()  # until the last row

    def rows() -> Iterator[Row]:
        one_row = interruptible(perf.measure)
        with kept:
            for dtype, op in variants:
                bound = [bind(dtype, op) for bind in binds]
                for size in _sizes(plan, dtype, sizes):
                    yield one_row(plan.collective, dtype, op, size, schedule, *bound)

    return rows()


def _operations(plan: Plan, options: RunOptions) -> tuple[str, ...]:
    """The reductions to measure: one where nothing is reduced."""
    if not plan.reduces:
        return options.ops[:1]
    if "avg" in options.ops and not plan.averages:
        message = f"{plan.name} cannot average: a custom collective does not say where sums end"
        raise fail("E453", message, help="-o sum")
    return tuple(options.ops)


def _devices(options: RunOptions) -> list[str]:
    """The device to measure; a GPU's every bit is compared with the CPU's."""
    compare = options.device != "cpu" and options.checks
    return [options.device, "cpu"] if compare else [options.device]


def _source(place: Path, plan: Plan, device: str) -> Path:
    return place / f"{plan.name}{_target(device).suffix}"


def _binder(
    built: CpuCommunicator | CudaCommunicator,
    options: RunOptions,
    variants: Sequence[tuple[str, str]],
) -> Callable[[str, str], Bind]:
    """Builds the kernels for a device; (dtype, reduction) → what binds memory."""
    if isinstance(built, CpuCommunicator):
        built.build([options.request(dtype, op, 0, False) for dtype, op in variants])
    return lambda dtype, op: (
        lambda memory, count, in_place: bound(
            built, options.request(dtype, op, count, in_place), memory
        )
    )


def between(plan: Plan, wire: Wire | None = None) -> Network:
    """The network between the memory domains of `plan`: its header's NICs, no limits by default."""
    rank = np.arange(plan.n_ranks)
    gpus, nics = plan.gpus_per_node, max(1, plan.nics_per_node)
    nic = rank // gpus * nics + rank % gpus * nics // gpus
    return network_of(plan.memory_domain, nic, wire or Wire())


def communicator(
    device: str, source: Path, plan: Plan, network: Network | None = None
) -> CpuCommunicator | CudaCommunicator:
    """All ranks of `plan`, whose kernels are `source`, on a device. Raises UserError E425."""
    shape = shape_of(plan)
    if device == "cpu":
        return CpuCommunicator(source, plan.name, shape, plan.collective, network=network)
    gpu = CudaCommunicator(source, shape, plan.collective, plan.warps)
    if gpu.device.hip != (device == "hip"):
        found = "ROCm" if gpu.device.hip else "CUDA"
        raise fail("E425", f"--device {device}, but the CuPy installed here is for {found}")
    return gpu


def bound(
    built: CpuCommunicator | CudaCommunicator, request: Request, memory: Sequence[Memory]
) -> HostSession:
    """The ranks' memory, bound to what launches them."""
    if isinstance(built, CudaCommunicator):
        return DeviceSession(built, request, memory, built.device.cupy)
    return HostSession(built, request, memory)


def _bounded(plan: Plan, schedule: Schedule, options: RunOptions) -> list[int]:
    """The sizes to measure. Raises UserError E429 for too large ones, E418 for too many."""
    sizes = list(islice(schedule.sizes(), MOST_SIZES + 1))
    if len(sizes) <= MOST_SIZES:
        _fits(plan, sizes[-1], options)
        return sizes
    _fits(plan, schedule.largest, options)  # all but: no size is further from it than one step
    option = f"-i {options.stepbytes}" if options.stepbytes else f"-f {options.stepfactor:g}"
    help = f"a larger {option[:2]}, or a smaller -e"
    raise fail("E418", f"{option}: more than {MOST_SIZES:,} sizes", help=help)


def _sizes(plan: Plan, dtype: str, sizes: Sequence[int]) -> Iterator[int]:
    """The sizes that differ once they are rounded down to whole elements."""
    counts: set[int] = set()
    for size in sizes:
        count = perf.count_of(plan.collective, size, DTYPES[dtype].itemsize)
        if count not in counts:
            yield size
        counts.add(count)


def _target(device: str) -> Target:
    return next(target for target in TARGETS if target.name == device)


@contextmanager
def _kernels(compiled: Compiled, devices: Sequence[str]) -> Iterator[Path]:
    """The directory of kernels given, if they are the plan's, or a temporary one."""
    targets = [_target(device) for device in devices]
    if compiled.directory:
        for target in targets:
            compare_kernels(compiled.directory, compiled.plan, target)
        yield compiled.directory
        return
    with tempfile.TemporaryDirectory(prefix="hccc-") as temporary:
        place = Path(temporary) / "kernels"
        directory.write(place, kernels(compiled.plan, targets))
        yield place


def _fits(plan: Plan, size: int, options: RunOptions) -> None:
    """Refuses a size that would not fit into memory, before anything is allocated."""
    itemsize = min(DTYPES[dtype].itemsize for dtype in options.dtypes)
    count = perf.count_of(plan.collective, size, itemsize)
    scratch = shape_of(plan).scratch_bytes(count, itemsize, options.micro_batch)
    # Both buffers and the scratch of every rank; while comparing, as much again for a few ranks.
    ranks = plan.n_ranks + 1 + min(plan.n_ranks, psutil.cpu_count() or 1)
    need, free = ranks * (2 * size + scratch), psutil.virtual_memory().available
    if need > free:
        message = f"{size:,} bytes at {plan.n_ranks} ranks need {need / 1e9:.1f} GB of memory"
        raise fail("E429", f"{message}; {free / 1e9:.1f} GB are free", help="use a smaller -e")
