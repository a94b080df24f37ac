"""What hccc chooses for a cluster, beside the best there is, its own default, NCCL and the bound.

    python -m benchmarks.choice [--ranks 8] [--clusters NAME...] [--algorithms NAME...]
                                [--sizes 1K..4G] [--step 4] [--quick] [--json]

All of it is simulated: the shipped algorithms on every shipped cluster of their size. *Best*: the
fastest of all structures (the product of all axes, not one after the other) with all Settings, for
each size by itself, so a library of as many plans as sizes; left out with --quick. *Default*: what
--tune off makes. NCCL and RCCL: as they are by default, without in-switch reduction, which no
program can have; where their model knows the devices. Times of the others over hccc's (more is
better for hccc), and hccc's over the best and over the bound: geometric mean or median, and the
worst of all sizes.

Then, of a node, libraries of several algorithms beside NCCL at every size: by default without and
with in-switch reduction (NVLS), and with registered buffers, which has that, too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.programs import EXAMPLES
from hccc.base.diagnostics import Source, UserError
from hccc.driver import compilation as driver
from hccc.driver.compiled import CompiledProgram
from hccc.driver.options import Options
from hccc.driver.tune.search import exhaustive
from hccc.driver.tune.setting import Setting, most_blocks, space
from hccc.driver.tune.sizes import parsed
from hccc.driver.tune.timing import CallTiming
from hccc.ir.topology import Topology
from hccc.lang.cluster import load as cluster
from hccc.lang.transfer import load as transfer
from hccc.predict.nccl import machine as library
from hccc.predict.nccl.model import predict, predict_registered
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate
from hccc.synth.bounds.bound import limits

FUSIONS = ("auto", "none", "reduce", "full")
MOST = 1 << 17  # primitives times micro-batches of a call of the search
STEP = 4  # from one size to the next: those between that were tuned for are among them
LIBRARIES = {
    "allreduce": ("ring_allreduce", "rhd_allreduce", "direct_allreduce"),
    "allgather": ("ring_allgather", "direct_allgather"),
    "reducescatter": ("ring_reducescatter", "direct_reducescatter"),
}
NODES = ("dgx-h100", "mi300x")


@dataclass(frozen=True)
class ChoiceRow:
    """One algorithm on one cluster: µs at each size; best, nccl: None where there is none."""

    algorithm: str
    cluster: str
    sizes: tuple[int, ...]
    chosen: tuple[float, ...]
    default: tuple[float, ...]
    bound: tuple[float, ...]
    best: tuple[float, ...] | None
    nccl: tuple[float, ...] | None


@cache
def site(name: str) -> Topology:
    """Loads a cluster that ships."""
    return cluster.load(EXAMPLES / "clusters" / f"{name}.cluster")


def cases(ranks: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Yields (algorithm, cluster) of as many ranks as one of `ranks`."""
    for file in sorted(EXAMPLES.glob("*.rccl")):
        n = transfer.load(file).collective.n_ranks
        for other in sorted((EXAMPLES / "clusters").glob("*.cluster")):
            if n in ranks and site(other.stem).n_ranks == n:
                yield file.stem, other.stem


def took(made: CompiledProgram, t: Topology, size: int) -> float:
    """Returns the µs of a call as the library runs it."""
    plan = made.at(size, False).plan
    return simulate(prepare(plan, t), Request(size, in_place=not plan.out_of_place)).time


def best(file: Path, t: Topology, sizes: Sequence[int]) -> list[float]:
    """Returns the µs of the fastest of everything that could be chosen, at each size."""
    least = [float("inf")] * len(sizes)
    blocks = most_blocks(t)
    several = len(set(t.memory_domain.tolist())) > 1
    ways = ("put", "slots") if several else ("put",)
    structures = [
        *product(ways, FUSIONS, ("hpds", "list"), ("state",), (False, True)),
        *product(ways, FUSIONS, ("hpds",), ("depth", "depth8", "depth16"), (False,)),
    ]
    for way, fuse, order, allocator, few in structures:
        options = Options(
            order,
            network_lowering=way,
            fuse=fuse,
            allocator=allocator,
            tune="off",
            channels=1,
            max_sms=1 if few else None,
            prove=False,
        )
        plan = driver.compile_text(transfer.read(file), options, t).plan
        timing, settings = CallTiming(plan, t, MOST), space(plan, blocks)
        for k, size in enumerate(sizes):
            shorter = partial(_shorter, timing, size, least[k])
            least[k] = min(least[k], exhaustive(settings, shorter)[1])
    return least


def _shorter(timing: CallTiming, size: int, least: float, setting: Setting, limit: float) -> float:
    """Returns the µs of a call, inf where it takes more than `least`."""
    return timing.time(size, setting, limit=min(limit, least))


def nccl(op: str, t: Topology, sizes: Sequence[int]) -> tuple[float, ...] | None:
    """Returns the µs of what NCCL, or on AMD RCCL, chooses without in-switch reduction.

    None where it is not known.
    """
    try:
        machine = replace(library.of(t), nvls=False)
        collective = transfer.load(EXAMPLES / f"{op}.rccl").collective
        found = predict(machine, collective.op, sizes)
    except UserError:
        return None
    return tuple(one.time_us for one in found)


def row(case: tuple[str, str], sizes: tuple[int, ...], quick: bool) -> ChoiceRow:
    """Measures one algorithm on one cluster."""
    algorithm, name = case
    t, file = site(name), EXAMPLES / f"{algorithm}.rccl"
    made = driver.compile_text(transfer.read(file), Options(prove=False), t)
    plain = driver.compile_text(transfer.read(file), Options(prove=False, tune="off"), t)
    c = made.program.collective
    least = limits(t, c.op, c.root)
    return ChoiceRow(
        algorithm,
        name,
        sizes,
        tuple(took(made, t, size) for size in sizes),
        tuple(took(plain, t, size) for size in sizes),
        tuple(least.at(size).time for size in sizes),
        None if quick else tuple(best(file, t, sizes)),
        nccl(algorithm, t, sizes),
    )


def over(a: Sequence[float], b: Sequence[float]) -> np.ndarray:
    """Returns a / b at each size."""
    ratio: np.ndarray = np.array(a) / np.array(b)
    return ratio


def cells(one: ChoiceRow) -> list[str]:
    """Writes the ratios of a row: the median (best) or geometric mean of each, and the worst."""
    shown = []
    if one.best is None:
        shown += ["", ""]
    else:
        ratio = over(one.chosen, one.best)
        shown += [f"{np.median(ratio):.3f}", f"{ratio.max():.3f}"]
    for other in (one.default, one.nccl):
        if other is None:
            shown += ["", ""]
            continue
        ratio = over(other, one.chosen)
        shown += [f"{np.exp(np.log(ratio).mean()):.2f}", f"{ratio.min():.2f}"]
    ratio = over(one.chosen, one.bound)
    return [*shown, f"{np.exp(np.log(ratio).mean()):.2f}", f"{ratio.min():.2f}"]


def table(rows: Sequence[ChoiceRow]) -> Table:
    """Makes the table: a line for each case."""
    found = Table("algorithm", "cluster", title="Chosen for the cluster, 1 KiB to 4 GiB, simulated")
    for name in (
        "over best: median",
        "worst",
        "default over it",
        "least",
        "NCCL over it",
        "least",
        "over bound",
        "least",
    ):
        found.add_column(name, justify="right")
    for one in rows:
        found.add_row(one.algorithm, one.cluster, *cells(one))
    return found


def libraries(sizes: tuple[int, ...]) -> Table:
    """Makes the table of several algorithms beside NCCL on one node, size by size."""
    found = Table("bytes", title="Libraries of several algorithms on one node, us")
    columns: list[list[str]] = []
    for name, (what, algorithms) in product(NODES, LIBRARIES.items()):
        t = site(name)
        sources = [
            Source(f"{a}.rccl", (EXAMPLES / f"{a}.rccl").read_text(encoding="utf-8"))
            for a in algorithms
        ]
        made = driver.compile_library(sources, Options(prove=False, protocol="auto"), t)
        machine = library.of(t)
        op = made.program.collective.op
        plain = predict(replace(machine, nvls=False), op, sizes)
        nvls = predict(machine, op, sizes)
        buffers = predict_registered(machine, op, sizes)
        for heading in (f"{name} {what}: hccc", "NCCL", "NVLS", "registered"):
            found.add_column(heading, justify="right")
        columns.append([f"{took(made, t, size):,.1f}" for size in sizes])
        columns.append([f"{one.time_us:,.1f}" for one in plain])
        columns.append([f"{one.time_us:,.1f}" if machine.nvls else "" for one in nvls])
        columns.append([f"{one.time_us:,.1f}" if one else "" for one in buffers])
    for size, cell in zip(sizes, zip(*columns, strict=True), strict=True):
        found.add_row(f"{size:,}", *cell)
    return found


def main() -> None:
    """Measures the cases and prints them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--clusters", nargs="+")
    parser.add_argument("--algorithms", nargs="+")
    parser.add_argument("--sizes", default="1K..4G")
    parser.add_argument("--step", type=int, default=STEP, help="from one size to the next")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    first, last = parsed(given.sizes)[0], parsed(given.sizes)[-1]
    sizes = tuple(s for k in range(32) if (s := first * given.step**k) <= last)
    wanted = [
        (a, c)
        for a, c in cases(given.ranks)
        if a in (given.algorithms or [a]) and c in (given.clusters or [c])
    ]
    with ProcessPoolExecutor(given.workers) as pool:
        found = pool.map(partial(row, sizes=sizes, quick=given.quick), wanted)
        rows = list(track(found, total=len(wanted), console=Console(stderr=True)))
    if given.json:
        print(json.dumps([asdict(one) for one in rows]))
        return
    console = Console(width=160)
    console.print(table(rows))
    if not given.algorithms:
        console.print(libraries(sizes))


if __name__ == "__main__":
    main()
