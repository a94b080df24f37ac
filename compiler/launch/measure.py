"""bench: `hccc run`: builds a Plan's kernels, runs all ranks in this process, reports.

Joins the compiler (a Plan, or a directory of kernels) and the runtime (builds, launches,
measurement). Rows are printed as they are measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from hccc.cli import report
from hccc.cli.tables import Table
from hccc.diagnostics import fail
from hccc.emit import directory
from hccc.emit.compare import compare_kernels
from hccc.emit.targets import TARGETS, Target
from hccc.inputs import Made, kernels
from hccc.interruptible import interruptible
from hccc.ir.plan import Plan
from hccc.runtime.cpu import CpuCommunicator
from hccc.runtime.cuda import CudaCommunicator
from hccc.runtime.layout import DTYPES, shape_of
from hccc.runtime.measure import perf
from hccc.runtime.measure.perf import Bind, Memory, Schedule
from hccc.runtime.measure.session import DeviceSession, HostSession
from hccc.runtime.request import Request

MOST_SIZES = 10_000  # of one `hccc run`


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of `hccc run`. Sizes in bytes, `timeout` in seconds."""

    minbytes: int
    maxbytes: int
    stepfactor: float
    stepbytes: int | None
    dtypes: tuple[str, ...]
    ops: tuple[str, ...]
    iters: int
    warmup_iters: int
    checks: int
    window: int
    micro_batch: int
    device: str
    workers: int
    timeout: float

    def schedule(self, plan: Plan) -> Schedule:
        """What to measure at each type and reduction."""
        factor = None if self.stepbytes else self.stepfactor
        return Schedule(
            self.minbytes, self.maxbytes, factor, self.stepbytes or 0,
            self.iters, self.warmup_iters, self.checks > 0, plan.modes,
            plan.keeps_input,
        )  # fmt: skip

    def request(self, dtype: str, op: str, count: int, in_place: bool) -> Request:
        """One launch."""
        return Request(
            count, dtype, op, in_place, self.micro_batch, self.window, self.timeout, self.workers
        )


def run(made: Made, wanted: Wanted, as_json: bool) -> int:
    """Measures everything `wanted`; returns how many elements were wrong.

    Raises:
        UserError: the kernels cannot be built or launched, or a launch stood still.
    """
    plan = made.plan
    schedule = wanted.schedule(plan)
    most = plan.largest_window
    if most and not wanted.window:
        wanted = replace(wanted, window=most)
    if most and wanted.window > most:
        message = f"{plan.name} can run with --window 1 to {most} only"
        raise fail("E426", message, help="its queues have no room for more")
    sizes = _bounded(plan, schedule, wanted)
    ops = _operations(plan, wanted)
    variants = [(dtype, op) for dtype in wanted.dtypes for op in ops]
    with _kernels(made, _devices(wanted)) as place:
        with report.progress() as on_phase:
            on_phase("Building kernels")
            binds = [_binder(device, place, plan, wanted, variants) for device in _devices(wanted)]
        table = Table(plan, wanted.device, schedule, as_json)
        measure = interruptible(perf.measure)
        for dtype, op in variants:
            bound = [bind(dtype, op) for bind in binds]
            for size in _sizes(plan, dtype, sizes):
                table.add(measure(plan.collective, dtype, op, size, schedule, *bound))
    table.finish()
    return table.wrong


def _operations(plan: Plan, wanted: Wanted) -> tuple[str, ...]:
    """The reductions to measure: one where nothing is reduced."""
    if not plan.reduces:
        return wanted.ops[:1]
    if "avg" in wanted.ops and not plan.averages:
        message = f"{plan.name} cannot average: a custom collective does not say where sums end"
        raise fail("E453", message, help="-o sum")
    return tuple(wanted.ops)


def _devices(wanted: Wanted) -> list[str]:
    """The device to measure; a GPU's every bit is compared with the CPU's."""
    compare = wanted.device != "cpu" and wanted.checks
    return [wanted.device, "cpu"] if compare else [wanted.device]


def _binder(
    device: str, place: Path, plan: Plan, wanted: Wanted, variants: Sequence[tuple[str, str]]
) -> Callable[[str, str], Bind]:
    """Builds the kernels of `place` for a device; (dtype, reduction) → what binds memory."""
    built = communicator(device, place / f"{plan.name}{_target(device).suffix}", plan)
    if isinstance(built, CpuCommunicator):
        built.build([wanted.request(dtype, op, 0, False) for dtype, op in variants])
    return lambda dtype, op: (
        lambda memory, count, in_place: bound(
            built, wanted.request(dtype, op, count, in_place), memory
        )
    )


def communicator(device: str, source: Path, plan: Plan) -> CpuCommunicator | CudaCommunicator:
    """All ranks of `plan`, whose kernels are `source`, on a device. Raises UserError E425."""
    shape = shape_of(plan)
    if device == "cpu":
        return CpuCommunicator(source, plan.name, shape, plan.collective)
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


def _bounded(plan: Plan, schedule: Schedule, wanted: Wanted) -> list[int]:
    """The sizes to measure. Raises UserError E429 for too large ones, E418 for too many."""
    sizes = list(islice(schedule.sizes(), MOST_SIZES + 1))
    if len(sizes) <= MOST_SIZES:
        _fits(plan, sizes[-1], wanted)
        return sizes
    _fits(plan, schedule.largest, wanted)  # all but: no size is further from it than one step
    option = f"-i {wanted.stepbytes}" if wanted.stepbytes else f"-f {wanted.stepfactor:g}"
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
def _kernels(made: Made, devices: Sequence[str]) -> Iterator[Path]:
    """The directory of kernels given, if they are the plan's, or a temporary one."""
    targets = [_target(device) for device in devices]
    if made.kernels:
        for target in targets:
            compare_kernels(made.kernels, made.plan, target)
        yield made.kernels
        return
    with tempfile.TemporaryDirectory(prefix="hccc-") as temporary:
        place = Path(temporary) / "kernels"
        directory.write(place, kernels(made.plan, targets))
        yield place


def _fits(plan: Plan, size: int, wanted: Wanted) -> None:
    """Refuses a size that would not fit into memory, before anything is allocated."""
    itemsize = min(DTYPES[dtype].itemsize for dtype in wanted.dtypes)
    count = perf.count_of(plan.collective, size, itemsize)
    scratch = shape_of(plan).scratch_bytes(count, itemsize, wanted.micro_batch)
    # Both buffers and the scratch of every rank; while comparing, as much again for a few ranks.
    ranks = plan.n_ranks + 1 + min(plan.n_ranks, psutil.cpu_count() or 1)
    need, free = ranks * (2 * size + scratch), psutil.virtual_memory().available
    if need > free:
        message = f"{size:,} bytes at {plan.n_ranks} ranks need {need / 1e9:.1f} GB of memory"
        raise fail("E429", f"{message}; {free / 1e9:.1f} GB are free", help="use a smaller -e")
