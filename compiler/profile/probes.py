"""probes: the small programs whose kernels `hccc profile` launches, and the work they do.

Each program has one kind of primitive, so its launch time gives that primitive's cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hccc.base.diagnostics import Source
from hccc.base.progress import quiet
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.ir.memory_use import bytes_touched
from hccc.ir.plan import Plan
from hccc.ir.primitives import Guard
from hccc.launch import measure as bench
from hccc.profile.calibrate import LaunchCase, Work
from hccc.runtime.cpu import CpuLauncher, aligned_zeros
from hccc.runtime.cuda import CudaLauncher
from hccc.runtime.layout import shape_of
from hccc.runtime.measure import perf
from hccc.runtime.measure.patterns import Pattern
from hccc.runtime.request import LaunchRequest

DTYPE, ITEM = "float32", 4
PART = 128  # bytes: sizes of buffers are multiples
Built = CpuLauncher | CudaLauncher


@dataclass(frozen=True, slots=True)
class Probe:
    """One program. `turns`: how many times every rank appears in the longest chain of primitives,
    0: the chain is one primitive; alike: all primitives of that chain are of one kind."""

    name: str
    says: str
    op: str
    body: str
    turns: int
    fuse: str = "none"
    in_place: bool = True
    alike: bool = True

    def plan(self, ranks: int, channels: int = 1) -> Plan:
        """Compiles the program, like any other, to a Plan."""
        chunks = "" if self.op == "SendRecv" or not self.alike else ", nChunks=1"
        header = f'nRanks={ranks}, AlgoName="{self.name}", OpType="{self.op}"{chunks}'
        text = f"ResCCLAlgo({header}):\n    for r in range(nRanks):\n{self.body}"
        options = Options(fuse=self.fuse, channels=channels)
        with quiet():
            return compile_text(Source(f"{self.name}.rccl", text), options).plan

    def depth(self, ranks: int) -> int:
        """Returns the number of primitives in the longest chain."""
        return max(1, self.turns * (ranks - 1))


RELAY = Probe(
    "relay",
    "copies one after the other",
    "Broadcast",
    "        if r < nRanks - 1:\n            transfer(r, r + 1, r, 0, recv)\n",
    1,
)
COLLECT = Probe(
    "collect",
    "reductions one after the other",
    "Reduce",
    "        if r > 0:\n            transfer(r, r - 1, nRanks - r, 0, rrc)\n",
    1,
)
STAR = Probe(
    "star",
    "one reduction of all ranks",
    "Reduce",
    "        if r > 0:\n            transfer(r, 0, r, 0, rrc)\n",
    0,
    fuse="full",
)
RING = Probe(
    "ring",
    "the ring AllReduce",
    "Allreduce",
    "        for s in range(nRanks - 1):\n"
    "            transfer(r, (r + 1) % nRanks, s, (r - s) % nRanks, rrc)\n"
    "            transfer(r, (r + 1) % nRanks, nRanks - 1 + s, (r + 1 - s) % nRanks, recv)\n",
    2,
    alike=False,
)
EXCHANGE = Probe(
    "exchange",
    "copies at once, one a rank",
    "SendRecv",
    "        transfer(r, (r + 1) % nRanks, 0, r, recv)\n",
    0,
    in_place=False,
)
PROBES = (RELAY, COLLECT, STAR, RING, EXCHANGE)


class Pool:
    """Memory shared by all kinds of launches, so that no kind has its own, cold for lack of use."""

    def __init__(self, ranks: int, size: int) -> None:
        """Allocates room for buffers of up to `size` bytes in all at each rank."""
        room = size + (1 << 14)  # guards between them, and the beginning of a page
        self._bytes = [aligned_zeros(room) for _ in range(ranks)]
        for memory in self._bytes:
            memory.fill(0)  # touch every page

    def memory(self, plan: Plan, count: int, in_place: bool) -> list[perf.RankMemory]:
        """Returns all ranks' buffers for blocks of `count` elements."""
        pattern = Pattern(plan.collective, DTYPE, "sum", count)
        layout = [perf.allocate(pattern, rank, in_place) for rank in range(plan.n_ranks)]
        return [
            replace(m, slab=memory[: m.slab.nbytes].view(m.slab.dtype))
            for m, memory in zip(layout, self._bytes, strict=True)
        ]


def size_of(probe: Probe, plan: Plan, touched: int) -> int:
    """Returns the bytes of a rank's buffer so that a launch touches at most `touched` bytes in
    all."""
    per_byte = int(bytes_touched(plan, 1 << 20, in_place=probe.in_place).sum()) / (1 << 20)
    return max(int(touched / per_byte) // PART * PART, PART)


def case(probe: Probe, plan: Plan, built: Built, size: int, cores: int, pool: Pool) -> LaunchCase:
    """Prepares a kind of launch of `size` bytes a rank on so many cores (0: a GPU)."""
    request = LaunchRequest(size // ITEM, DTYPE, in_place=probe.in_place, workers=cores)
    memory = pool.memory(plan, request.count, probe.in_place)
    session = bench.bound(built, request, memory)
    session.put()
    return LaunchCase(probe.name, work(probe, plan, size, cores), session)


def work(probe: Probe, plan: Plan, size: int, cores: int) -> Work:
    """Computes the work of a launch: all primitives on a host, the longest chain on a GPU (cores
    0)."""
    skipped = Guard.OUT_OF_PLACE if probe.in_place else Guard.IN_PLACE
    moves = plan.guard != skipped
    k, d = plan.src.counts()[moves], plan.dst.counts()[moves]
    batches = shape_of(plan).sizes(size // ITEM, ITEM).batches
    chunk = size / plan.collective.chunks_per_block
    read, written, combined = k * chunk, d * chunk, (k - 1) * chunk
    touched = int(bytes_touched(plan, size, in_place=probe.in_place).sum())
    if cores:
        steps, blocks = len(k) * batches * plan.channels, int(plan.n_tb.sum()) * plan.channels
        return Work(touched, cores, blocks, steps, read.sum(), written.sum(), combined.sum())
    # Micro-batch m of a primitive follows its own m - 1, and m of the primitive before it.
    steps = probe.depth(plan.n_ranks) + batches - 1
    each = steps / batches / plan.channels
    chain = (float(np.mean(part)) * each for part in (read, written, combined))
    return Work(touched, 1, 0, steps, *chain)


def cases(
    built: Sequence[tuple[Probe, Plan, Built]],
    cores: int,
    small: int,
    touched: Sequence[int],
    pool: Pool,
) -> list[LaunchCase]:
    """Prepares all kinds of launches, sorted by the bytes that they touch, as one launch leaves
    data in caches for the next.

    small: bytes of a rank's buffer; touched: bytes of each large launch; cores: of the host, 0: a
    GPU. On all cores only independent copies are launched, for chains leave cores idle. Large
    launches are only of probes whose longest chain has one kind of primitive.
    """
    launches = [case(*each, small, min(cores, 1), pool) for each in built]
    for total in touched:
        for probe, plan, communicator in built:
            if probe.alike:
                size = size_of(probe, plan, total)
                launches.append(case(probe, plan, communicator, size, min(cores, 1), pool))
    if cores > 1:
        probe, plan, communicator = next(each for each in built if each[0] is EXCHANGE)
        sizes = [small, *(size_of(probe, plan, total) for total in touched)]
        launches += [case(probe, plan, communicator, size, cores, pool) for size in sizes]
    return sorted(launches, key=lambda kind: kind.work.touched)
