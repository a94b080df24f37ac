"""What run.py does: checks, copies, all sizes, and generated against interpreted kernels."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu import carried, cases, communicators, estimate, two_ranks
from benchmarks.gpu.cases import DTYPE, OP, GpuCase, GpuCases, GpuSettings
from benchmarks.gpu.constants import ConstantTimes
from benchmarks.gpu.data import UNWRITTEN, memory, same
from benchmarks.gpu.measured_machine import (
    GpuMachine,
    HostMachine,
    KernelKind,
    MeasuredKernel,
    MeasuredMachine,
    build_all,
)
from benchmarks.gpu.paths import ROOT
from benchmarks.gpu.results import Cell, Check, ClientTest, CopyPoint, GpuResults
from benchmarks.gpu.sweep import Sweep
from benchmarks.gpu.timing import GRACE, Budget, race, summary, watchdog
from hccc.base.diagnostics import UserError
from hccc.ir.plan import Plan
from hccc.runtime.fault import LaunchError
from hccc.runtime.measure import perf
from hccc.runtime.measure.perf import SizeSchedule
from hccc.runtime.request import LaunchRequest

RESULTS = Path(__file__).parent / "results"
DRY = ROOT / "build" / "gpu-dry-run"
TIMEOUT_S = 5.0  # of one wait inside a kernel
BUDGET_S = 480.0
NO_GPU = 2  # exit status
FAULTS = 2  # after so many lost launches the device is not worth more time


class GpuBench:
    """One run: the machine, what to measure, and the results.

    place: where kernels are built, or were before; found: the plans.
    """

    def __init__(
        self,
        machine: MeasuredMachine,
        settings: GpuSettings,
        found: GpuCases,
        place: Path,
        out: Path,
        words: Sequence[str],
    ) -> None:
        self.machine, self.settings, self.place, self.out = machine, settings, place, out
        self.found = found
        self.results = GpuResults(
            date=datetime.now().astimezone().isoformat(timespec="seconds"),
            command=shlex.join(["python", "-m", "benchmarks.gpu.run", *words]),
            facts=machine.facts(),
        )
        self.faults = 0

    def save(self) -> None:
        """Writes the results so far."""
        for path in self.results.save(self.out):
            print(f"wrote {path}")

    def guard(self, what: str, error: UserError) -> None:
        """Notes what could not be done; a lost launch counts."""
        self.faults += isinstance(error, LaunchError)
        text = f"{what}: {error.problem.message}"
        print(text)
        self.results.notes.append(text)

    def going_on(self, budget: Budget, what: str) -> bool:
        """Returns whether there is time, and a device, for more."""
        if self.faults >= FAULTS:
            return False
        if not budget.allows():
            self.results.notes.append(f"no time was left for {what}")
            return False
        return True

    # Copies

    def copies(self) -> None:
        """Times plain copies of a buffer of every size."""
        for size in self.settings.sizes:
            self.machine.copies(size, 2)
            time = summary(self.machine.copies(size, max(20, self.settings.launches)))
            bandwidth = 2 * size / time.median * 1e-3
            self.results.copies.append(CopyPoint(size, time, bandwidth))
            print(f"copy of {size:,} bytes: {time.median:.1f} µs, {bandwidth:.0f} GB/s")

    # Examples

    def check_examples(self, budget: Budget) -> None:
        """Compares every example's result on the device with the CPU's bits."""
        reference: MeasuredMachine = HostMachine()
        made: list[tuple[str, str, Plan, MeasuredKernel, MeasuredKernel]] = []
        for name, plan in self.found.checks:
            if plan is None:
                note = f"its blocks do not fit into {self.machine.capacity}"
                self.results.checks.append(Check(name, (), None, note))
                continue
            for dtype in cases.check_dtypes(name):
                folder = self.place / cases.check_folder(name, dtype)
                kernel = self.machine.kernel(plan, folder / "device", KernelKind.GENERATED)
                host = reference.kernel(plan, folder / "host", KernelKind.GENERATED)
                made.append((name, dtype, plan, kernel, host))
        build_all([(k, LaunchRequest(0, dtype, OP)) for _, dtype, _, *pair in made for k in pair])
        for name, dtype, plan, kernel, host in made:
            what = name if dtype == DTYPE else f"{name}, {dtype}"
            if not self.going_on(budget, f"checking {what}"):
                break
            with budget.piece():
                self._check(what, dtype, plan, kernel, host)

    def _check(
        self, name: str, dtype: str, plan: Plan, kernel: MeasuredKernel, host: MeasuredKernel
    ) -> None:
        sizes = self.settings.check_sizes
        schedule = SizeSchedule(sizes[0], sizes[-1], None, 1, 1, 0, True, plan.modes)
        binds = [self.machine.bind(kernel, dtype, OP)]
        if not isinstance(self.machine, HostMachine):
            binds.append(HostMachine().bind(host, dtype, OP))
        try:
            wrong = sum(
                perf.measure(plan.collective, dtype, OP, size, schedule, *binds).wrong
                for size in sizes
            )
        except UserError as error:
            self.guard(name, error)
            self.results.checks.append(Check(name, sizes, None, error.problem.message))
            return
        print(f"{name}: {wrong} wrong elements")
        self.results.checks.append(Check(name, sizes, wrong))

    # Constants

    def constants(self, budget: Budget) -> None:
        """Measures the times of which estimates are made."""
        machine, what = self.machine, "constants"
        if not isinstance(machine, GpuMachine) or machine.device.hip:
            self.results.notes.append(f"{what}: they are those of NVIDIA's GPUs")
            return
        if not self.going_on(budget, what):
            return
        try:
            for found in ConstantTimes(machine, self.place).all():
                print(f"{found.what}: {found.time.median:.3f} µs")
                self.results.constants.append(found)
        except Exception as error:  # of CuPy, the compiler or the driver: other parts go on
            self.results.notes.append(f"{what}: {error}")

    # Communicators

    def communicators(self, budget: Budget) -> None:
        """Runs two ranks on the device, as processes and as threads."""
        what = "ranks of a communicator"
        if KernelKind.LAUNCHER not in self.machine.kinds or isinstance(self.machine, HostMachine):
            self.results.notes.append(f"{what}: no nvcc, so nothing was built for them")
            return
        if not self.going_on(budget, what):
            return
        with budget.piece():
            try:
                file = two_ranks.built(self.machine, self.place / "communicators")
                self.results.shared = communicators.all_of(
                    two_ranks.platform_of(self.machine),
                    file,
                    self.settings.shared_small,
                    self.settings.shared,
                    self.settings.launches,
                )
            except (UserError, OSError) as error:
                self.results.notes.append(f"{what}: {error}")
        for row in self.results.shared:
            wrong = "" if row.right else ", WRONG"
            print(f"{row.ranks}, {row.size:,} bytes: {row.time:.1f} µs{wrong}")

    # Clients

    def clients(self, budget: Budget) -> None:
        """Runs the tests of clients: PyTorch, programs of NCCL's, commands. What they print goes to
        `clients.txt` beside the results."""
        if not isinstance(self.machine, GpuMachine) or not self.going_on(budget, "clients"):
            return
        words = ["-m", "pytest", "-m", "slow", "-rA", "-q", "-p", "no:cacheprovider"]
        searched = os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path])
        file = self.out / "clients.txt"
        with file.open("w", encoding="utf-8") as to:
            for tests in sorted(Path(ROOT, "tests", "gpu").glob("test_*.py")):
                try:  # each by itself: a file that is not done takes no other's output along
                    subprocess.run(
                        [sys.executable, *words, str(tests)],
                        cwd=ROOT,
                        env={**os.environ, "PYTHONPATH": searched},
                        stdout=to,
                        stderr=subprocess.STDOUT,
                        timeout=budget.left(),
                    )
                except subprocess.TimeoutExpired:
                    self.results.notes.append(f"clients: {tests.name} was not done in time")
        for line in file.read_text(encoding="utf-8").splitlines():
            word, _, rest = line.partition(" ")
            if word in ("PASSED", "FAILED", "ERROR"):
                self.results.clients.append(ClientTest(rest.partition(" - ")[0], word == "PASSED"))
                print(line[:200])

    # Times

    def packets(self, budget: Budget) -> None:
        """Times short calls by packets and by counters, and checks their results."""
        self._sweep().short(budget, self.found.short)

    def bodies(self, budget: Budget) -> None:
        """Times primitives of several sources, by several numbers of thread blocks."""
        self._sweep().bodies(budget, self.found.bodies)

    def sweep(self, budget: Budget) -> None:
        """Measures all sizes, transports, dtypes and ways to launch, and the library."""
        self._sweep().run(budget, self.found.swept)

    def _sweep(self) -> Sweep:
        return Sweep(
            self.machine, self.settings, self.results, self.place, self.guard, self.going_on
        )

    def time_all(self, budget: Budget) -> None:
        """Times every plan, smallest size first."""
        large = self.found.large
        self.results.notes += [f"{name}: its thread blocks do not fit" for name in large]
        made = [(case, self._kernels(case)) for case in self.found.timed]
        build_all([(k, LaunchRequest(0, DTYPE, OP)) for _, pair in made for k in pair])
        for size in self.settings.sizes:
            for case, pair in made:
                if self.going_on(budget, f"{case.name}, fuse {case.fuse}, {size:,} bytes"):
                    self._case(budget, case, pair, size)
                    self.results.save(self.out)

        for case, pair in made:
            for kernel, kind in zip(pair, ("generated", "interpreted"), strict=True):
                if self._timed(case) and (takes := kernel.resources(LaunchRequest(0, DTYPE, OP))):
                    self.results.notes.append(f"{case.name}, fuse {case.fuse}, {kind}: {takes}")

    def _timed(self, case: GpuCase) -> bool:
        """Returns whether any launch of the case's kernels came back."""
        return any((c.name, c.fuse) == (case.name, case.fuse) for c in self.results.cells)

    def _kernels(self, case: GpuCase) -> tuple[MeasuredKernel, MeasuredKernel]:
        generated, interpreted = (
            self.machine.kernel(
                case.plan, self.place / case.folder("interpreter", DTYPE, kind), kind
            )
            for kind in (KernelKind.GENERATED, KernelKind.INTERPRETED)
        )
        return generated, interpreted

    def _case(
        self, budget: Budget, case: GpuCase, pair: tuple[MeasuredKernel, MeasuredKernel], size: int
    ) -> None:
        """Times one plan at one size: all micro-batches and windows."""
        count = perf.count_of(case.plan.collective, size, np.dtype(DTYPE).itemsize)
        buffers = memory(self.machine, case.plan, count, DTYPE, 2)
        sizes = cases.micro_batches(case.plan, count, 4, self.settings.micro_batches)
        # Large micro-batches first: they need the fewest waits.
        for micro_batch in reversed(sizes):
            for window in self.settings.windows:
                what = f"{case.name}, fuse {case.fuse}, {micro_batch:,} bytes, window {window}"
                if not self.going_on(budget, what):
                    return
                request = LaunchRequest(count, DTYPE, OP, False, micro_batch, window, TIMEOUT_S)
                try:
                    with budget.piece():
                        self._cell(case, pair, buffers, size, request)
                except UserError as error:
                    self.guard(what, error)

    def _cell(
        self,
        case: GpuCase,
        pair: tuple[MeasuredKernel, MeasuredKernel],
        buffers: list[list[Any]],
        size: int,
        request: LaunchRequest,
    ) -> None:
        """Times both kernels in one cell of the table."""
        inputs, *outputs = buffers
        for buffer in [*outputs[0], *outputs[1]]:
            buffer.fill(UNWRITTEN)
        arms = [
            partial(kernel.burst, inputs, out, request)
            for kernel, out in zip(pair, outputs, strict=True)
        ]
        generated, interpreted = race(arms, self.settings.launches, self.settings.burst)
        plan = case.plan
        cell = Cell(
            name=case.name,
            fuse=case.fuse,
            thread_blocks=cases.grid_blocks(plan) // plan.channels,
            channels=plan.channels,
            size=size,
            micro_batch=request.micro_batch,
            window=request.window,
            generated=generated,
            interpreted=interpreted,
            issued=cases.issued_bytes(plan, request.count, request.itemsize),
            floor=cases.floor_bytes(plan, request.count, request.itemsize),
            same=same(self.machine, DTYPE, *outputs),
        )
        self.results.cells.append(cell)
        print(
            f"{case.name}, fuse {case.fuse}, {size:,} bytes, micro-batch {request.micro_batch:,}, "
            f"window {request.window or 'all'}: generated {generated.median:.1f} µs, interpreted "
            f"{interpreted.median:.1f} µs{'' if cell.same else ', RESULTS DIFFER'}"
        )


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes, micro-batches, launches")
    parser.add_argument(
        "--out", type=Path, help=f"default $OUT, {RESULTS}, or {DRY} with --device cpu"
    )
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds; default 480")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try it")
    parser.add_argument("--dry-run", action="store_true", help="only say how long it would take")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=[*cases.SHARES],
        default=cases.PARTS,
        help="default: all but clients",
    )
    args = parser.parse_args(words)
    collected = Path(os.environ["OUT"]) if os.environ.get("OUT") else RESULTS
    args.out = args.out or (collected if args.device == "cuda" else DRY)
    if not any(args.only in name for name in cases.names()):
        parser.error(f"--only {args.only}: no program has that in its name")
    return args


def _machine(device: str) -> MeasuredMachine:
    return GpuMachine() if device == "cuda" else HostMachine()


def _cases(
    machine: MeasuredMachine, settings: GpuSettings, args: argparse.Namespace, made_here: Path
) -> tuple[GpuCases, Path, list[str]]:
    """Returns the plans that are carried along and their place, or else compiles them, and says
    why."""
    if isinstance(machine, GpuMachine):
        device = machine.device
        state = carried.state() if carried.MADE.is_dir() else ""
        wanted = carried.Manifest(state, device.arch, device.units, args.quick, args.only)
        found = carried.load(wanted, carried.MADE)
        if isinstance(found, GpuCases):
            machine.kinds = tuple(KernelKind)  # with the C launcher, which needs no nvcc then
            return found, carried.MADE, []
        print(f"benchmarks/gpu: {found}: compiling here", file=sys.stderr)
        notes = [f"{found}: plans and kernels were compiled on the machine"]
    else:
        notes = []
    return cases.all_of(machine.capacity, settings, args.only), made_here, notes


def main(words: Sequence[str]) -> int:
    """Returns 1 when a result was wrong or a launch was lost, 2 where there is no GPU."""
    args = _arguments(words)
    if args.dry_run:
        return estimate.say(args.quick, args.only, args.budget, args.parts)
    budget = Budget(args.budget)
    try:
        machine = _machine(args.device)
    except UserError as error:
        print(f"benchmarks/gpu: {error.problem.message}", file=sys.stderr)
        return NO_GPU
    gpu, cpu = (cases.GPU_QUICK, cases.CPU_QUICK) if args.quick else (cases.GPU, cases.CPU)
    settings = gpu if args.device == "cuda" else cpu
    with tempfile.TemporaryDirectory(prefix="hccc-bench-") as made_here:
        found, place, note = _cases(machine, settings, args, Path(made_here))
        bench = GpuBench(machine, settings, found, place, args.out, words)
        bench.results.notes += note
        guard = watchdog(args.budget + GRACE, bench.save)
        bench.copies()
        parts = (
            (bench.check_examples, "correctness"),
            (bench.packets, "packets"),
            (bench.communicators, "communicators"),
            (bench.clients, "clients"),
            (bench.constants, "constants"),
            (bench.bodies, "bodies"),
            (bench.sweep, "sizes"),
            (bench.time_all, "interpreter"),
        )
        for part, name in parts:
            if name not in args.parts:
                continue
            part(budget.within(cases.SHARES[name]))
            bench.results.save(args.out)  # what comes later may never end
        bench.results.facts |= machine.facts()  # clocks just after work, not idle
        guard.cancel()
        bench.save()
    return 1 if bench.results.failures or bench.faults else 0
