"""bench: `hccc run`: builds a Plan's kernels, runs all ranks in this process, reports.

Joins the compiler (a Plan, or a directory of kernels) and the runtime (builds, launches,
measurement). Rows are printed as they are measured.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from hccc import report
from hccc.diagnostics import fail
from hccc.emit import directory
from hccc.emit.targets import TARGETS, Target
from hccc.ir import plan_json
from hccc.ir.plan import Plan
from hccc.road import Made
from hccc.runtime import perf
from hccc.runtime.cpu import CpuCommunicator
from hccc.runtime.layout import DTYPES, Shape, shape_of
from hccc.runtime.perf import Bind, Memory, Schedule
from hccc.runtime.request import Request
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

    def schedule(self, modes: tuple[bool, ...]) -> Schedule:
        """What to measure at each type and reduction."""
        factor = None if self.stepbytes else self.stepfactor
        return Schedule(
            self.minbytes, self.maxbytes, factor, self.stepbytes or 0,
            self.iters, self.warmup_iters, self.checks > 0, modes,
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
    schedule = wanted.schedule(plan.modes)
    if plan.max_window and not 1 <= wanted.window <= plan.max_window:
        message = f"{plan.name} can run with --window 1 to {plan.max_window} only"
        raise fail("E426", message, help="its queues have no room for more")
    ops = wanted.ops if plan.collective.reduces else wanted.ops[:1]
    with _kernels(made, wanted.device) as (source, shape):
        communicator = CpuCommunicator(source, plan.name, shape, plan.collective)
        requests = [wanted.request(d, op, 0, False) for d in wanted.dtypes for op in ops]
        with report.progress() as on_phase:
            on_phase(f"Building {len(requests)} variants of {source.name}")
            communicator.build(requests)

        def bind(dtype: str, op: str) -> Bind:
            return lambda memory, count, in_place: _CpuSession(
                communicator, wanted.request(dtype, op, count, in_place), memory
            )

        table = Table(plan, wanted.device, schedule, as_json)
        for dtype in wanted.dtypes:
            for op in ops:
                for size in _sizes(plan, dtype, schedule):
                    _fits(plan, shape, size, wanted)
                    row = perf.measure(plan.collective, dtype, op, size, schedule, bind(dtype, op))
                    table.add(row)
    table.finish()
    return table.wrong


def _sizes(plan: Plan, dtype: str, schedule: Schedule) -> Iterator[int]:
    """The sizes that differ once they are rounded down to whole elements."""
    counts: set[int] = set()
    for size in schedule.sizes():
        count = perf.count_of(plan.collective, size, DTYPES[dtype].itemsize)
        if count not in counts:
            yield size
        counts.add(count)


@contextmanager
def _kernels(made: Made, device: str) -> Iterator[tuple[Path, Shape]]:
    """The source for `device`: in the directory given, or written to a temporary one."""
    target = next(target for target in TARGETS if target.name == device)
    name = f"{made.plan.name}{target.suffix}"
    shape = shape_of(made.plan)
    if made.kernels:
        _belongs(made.kernels / name, shape, target)
        yield made.kernels / name, shape
        return
    with tempfile.TemporaryDirectory(prefix="hccc-") as place:
        text = plan_json.dumps(made.plan)
        directory.write(Path(place) / "kernels", directory.files(made.plan, [target], text))
        yield Path(place) / "kernels" / name, shape


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


def _fits(plan: Plan, shape: Shape, size: int, wanted: Wanted) -> None:
    """Refuses sizes that would not fit into memory, before anything is allocated."""
    itemsize = max(DTYPES[dtype].itemsize for dtype in wanted.dtypes)
    count = perf.count_of(plan.collective, size, itemsize)
    scratch = shape.scratch_bytes(count, itemsize, wanted.micro_batch)
    # Both buffers and the scratch of every rank; while comparing, as much again for a few ranks.
    ranks = plan.n_ranks + 1 + min(plan.n_ranks, psutil.cpu_count() or 1)
    need, free = ranks * (2 * size + scratch), psutil.virtual_memory().available
    if need > free:
        message = f"{size:,} bytes at {plan.n_ranks} ranks need {need / 1e9:.1f} GB of memory"
        raise fail("E429", f"{message}; {free / 1e9:.1f} GB are free", help="use a smaller -e")


@dataclass(frozen=True, slots=True, eq=False)
class _CpuSession:
    """Host memory bound to a communicator."""

    communicator: CpuCommunicator
    request: Request
    memory: Sequence[Memory]

    def put(self) -> None:
        """The ranks' memory is the host's."""

    def get(self) -> None:
        """The ranks' memory is the host's."""

    def run(self, launches: int) -> float:
        """Launches one after the other; the time inside them."""
        sends = [m.send if m.sends else None for m in self.memory]
        receives = [m.receive if m.receives else None for m in self.memory]
        launch = self.communicator.launch
        return sum(launch(sends, receives, self.request) for _ in range(launches))
