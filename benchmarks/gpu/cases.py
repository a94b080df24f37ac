"""What is measured: programs, plans that fill the device, sizes, and the bytes plans must move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np

from benchmarks.programs import EXAMPLES, direct, hierarchical_mesh
from hccc.base.diagnostics import Source
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.ir import plan_json
from hccc.ir.choices import PlanProtocol
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Guard
from hccc.ir.transport import Transport
from hccc.lang.transfer import load as transfer

FUSED = ("none", "auto")
# How data crosses between ranks; mixed, through slots or put by a proxy, between nodes. All ranks
# share one memory here, so that kernels of mixed plans store straight to where a proxy would put.
TRANSPORTS = {
    "direct": Options(transport=Transport.DIRECT),
    "staged": Options(transport=Transport.STAGED),
    "mixed slots": Options(network_lowering="slots"),
    "mixed put": Options(network_lowering="put"),
}
SWEPT = ("ring_allreduce", "hm_allreduce 2x4")
# Bodies: ranks that reduce k sources to k destinations, or copy one to all others, by a few thread
# blocks up to one an SM.
SOURCES = (1, 2, 4, 8, 9)
BODY_BLOCKS = (9, 18, 36, 72, 126)
# Calls of few bytes: what a direct AllReduce of 8 ranks costs by counters, and by packets in one
# hop or two.
SHORT = {
    "short, counters": Options(transport=Transport.DIRECT, tune="off", fuse="full"),
    "short, packets, one shot": Options(protocol="ll", tune="off"),
    "short, packets, two shots": Options(protocol="ll", tune="off", fuse="full"),
}
SHORT_RANKS = 8
# Bodies of all kinds of numbers are checked on one example: 8 sources, 8 destinations.
CHECKED = ("direct_allreduce", ("bfloat16", "float16", "float64", "int8", "int64"))
SHARES = {  # seconds that a part may take of a run; what is not done by then is left out
    "correctness": 120.0,
    "packets": 40.0,
    "communicators": 60.0,
    "clients": 260.0,
    "constants": 30.0,
    "bodies": 60.0,
    "sizes": 100.0,
    "interpreter": 110.0,
}
PARTS = tuple(part for part in SHARES if part != "clients")  # of a run that does not say
DTYPES = {"float32": 4, "bfloat16": 2}
DTYPE, OP = "float32", "sum"  # of checks, and of generated against interpreted
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """How much is measured.

    Sizes are bytes of a rank's larger buffer, smallest first; `launches` of each kernel in each
    cell, `burst` of them queued at a time; at most `channels` a plan. swept: sizes at which all
    transports, dtypes and ways to launch are compared; shared_small and shared: those of two ranks
    of a communicator, as processes and as threads; body: the one of bodies; short: those of calls
    by packets, and short_channels: how many channels they have.
    """

    sizes: tuple[int, ...]
    micro_batches: tuple[int, ...]
    launches: int
    burst: int
    channels: int
    check_sizes: tuple[int, ...]
    swept: tuple[int, ...]
    windows: tuple[int, ...] = (1, 0)  # 0: all micro-batches
    shared_small: tuple[int, ...] = (8, 4 << 10, 1 << 20)
    shared: tuple[int, ...] = (8, 64 << 10, 1 << 20, 64 << 20)
    body: int = 64 << 20
    short: tuple[int, ...] = (8, 64, 512, 4 << 10, 32 << 10, 256 << 10)
    short_channels: tuple[int, ...] = (1, 8)


MICRO_BATCHES = tuple(4 * KIB * 4**k for k in range(6))  # 4 KiB to 4 MiB
SIZES = tuple(8 * 8**k for k in range(10))  # 8 B to 1 GiB
GPU = GpuSettings((64 * KIB, GIB), MICRO_BATCHES, 24, 4, 32, (4000, 3 * MIB), SIZES)
GPU_QUICK = GpuSettings(
    (64 * KIB, 256 * MIB), MICRO_BATCHES[::3], 20, 4, 32, (300_000,), SIZES[::3]
)
CPU = GpuSettings(
    (16 * KIB, MIB),
    MICRO_BATCHES[:3],
    20,
    4,
    2,
    (4000, 300_000),
    SIZES[:5],
    body=MIB,
    short_channels=(1,),
)
CPU_QUICK = GpuSettings(
    (16 * KIB, 256 * KIB),
    MICRO_BATCHES[:2],
    20,
    10,
    1,
    (30_000,),
    SIZES[:4:3],
    body=MIB,
    short=(8, 4 * KIB),
    short_channels=(1,),
)


@dataclass(frozen=True, slots=True, eq=False)
class GpuCase:
    """One plan to time. `fuse`: the level, or all levels that give this plan."""

    name: str
    fuse: str
    plan: Plan
    transport: str = "direct"

    @property
    def slug(self) -> str:
        """Returns the case's name as a folder's."""
        words = f"{self.name}-{self.fuse}-{self.transport}"
        return words.replace(", ", "_").replace(" ", "_").replace("/", "_")

    def folder(self, part: str, dtype: str, kind: Enum) -> str:
        """Returns the folder of a kernel of one part of a run."""
        return f"{part}/{self.slug}-{dtype}/{kind.name}"


@dataclass(frozen=True, slots=True, eq=False)
class GpuCases:
    """The plans of a run. checks: examples with each transport, with a plan if they fit; short,
    bodies, swept, timed: what is measured; large: names of what does not fit."""

    checks: tuple[tuple[str, Plan | None], ...]
    short: tuple[GpuCase, ...]
    bodies: tuple[GpuCase, ...]
    swept: tuple[GpuCase, ...]
    timed: tuple[GpuCase, ...]
    large: tuple[str, ...]


def all_of(capacity: int, settings: GpuSettings, only: str) -> GpuCases:
    """Compiles the plans of a run. capacity: thread blocks that the GPU holds at once."""
    plans, large = timed(capacity, settings.channels, only)
    return GpuCases(
        tuple(examples(capacity, only)),
        tuple(short(settings, only)),
        tuple(bodies(capacity // 2, only)),
        tuple(swept(capacity, settings.channels, only)),
        tuple(plans),
        tuple(large),
    )


def check_dtypes(name: str) -> tuple[str, ...]:
    """Returns the types in which an example is checked."""
    return (DTYPE, *CHECKED[1]) if name.split()[0] == CHECKED[0] else (DTYPE,)


def check_folder(name: str, dtype: str) -> str:
    """Returns the folder of an example's kernels."""
    return f"examples/{name.replace(' ', '-')}-{dtype}"


def programs() -> dict[str, str]:
    """Returns the programs that are timed, all on 8 ranks: name → text."""
    return {
        "ring_allreduce": (EXAMPLES / "ring_allreduce.rccl").read_text(encoding="utf-8"),
        "ring_allgather": (EXAMPLES / "ring_allgather.rccl").read_text(encoding="utf-8"),
        "hm_allreduce 1x8": hierarchical_mesh("allreduce", 1, 8),
        "hm_allreduce 2x4": hierarchical_mesh("allreduce", 2, 4),
    }


def names() -> list[str]:
    """Returns all names that `only` may be part of."""
    return [
        *SHORT,
        *programs(),
        *map(body_name, SOURCES),
        *(path.stem for path in EXAMPLES.glob("*.rccl")),
    ]


def timed(capacity: int, most_channels: int, only: str) -> tuple[list[GpuCase], list[str]]:
    """Returns the plans to time whose name contains `only`, and the names of plans that do not fit.

    The plans have as many channels as fill the device. capacity: thread blocks that it holds at
    once.
    """
    found, large = [], []
    for name, text in programs().items():
        if only not in name:
            continue
        plans: dict[str, list[str]] = {}
        made: dict[str, Plan] = {}
        for level in FUSED:
            options = replace(TRANSPORTS["direct"], fuse=level)
            plan = _fitted(_compiler(name, text, options), capacity, most_channels)
            if plan is None:
                large.append(f"{name}, fuse {level}")
                continue
            key = plan_json.dumps(replace(plan, provenance=None))  # whatever it was made with
            plans.setdefault(key, []).append(level)
            made[key] = plan
        found += [GpuCase(name, "/".join(levels), made[key]) for key, levels in plans.items()]
    return found, large


def swept(capacity: int, most_channels: int, only: str) -> list[GpuCase]:
    """Returns the plans that are compared at all sizes: some programs, each transport they can
    have."""
    found = []
    for name, text in programs().items():
        for transport, options in TRANSPORTS.items():
            if name not in SWEPT or only not in name:
                continue
            plan = _fitted(_compiler(name, text, options), capacity, most_channels)
            if plan is not None and _is(plan, transport):
                found.append(GpuCase(name, options.fuse, plan, transport))
    return found


def short(settings: GpuSettings, only: str) -> Iterator[GpuCase]:
    """Yields the plans of short calls; those of packets take calls of all sizes that are asked
    for."""
    for name, options in SHORT.items():
        if only in name:
            compiled = _compiler("direct_allreduce", direct("allreduce", SHORT_RANKS), options)
            for channels in settings.short_channels:
                plan = compiled(channels)
                if plan.protocol is PlanProtocol.LL:
                    plan = replace(plan, max_bytes=max(settings.short))
                yield GpuCase(name, f"{channels} channel{'s' * (channels > 1)}", plan)


def bodies(most: int, only: str) -> Iterator[GpuCase]:
    """Yields the plans in which every rank reduces k sources, k in SOURCES, or copies one, by a
    primitive each, with several numbers of thread blocks, `most` at the most."""
    options = replace(TRANSPORTS["direct"], tune="off", fuse="full")
    for k in SOURCES:
        name = body_name(k)
        if only not in name:
            continue
        compiled = _compiler(
            name, direct("allreduce", k) if k > 1 else direct("allgather", 8), options
        )
        plans = [_fitted(compiled, min(blocks, most), blocks) for blocks in BODY_BLOCKS]
        for channels, plan in {plan.channels: plan for plan in plans if plan}.items():
            yield GpuCase(name, f"{channels} channels", plan)


def body_name(sources: int) -> str:
    """Returns the name of the plans of a body."""
    return f"body {sources} to {sources if sources > 1 else 7}"


def _is(plan: Plan, transport: str) -> bool:
    """Returns whether that is how the plan's data crosses: within one node nothing is mixed."""
    return plan.transport.name.lower() == transport.partition(" ")[0]


def examples(capacity: int, only: str) -> Iterator[tuple[str, Plan | None]]:
    """Yields every example with each transport; None where the device cannot hold its blocks."""
    for path in sorted(EXAMPLES.glob("*.rccl")):
        if only in path.stem:
            for transport, options in TRANSPORTS.items():
                plan = _example(path, options, capacity)
                if plan is None or _is(plan, transport):
                    yield f"{path.stem} {transport}", plan


def _example(path: Path, options: Options, capacity: int) -> Plan | None:
    """Compiles an example with fewer channels than it asks for, then with fewer thread blocks, to
    fit."""
    source = transfer.read(path)
    plan = compile_text(source, options).plan
    if grid_blocks(plan) <= capacity:
        return plan
    if _blocks(plan) <= capacity:
        more = replace(options, channels=capacity // _blocks(plan))
        return compile_text(source, more).plan
    each = capacity // plan.n_ranks
    return compile_text(source, replace(options, channels=1, max_sms=each)).plan if each else None


def _compiler(name: str, text: str, options: Options) -> Callable[[int], Plan]:
    """Returns the function from channels to a plan."""
    source = Source(f"{name}.rccl", text)
    return lambda channels: compile_text(source, replace(options, channels=channels)).plan


def _fitted(compiled: Callable[[int], Plan], capacity: int, most_channels: int) -> Plan | None:
    channels = min(most_channels, capacity // _blocks(compiled(1)))
    return compiled(channels) if channels else None


def _blocks(plan: Plan) -> int:
    """Returns the thread blocks of one channel, as a grid has them: the same number for every
    rank."""
    return int(plan.n_tb.max()) * plan.n_ranks


def grid_blocks(plan: Plan) -> int:
    """Returns the thread blocks of a launch."""
    return _blocks(plan) * plan.channels


def issued_bytes(plan: Plan, count: int, itemsize: int) -> float:
    """Returns the bytes that an out-of-place launch reads and writes: every operand of every
    primitive."""
    moves = plan.guard != Guard.IN_PLACE
    operands = (plan.src.counts() + plan.dst.counts())[moves].sum()
    return float(operands) * count * itemsize / plan.collective.chunks_per_block


def floor_bytes(plan: Plan, count: int, itemsize: int) -> float:
    """Returns the least bytes any kernel reads and writes: every input once, every output once."""
    c = plan.collective
    ranks = np.arange(plan.n_ranks)
    if c.op not in (OpType.ALLREDUCE, OpType.ALLGATHER):
        raise ValueError(f"no floor is known for {c.op}")
    blocks = sum(c.input_blocks(int(r)) + c.output_blocks(int(r)) for r in ranks)
    return float(blocks) * count * itemsize


def micro_batches(plan: Plan, count: int, itemsize: int, wanted: tuple[int, ...]) -> list[int]:
    """Returns the micro-batches of `wanted` that differ once a channel's part limits them;
    bytes."""
    pieces = plan.collective.chunks_per_block * plan.channels
    part = -(-count * itemsize // pieces // 16) * 16
    return [m for k, m in enumerate(wanted) if k == 0 or wanted[k - 1] < part]
