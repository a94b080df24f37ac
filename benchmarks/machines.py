"""Bounds of machines that others published, and what `hccc synth` reaches of them.

    python -m benchmarks.machines DIR [--nodes 1,4] [--collectives NAME... | --bounds-only]
                                  [--size 1G] [--workers 2] [--json]

Every file below DIR that describes a machine (topologies of NCCL and RCCL, `nvidia-smi topo -m`)
is imported, alone and as several nodes, and all collectives are bounded and synthesised. Nothing
else is known of them: what was assumed is in the cluster file (`hccc cluster import`). A good DIR
is what RCCL has in tools/topo_expl/models, Azure in azhpc-images/topology and AWS in
aws-ofi-nccl/topology.

GB/s are algbw as sizes grow: of the narrowest cut, and (best) of the best
schedule over trees or paths.
Shares are of the optimum as `shares.py` has it, simulated; the least are shown again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import shares
from hccc.base.diagnostics import UserError
from hccc.base.sizes import size_of
from hccc.ir.collective import PROGRAMMABLE, OpType
from hccc.lang.machines.load import import_machines
from hccc.predict.bounds import bounds

SUFFIXES = (".xml", ".txt")
SIZE = 1 << 30
COLLECTIVES = [op.value.lower() for op in PROGRAMMABLE if op is not OpType.SENDRECV]
WORST = 12  # cases, of which the method is told
Case = tuple[Path, int, str, int]


@dataclass(frozen=True, slots=True)
class MachineRow:
    """One machine, alone or as several nodes.

    path: of the file; cuts, best: GB/s by collective; links: GPUs joined directly, as pairs;
    seconds: of importing and of bounding.
    """

    path: Path
    nodes: int
    gpus: int
    device: str
    links: int
    nics: int
    cuts: dict[str, float]
    best: dict[str, float]
    import_seconds: float
    bound_seconds: float

    @property
    def file(self) -> str:
        """Returns the file's name."""
        return self.path.name


def row(path: Path, nodes: int) -> MachineRow:
    """Imports and bounds one file.

    Raises:
        UserError: it describes no machine.
    """
    start = time.perf_counter()
    made = import_machines([path], nodes=nodes)
    middle = time.perf_counter()
    found = bounds(made.topology, path.name, SIZE).found
    end = time.perf_counter()
    first = made.machines[0]
    return MachineRow(
        path,
        made.topology.n_nodes,
        first.gpus,
        first.device.name,
        len({frozenset(pair) for pair in first.links}),
        sum(nic.count for nic in first.nics),
        {x.collective.op.value: float(x.bound.cut.algbw) for x in found if x.bound.cut},
        {x.collective.op.value: x.best.algbw for x in found if x.best},
        middle - start,
        end - middle,
    )


def share(case: Case) -> shares.ShareRow:
    """Synthesizes one case, and returns what it reaches.

    Raises:
        UserError: the file describes no machine.
    """
    path, nodes, op, size = case
    t = import_machines([path], nodes=nodes).topology
    name = path.name if nodes == 1 else f"{nodes} x {path.name}"
    try:
        return shares.ShareRow(name, op, size, *shares.reached(t, op, size))
    except UserError as error:
        return shares.ShareRow(name, op, size, refused=error.problem.message)


def all_shares(cases: Sequence[Case], workers: int) -> list[shares.ShareRow]:
    """Synthesizes all cases, several at a time; returns what each reaches, in order."""
    with ProcessPoolExecutor(workers) as pool:
        done = pool.map(share, cases)
        console = Console(stderr=True)
        return list(track(done, "Synthesising", len(cases), console=console, transient=True))


def worst_table(found: Sequence[shares.ShareRow]) -> Table:
    """Makes the table of the cases with the least shares, and how they were made or why not."""
    shown = Table("machine", "collective", "share", "method", title="Least shares")
    for one in sorted(found, key=lambda one: -one.share)[-WORST:]:
        shown.add_row(one.cluster, one.collective, shares.cell(one), one.refused or one.method)
    return shown


def rows(directory: Path, nodes: Sequence[int]) -> Iterator[MachineRow | str]:
    """Yields all machines below a directory, and of other files why they are none."""
    paths = sorted(p for p in directory.rglob("*") if p.suffix in SUFFIXES and p.is_file())
    for path in track(paths, "Bounding", console=Console(stderr=True), transient=True):
        try:
            yield from [row(path, count) for count in nodes]
        except UserError as error:
            yield f"{path.name}: {error.problem.message}"


def table(found: Sequence[MachineRow]) -> Table:
    """Makes the table of the machines."""
    names = list(dict.fromkeys(name for one in found for name in one.cuts))
    shown = Table(title="GB/s that no schedule beats, as sizes grow")
    shown.add_column("machine")
    for head in ("nodes", "GPUs", "device", "linked", "NICs"):
        shown.add_column(head, justify="right")
    for name in names:
        shown.add_column(name, justify="right")
    shown.add_column("s", justify="right")
    for one in found:
        shown.add_row(
            one.file,
            str(one.nodes),
            str(one.gpus),
            one.device,
            str(one.links),
            str(one.nics),
            *(_rates(one, name) for name in names),
            f"{one.import_seconds + one.bound_seconds:.2f}",
        )
    return shown


def _rates(one: MachineRow, name: str) -> str:
    """Writes the rate of a cut as `267`, and where trees or paths reach less, as `267 (201)`."""
    if name not in one.cuts:
        return ""
    cut, best = one.cuts[name], one.best.get(name)
    less = best is not None and best < cut * (1 - 1e-3)
    return f"{cut:.3g} ({best:.3g})" if less else f"{cut:.3g}"


def main() -> None:
    """Measures the machines and prints them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nodes", default="1,4", help="how many of each machine, a list")
    parser.add_argument("--collectives", nargs="+", choices=COLLECTIVES, default=COLLECTIVES)
    parser.add_argument("--bounds-only", action="store_true", help="nothing is synthesised")
    parser.add_argument("--size", type=size_of, default=SIZE)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    every = list(rows(given.directory, [int(n) for n in given.nodes.split(",")]))
    found = [one for one in every if isinstance(one, MachineRow)]
    none = [one for one in every if isinstance(one, str)]
    made = list[shares.ShareRow]()
    if not given.bounds_only:
        machines = [(one.path, one.nodes) for one in found if one.gpus * one.nodes > 1]
        wanted = product(machines, given.collectives)
        made = all_shares([(*m, op, given.size) for m, op in wanted], given.workers)
    if given.json:
        facts = {
            "machines": [asdict(one) for one in found],
            "others": none,
            "shares": [asdict(one) for one in made],
        }
        print(json.dumps(facts, indent=2, default=str))
        return
    console = Console(width=200)
    console.print(table(found))
    for one in none:
        console.print(f"no machine: {one}", highlight=False)
    files = len({one.file for one in found})
    print(f"{files} machines; parentheses: over trees or paths, where that is less than the cut")
    if made:
        console.print(shares.table(made))
        console.print(worst_table(made))
        print(shares.summary(made))


if __name__ == "__main__":
    main()
