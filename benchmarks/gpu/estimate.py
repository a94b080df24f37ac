"""How long a run on a GPU will take, piece by piece, before there is one: `run.py --dry-run`.

Rough, and meant to be too long rather than too short: a machine like an H200 with 16 cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from benchmarks.gpu import cases
from benchmarks.gpu.cases import GpuCase, GpuSettings
from hccc.runtime.measure import perf

UNITS, CORES, KINDS = 132, 16, 4
BUILD_S = 16.0  # of one translation unit, on one core
HOST_BUILD_S = 12.0
CHECK_S = 0.5  # of one example at one size: patterns, copies to the GPU, comparing
BANDWIDTH = 1.5e12  # bytes a second, read and written
LAUNCH_S = 150e-6  # of one small launch with its event
BURST_S = 1.5e-3  # before each burst: the long copy, tables
SHARED_S = 8.0  # of two processes that start, meet and take turns on the GPU
KINDS_OF_HANDLES = ("legacy", "descriptor", "fabric")
START_S = 70.0  # Python, CuPy's context, loops that numba compiles for the first time


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a run, and its seconds."""

    what: str
    seconds: float


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


def pieces(settings: GpuSettings, only: str = "") -> list[Piece]:
    """Returns all parts of a run."""
    begin = perf_counter()
    found = [plan for _, plan in cases.examples(2 * UNITS, only) if plan is not None]
    timed, _ = cases.timed(2 * UNITS, settings.channels, only)
    swept = cases.swept(2 * UNITS, settings.channels, only)
    compiled = perf_counter() - begin
    shared_s = SHARED_S * (len(KINDS_OF_HANDLES) + 2)
    builds = len(found) + 2 * len(timed) + KINDS * len(cases.DTYPES) * len(swept)
    sweep = sum(
        _race(case, settings, size, itemsize, KINDS)
        for case in swept
        for itemsize in cases.DTYPES.values()
        for size in settings.swept
    )
    grid = sum(
        _race(case, settings, size, 4, 2)
        * len(cases.micro_batches(case.plan, size // 4, 4, settings.micro_batches))
        * len(settings.windows)
        for case in timed
        for size in settings.sizes
    )
    return [
        Piece("starting", START_S),
        Piece("compiling programs to plans, on this machine", compiled),
        Piece(f"building {builds} kernels", builds * BUILD_S / CORES),
        Piece(f"building {len(found)} kernels for the CPU", len(found) * HOST_BUILD_S / CORES),
        Piece(
            f"checking {len(found)} programs", 2 * len(found) * len(settings.check_sizes) * CHECK_S
        ),
        Piece("two ranks of a communicator, as processes and as threads", shared_s),
        Piece(f"{len(swept)} plans at {len(settings.swept)} sizes", sweep),
        Piece(f"{len(timed)} plans in every micro-batch and window", grid),
    ]


def say(settings: GpuSettings, only: str, budget: float) -> int:
    """Prints the parts; returns 1 where they do not fit into `budget` seconds."""
    found = pieces(settings, only)
    total = sum(piece.seconds for piece in found)
    for piece in [*found, Piece(f"in all, of {budget:.0f}", total)]:
        print(f"{piece.seconds:7.1f} s  {piece.what}")
    return int(total > budget)
