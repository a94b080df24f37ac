"""measure: measures this machine and writes it as a cluster.

It launches kernels of small programs (`probes`), compiled like any program and launched like `hccc
run`. All ranks are on this machine: on a host as fibers that share its cores, on a GPU as thread
blocks of one grid. So links are copies within its memory; links between machines (NICs, switches)
cannot be measured here and are left out.
"""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from hccc.base.building.compiler import compiler_version, find_compiler
from hccc.base.diagnostics import UserError
from hccc.base.progress import tell
from hccc.emit import directory
from hccc.emit.targets import TARGETS
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.launch.measure import communicator
from hccc.profile import calibrate
from hccc.profile.cluster_file import Profile
from hccc.profile.probes import DTYPE, EXCHANGE, PROBES, Built, Pool, Probe, case, cases, size_of
from hccc.runtime.cpu import CpuLauncher
from hccc.runtime.cuda import find_device
from hccc.runtime.request import LaunchRequest

# Bytes that large launches touch, in all ranks together: from a core's cache to beyond any cache,
# and beyond the caches of a GPU.
OF_HOST = tuple(1 << bits for bits in (19, 20, 21, 22, 23, 25, 26, 27, 29, 30))
OF_GPU = (16 << 20, 48 << 20, 128 << 20)
TOUCHED_PER_S = 128 << 20
CROWD = 4  # channels of the launch with many thread blocks, on a host
VENDORS = {"cpu": "cpu", "cuda": "nvidia", "hip": "amd"}


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """The options of a measurement. devices: to measure, None for all present; ranks: of the
    programs launched; seconds: to launch, on each device."""

    devices: tuple[str, ...] | None = None
    ranks: int = 8
    seconds: float = 10.0


def check_devices(options: ProfileOptions) -> tuple[str, ...]:
    """Returns the devices to measure. Raises UserError for anything missing on this machine."""
    devices = _devices(options)
    for device in devices:
        _machine(device)
    return devices


def profile(device: str, ranks: int, seconds: float) -> Profile:
    """Measures one device with so many ranks, launching for so many seconds."""
    name, tools, cores, units = _machine(device)
    small, touched = 16 * ranks, _touched(cores, seconds)
    few_bytes = 4 * ranks * small  # touched by small launches, scratch memory too
    channels = CROWD if cores else max(1, units // ranks)
    with _built(device, ranks, channels) as (built, crowd):
        pool = Pool(ranks, touched[-1] // ranks)
        kinds = cases(built, cores, small, touched, pool)
        if cores:
            kinds.insert(0, case(*crowd, small, 1, pool))
        size = size_of(crowd[0], crowd[1], touched[-1])
        everyone = [] if cores else [case(*crowd, size, cores, pool)]
        tell(f"Measuring {device} for {seconds:.0f} s")
        rounds = calibrate.measure([*kinds, *everyone], seconds)
    few = [kind for kind in kinds if kind.work.touched <= few_bytes]
    many = [kind for kind in kinds if kind.work.touched > few_bytes]
    costs = calibrate.fit(few, many, touched if cores else ())
    if everyone:
        total = ranks * size / everyone[0].time * 1e-3
    else:
        costs = replace(costs, cache=calibrate.together(costs, many))
        total = max(level.all or level.block for level in costs.cache)
    kinds += everyone
    return Profile(
        device=device,
        vendor=VENDORS[device],
        name=name,
        tools=tools,
        ranks=ranks,
        cores=cores,
        costs=costs,
        total=total,
        kinds=len(kinds),
        rounds=rounds,
        launches=sum(len(kind.samples) for kind in kinds),
        spread=float(np.median([kind.spread for kind in kinds])),
        error_small=costs.error(few),
        error_large=costs.error(many),
        seconds=seconds,
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


def _touched(cores: int, seconds: float) -> list[int]:
    """Returns the bytes that large launches touch: on a host as many sizes as time and memory
    allow."""
    if not cores:
        return list(OF_GPU)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = min(seconds * TOUCHED_PER_S, memory / 4)
    return [size for size in OF_HOST if size <= max(most, OF_HOST[1])]


@contextmanager
def _built(
    device: str, ranks: int, channels: int
) -> Iterator[tuple[list[tuple[Probe, Plan, Built]], tuple[Probe, Plan, Built]]]:
    """Builds the kernels of the probes, and of copies on that many channels, in a temporary
    folder."""
    tell(f"Building kernels for {device}")
    plans = [(probe, probe.plan(ranks)) for probe in PROBES]
    if channels > 1:
        plans.append((EXCHANGE, EXCHANGE.plan(ranks, channels)))
    targets = [target for target in TARGETS if target.name == device]
    with tempfile.TemporaryDirectory(prefix="hccc-") as temporary:

        def build(i: int) -> tuple[Probe, Plan, Built]:
            probe, plan = plans[i]
            kernels = Path(temporary) / f"{i}"
            files = directory.files(Catalogue.of(plan), targets, plan_json.dumps(plan))
            directory.write(kernels, files)
            source = kernels / f"{plan.name}{targets[0].suffix}"
            built = communicator(device, source, plan)
            if isinstance(built, CpuLauncher):
                built.build([LaunchRequest(0, DTYPE)])
            return probe, plan, built

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            built = list(pool.map(build, range(len(plans))))
        yield built[: len(PROBES)], built[-1]


def _devices(options: ProfileOptions) -> tuple[str, ...]:
    if options.devices:
        return options.devices
    try:
        return ("cpu", "hip" if find_device().hip else "cuda")
    except UserError:
        return ("cpu",)


def _machine(device: str) -> tuple[str, str, int, int]:
    """Returns (name, compiler, cores, units) of the machine.

    cores: that its thread blocks share, 0 on a GPU; units: its multiprocessors.
    """
    if device == "cpu":
        compiler = compiler_version(find_compiler())
        return _cpu_name(), compiler, len(os.sched_getaffinity(0)), 1
    gpu = find_device()
    runtime = gpu.cupy.cuda.runtime
    raw = runtime.getDeviceProperties(runtime.getDevice())["name"]
    name = raw.decode() if isinstance(raw, bytes) else str(raw)
    return name, f"CuPy {gpu.cupy.__version__}, {gpu.arch}", 0, gpu.units


def _cpu_name() -> str:
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        info = ""
    match = re.search(r"^model name\s*:\s*(.+)$", info, re.M)
    return match[1].strip() if match else platform.processor() or platform.machine()
