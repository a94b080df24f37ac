"""bench: `hccc run`: builds a Plan's kernels, runs all ranks in this process, reports.

Joins the compiler (a Plan, or a directory of kernels) and the runtime (builds, launches,
measurement). Rows are printed as they are measured.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from hccc import report
from hccc.diagnostics import fail
from hccc.emit import directory
from hccc.emit.targets import TARGETS, Target
from hccc.ir.plan import Plan
from hccc.road import Made, kernels
from hccc.runtime import perf
from hccc.runtime.cpu import CpuCommunicator
from hccc.runtime.cuda import CudaCommunicator
from hccc.runtime.layout import DTYPES, Shape, shape_of
from hccc.runtime.perf import Bind, Memory, Schedule
from hccc.runtime.request import Request
from hccc.runtime.session import DeviceSession, HostSession
from hccc.table import Table

_SHAPE = {
    "ranks": "RANKS", "sub": "SUB", "lanes": "LANES", "blocks": "BLOCKS", "flags": "FLAGS",
    "scratch": "SCRATCH", "stage": "STAGE", "queues": "QUEUES", "slots": "SLOTS",
}  # fmt: skip


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
    if plan.max_window and not wanted.window:
        wanted = replace(wanted, window=plan.max_window)
    if plan.max_window and wanted.window > plan.max_window:
        message = f"{plan.name} can run with --window 1 to {plan.max_window} only"
        raise fail("E426", message, help="its queues have no room for more")
    _fits(plan, max(schedule.sizes()), wanted)
    ops = wanted.ops if plan.collective.reduces else wanted.ops[:1]
    variants = [(dtype, op) for dtype in wanted.dtypes for op in ops]
    with _kernels(made, wanted.device) as place:
        with report.progress() as on_phase:
            on_phase("Building kernels")
            binds = [_binder(device, place, plan, wanted, variants) for device in _devices(wanted)]
        table = Table(plan, wanted.device, schedule, as_json)
        for dtype, op in variants:
            bound = [bind(dtype, op) for bind in binds]
            for size in _sizes(plan, dtype, schedule):
                table.add(perf.measure(plan.collective, dtype, op, size, schedule, *bound))
    table.finish()
    return table.wrong


def _devices(wanted: Wanted) -> list[str]:
    """The device to measure; a GPU's every bit is compared with the CPU's."""
    compare = wanted.device != "cpu" and wanted.checks
    return [wanted.device, "cpu"] if compare else [wanted.device]


def _binder(
    device: str, place: Path, plan: Plan, wanted: Wanted, variants: Sequence[tuple[str, str]]
) -> Callable[[str, str], Bind]:
    """Builds the kernels of `place` for a device; (dtype, reduction) → what binds memory."""
    built = communicator(device, _source(place, plan, device), plan)
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


def _sizes(plan: Plan, dtype: str, schedule: Schedule) -> Iterator[int]:
    """The sizes that differ once they are rounded down to whole elements."""
    counts: set[int] = set()
    for size in schedule.sizes():
        count = perf.count_of(plan.collective, size, DTYPES[dtype].itemsize)
        if count not in counts:
            yield size
        counts.add(count)


@contextmanager
def _kernels(made: Made, device: str) -> Iterator[Path]:
    """The directory of kernels given, or a temporary one."""
    if made.kernels:
        yield made.kernels
        return
    targets = [target for target in TARGETS if target.name in (device, "cpu")]
    with tempfile.TemporaryDirectory(prefix="hccc-") as temporary:
        place = Path(temporary) / "kernels"
        directory.write(place, kernels(made.plan, targets))
        yield place


def _source(place: Path, plan: Plan, device: str) -> Path:
    """The translation unit for a device, if it is `plan`'s."""
    target = next(target for target in TARGETS if target.name == device)
    source = place / f"{plan.name}{target.suffix}"
    _belongs(source, shape_of(plan), target)
    return source


def _belongs(source: Path, shape: Shape, target: Target) -> None:
    """Refuses sources of another plan: their buffers would not be those allocated here."""
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        help = f"compile with --target {target.name} too"
        message = f"{source.parent}: no kernels for {target.title}"
        raise fail("E427", message, help=help) from None
    found = dict(re.findall(r"^#define HCCC_(\w+) (\d+)$", text, re.M | re.A))
    for field, constant in _SHAPE.items():
        if found.get(constant) != str(getattr(shape, field)):
            message = f"{source} was not made from the {directory.PLAN} beside it"
            raise fail("E428", message, help="compile the program again")


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
