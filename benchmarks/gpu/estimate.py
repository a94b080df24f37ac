"""How long a run on a GPU will take, part by part, before there is one: `run.py --dry-run`.

Rough, and meant to be too long rather than too short: a machine like an H200 with 16 cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.gpu import carried, cases, constants
from benchmarks.gpu.cases import GpuCase, GpuCases, GpuSettings
from benchmarks.gpu.measured_machine import KernelKind
from hccc.runtime.measure import perf

ARCH, UNITS, CORES, KINDS = "sm_90", 132, 16, len(KernelKind)
BUILD_S = 16.0  # of one translation unit, on one core
HOST_BUILD_S = 12.0
CHECK_S = 0.5  # of one example at one size: patterns, copies to the GPU, comparing
BANDWIDTH = 1.5e12  # bytes a second, read and written
LAUNCH_S = 150e-6  # of one small launch with its event
BURST_S = 1.5e-3  # before each burst: the long copy, tables
LOAD_S = 0.1  # of a kernel that is carried along
SHARED_S = 8.0  # of two processes that start, meet and take turns on the GPU
KINDS_OF_HANDLES = ("legacy", "descriptor", "fabric")
CLIENTS_S = 220.0  # of which most is nvcc's
CONSTANTS_S = 10.0
START_S = 20.0  # Python, CuPy's context, plans that are carried along
COMPILE_S = 50.0  # more where plans are compiled there: loops, for the first time
SPARE = 7 / 8  # of the budget may be planned


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a run, its seconds, and at most how many it gets: then it ends unfinished."""

    what: str
    seconds: float
    most: float = float("inf")
    part: str = ""  # one of cases.SHARES

    @property
    def taken(self) -> float:
        """Returns the seconds that it takes of the run."""
        return min(self.seconds, self.most)


def _launches(settings: GpuSettings, arms: int) -> tuple[int, int]:
    """Returns how many launches and bursts a race is, with its warm-up."""
    bursts = -(-settings.launches // settings.burst)
    return arms * (2 + bursts * settings.burst), arms * (1 + bursts)


def _race(case: GpuCase, settings: GpuSettings, size: int, itemsize: int, arms: int) -> float:
    """Returns the seconds of one race of `arms` kernels."""
    launches, bursts = _launches(settings, arms)
    count = perf.count_of(case.plan.collective, size, itemsize)
    kernel = cases.issued_bytes(case.plan, count, itemsize) / BANDWIDTH
    prepared = 8 * (1 + arms) * 6 * size / BANDWIDTH  # inputs, outputs and their comparison
    return launches * (LAUNCH_S + kernel) + bursts * BURST_S + prepared


def _of_sizes(
    found: Sequence[GpuCase], settings: GpuSettings, sizes: Sequence[int], arms: int
) -> float:
    """Returns the seconds of each plan in each dtype at each size."""
    widths = cases.DTYPES.values()
    races = sum(_race(c, settings, s, w, arms) for c in found for w in widths for s in sizes)
    return races + len(found) * len(widths) * arms * LOAD_S


def pieces(settings: GpuSettings, found: GpuCases, *, built: bool) -> Iterator[Piece]:
    """Yields the parts of a run. built: whether plans and kernels are carried along."""
    yield Piece("starting", START_S)
    checks = [d for name, plan in found.checks if plan for d in cases.check_dtypes(name)]
    if not built:
        kernels = [k for k in carried.kernels(found) if k.kind]
        yield Piece("compiling programs to plans", COMPILE_S)
        yield Piece(f"building {len(kernels)} kernels", len(kernels) * BUILD_S / CORES)
        host = len(checks) * HOST_BUILD_S / CORES
        yield Piece(f"building {len(checks)} kernels for the CPU", host)
    each = 2 * len(settings.check_sizes) * CHECK_S + LOAD_S
    grid = sum(
        _race(case, settings, size, 4, 2)
        * len(cases.micro_batches(case.plan, size // 4, 4, settings.micro_batches))
        * len(settings.windows)
        for case in found.timed
        for size in settings.sizes
    )
    short = _of_sizes(found.short, settings, settings.short, 1)
    bodies = _of_sizes(found.bodies, settings, (settings.body,), 1)
    sweep = _of_sizes(found.swept, settings, settings.swept, KINDS)
    n = len(settings.swept)
    parts = {
        "correctness": (f"{len(checks)} programs", len(checks) * each),
        "packets": (f"{len(found.short)} plans of short calls", short),
        "communicators": (
            "two ranks, as processes and as threads",
            SHARED_S * (len(KINDS_OF_HANDLES) + 2),
        ),
        "clients": ("PyTorch, NCCL's programs, commands", CLIENTS_S),
        "constants": (f"{len(constants.KINDS)} kinds, and launches", CONSTANTS_S),
        "bodies": (f"{len(found.bodies)} plans of a primitive a rank", bodies),
        "sizes": (f"{len(found.swept)} plans at {n} sizes, and NCCL", sweep),
        "interpreter": (f"{len(found.timed)} plans in every micro-batch and window", grid),
    }
    for name, (what, seconds) in parts.items():
        yield Piece(f"{name}: {what}", seconds, cases.SHARES[name], name)


def say(quick: bool, only: str, budget: float, wanted: Sequence[str]) -> int:
    """Prints the wanted parts; returns 1 where they do not fit into the part of `budget` that is
    not spare."""
    settings = cases.GPU_QUICK if quick else cases.GPU
    state = carried.state() if carried.MADE.is_dir() else ""
    found = carried.load(carried.Manifest(state, ARCH, UNITS, quick, only), carried.MADE)
    built = isinstance(found, GpuCases)
    if not isinstance(found, GpuCases):
        print(f"benchmarks/gpu: {found}: what the machine would compile is counted")
        found = cases.all_of(2 * UNITS, settings, only)
    planned = pieces(settings, found, built=built)
    parts = [p for p in planned if p.part in ("", *wanted)]
    for part in parts:
        cut = f" (of {part.seconds:.0f} wanted)" if part.seconds > part.most else ""
        print(f"{part.taken:7.1f} s  {part.what}{cut}")
    total, most = sum(part.taken for part in parts), budget * SPARE
    print(f"{total:7.1f} s  in all, of {most:.0f}: the rest of {budget:.0f} is spare")
    return int(total > most)
