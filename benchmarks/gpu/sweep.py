"""Bodies of k sources by several thread blocks, and all sizes: some programs with every transport
and dtype, launched in every way there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.gpu import cases
from benchmarks.gpu.cases import OP, GpuCase, GpuSettings
from benchmarks.gpu.data import counted, memory, same
from benchmarks.gpu.measured_machine import KernelKind, MeasuredKernel, MeasuredMachine, build_all
from benchmarks.gpu.results import BodyPoint, GpuResults, LibraryPoint, Point, ShortPoint
from benchmarks.gpu.timing import Budget, race, summary
from hccc.base.diagnostics import UserError
from hccc.runtime.measure import perf
from hccc.runtime.request import LaunchRequest

Kernels = dict[KernelKind, MeasuredKernel]


class Sweep:
    """Measures at all sizes.

    guard: is called with what could not be done; going_on: says whether to begin another piece of
    work.
    """

    def __init__(
        self,
        machine: MeasuredMachine,
        settings: GpuSettings,
        results: GpuResults,
        place: Path,
        guard: Callable[[str, UserError], None],
        going_on: Callable[[Budget, str], bool],
    ) -> None:
        self.machine, self.settings, self.results = machine, settings, results
        self.place = place
        self.guard, self.going_on = guard, going_on

    def run(self, budget: Budget, found: Sequence[GpuCase]) -> None:
        """Measures plans at all sizes, one after the other, then the libraries."""
        made = [
            (case, dtype, self._kernels(case, dtype)) for case in found for dtype in cases.DTYPES
        ]
        build_all(
            [(k, LaunchRequest(0, dtype, OP)) for _, dtype, arms in made for k in arms.values()]
        )
        while made:
            case, dtype, kernels = made.pop(0)  # and its memory is free after its turn
            for size in self.settings.swept:
                what = f"{case.name}, {case.transport}, {dtype}, {size:,} bytes"
                if not self.going_on(budget, what):
                    return
                try:
                    with budget.piece():
                        self._point(case, dtype, kernels, size)
                except UserError as error:
                    self.guard(what, error)
        self.libraries(budget)

    def _kernels(self, case: GpuCase, dtype: str) -> Kernels:
        kinds, place = self.machine.kinds, self.place
        return {
            kind: self.machine.kernel(case.plan, place / case.folder("sizes", dtype, kind), kind)
            for kind in kinds
        }

    def short(self, budget: Budget, found: Sequence[GpuCase]) -> None:
        """Measures short calls of all plans, in turns."""
        kinds, place = self.machine.kinds, self.place
        kind = KernelKind.SYSTEM if KernelKind.SYSTEM in kinds else KernelKind.GENERATED
        made = {
            dtype: [
                (
                    case,
                    self.machine.kernel(
                        case.plan, place / case.folder("packets", dtype, kind), kind
                    ),
                )
                for case in found
            ]
            for dtype in cases.DTYPES
        }
        build_all(
            [(k, LaunchRequest(0, dtype, OP)) for dtype, arms in made.items() for _, k in arms]
        )
        for dtype, arms in made.items():
            for size in self.settings.short:
                what = f"short calls, {dtype}, {size:,} bytes"
                if not arms or not self.going_on(budget, what):
                    return
                try:
                    with budget.piece():
                        self._short(arms, dtype, size)
                except UserError as error:
                    self.guard(what, error)

    def _short(self, arms: Sequence[tuple[GpuCase, MeasuredKernel]], dtype: str, size: int) -> None:
        """Measures one size, and one element less in place for its result."""
        count, xp = size // cases.DTYPES[dtype], self.machine.numpy
        right, runs = True, []
        for case, kernel in arms:
            for n, in_place in ((max(1, count - 1), True), (count, False)):
                request = LaunchRequest(n, dtype, OP, in_place, timeout=5.0, join_timeout=5.0)
                inputs, apart, wanted = counted(self.machine, case.plan.n_ranks, n, dtype)
                outputs = inputs if in_place else apart
                kernel.burst(inputs, outputs, request, 1)
                right &= all(bool(xp.array_equal(one, wanted)) for one in outputs)
            runs.append(partial(kernel.burst, inputs, outputs, request))
        samples = race(runs, self.settings.launches, self.settings.burst)
        names = [f"{case.name}, {case.fuse}".removeprefix("short, ") for case, _ in arms]
        point = ShortPoint(dtype, size, dict(zip(names, samples, strict=True)), right)
        self.results.short.append(point)
        said = ", ".join(f"{name} {sample.median:.2f} µs" for name, sample in point.times.items())
        print(f"short calls, {dtype}, {size:,} bytes: {said}{'' if right else ', WRONG'}")

    def bodies(self, budget: Budget, found: Sequence[GpuCase]) -> None:
        """Measures plans of a primitive for each rank."""
        kind, place = KernelKind.GENERATED, self.place
        made = [
            (
                case,
                dtype,
                self.machine.kernel(case.plan, place / case.folder("bodies", dtype, kind), kind),
            )
            for case in found
            for dtype in cases.DTYPES
        ]
        build_all([(kernel, LaunchRequest(0, dtype, OP)) for _, dtype, kernel in made])
        for case, dtype, kernel in made:
            what = f"{case.name}, {dtype}, {case.fuse}"
            if not self.going_on(budget, what):
                return
            try:
                with budget.piece():
                    self._body(case, dtype, kernel)
            except UserError as error:
                self.guard(what, error)

    def _body(self, case: GpuCase, dtype: str, kernel: MeasuredKernel) -> None:
        """Measures one plan: what its thread blocks read and write in a µs."""
        plan, size = case.plan, self.settings.body
        count = perf.count_of(plan.collective, size, cases.DTYPES[dtype])
        inputs, outputs = memory(self.machine, plan, count, dtype, 1)
        request = LaunchRequest(count, dtype, OP, timeout=5.0)
        (time,) = race(
            [partial(kernel.burst, inputs, outputs, request)],
            self.settings.launches,
            self.settings.burst,
        )
        issued = cases.issued_bytes(plan, count, cases.DTYPES[dtype])
        self.results.bodies.append(
            BodyPoint(case.name, dtype, cases.grid_blocks(plan), size, time, issued)
        )
        print(f"{case.name}, {dtype}, {cases.grid_blocks(plan)} blocks: {time.median:.1f} µs")

    def _point(self, case: GpuCase, dtype: str, kernels: Kernels, size: int) -> None:
        """Measures one plan at one size, launched in all ways, in turns."""
        plan = case.plan
        count = perf.count_of(plan.collective, size, cases.DTYPES[dtype])
        if not count:
            return
        inputs, *outputs = memory(self.machine, plan, count, dtype, len(kernels))
        request = LaunchRequest(count, dtype, OP, timeout=5.0)
        pairs = list(zip(kernels.values(), outputs, strict=True))
        arms = [partial(kernel.burst, inputs, out, request) for kernel, out in pairs]
        samples = race(arms, self.settings.launches, self.settings.burst)
        times = {kind.value: sample for kind, sample in zip(kernels, samples, strict=True)}
        launched = kernels.get(KernelKind.LAUNCHER)
        point = Point(
            name=case.name,
            transport=case.transport,
            dtype=dtype,
            thread_blocks=cases.grid_blocks(plan) // plan.channels,
            channels=plan.channels,
            size=size,
            times=times,
            host_us=getattr(launched, "host_us", 0.0) if launched else 0.0,
            same=all(same(self.machine, dtype, out, outputs[0]) for out in outputs),
        )
        self.results.points.append(point)
        said = ", ".join(f"{kind} {sample.median:.1f} µs" for kind, sample in times.items())
        differ = "" if point.same else ", RESULTS DIFFER"
        print(f"{case.name}, {case.transport}, {dtype}, {size:,} bytes: {said}{differ}")

    def libraries(self, budget: Budget) -> None:
        """Measures NCCL at the same sizes, where it is found."""
        made = self.machine.library()
        if made is None:
            self.results.notes.append("NCCL was not found")
            return
        for dtype in cases.DTYPES:
            for size in self.settings.swept:
                if not self.going_on(budget, f"{made.name}, {dtype}, {size:,} bytes"):
                    return
                with budget.piece():
                    made.burst(size, dtype, 2)
                    taken = made.burst(size, dtype, self.settings.launches)
                    self.results.libraries.append(
                        LibraryPoint(made.name, dtype, size, summary(taken))
                    )
