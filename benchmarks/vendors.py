"""Vendors' libraries and jobs over them, beside their bounds.

    python -m benchmarks.vendors [--quick] [--part PART]... [--vendors mpich,mpich] [--ranks 2,2]

Four parts, all of them by default; each prints a table, and every bound whether it is met:

bytes  jobs of all eight collectives over 4 + 2 and 3 + 1 + 2 ranks: what each vendor cluster sends
       is what docs/jobs.md, section 4, says, exactly.
one    calls of a communicator that leaves all to one vendor's library, beside calls of the
       library's table, and MPI's own functions, in turn in one process, in C (vendors_rank.c): at
       least 0.98 of the library's speed.
hosts  Allreduce and Allgather over two network namespaces, each a vendor cluster, joined by a
       line of --rate. Jobs with two lanes, in one micro-batch and in several; the same as an
       ordered list; the compiled plan that hccc takes by itself; gloo, where PyTorch is
       installed; SendRecv, one way. Of calls of 16 MiB and more the bound is the slower of the
       wire and the vendor's library alone.
alike  the same on a line that takes about as long as the libraries: what two lanes gain.

Times are those of the slowest rank, medians of calls that follow each other, all ways in turn; what
two lanes gain is the median of the best ordered list's time over theirs in the same turn. The last
two parts need root. Libraries are those of the tests, in environments of their own
(tests/vendor). Status 1: a bound is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import namespaces
from benchmarks.namespaces import DEVICE
from benchmarks.vendors_rank import CALLS, TIMEOUT_S, Case
from hccc.ir.collective import Collective, OpType
from hccc.runtime.communicator.runtime_library import COMMUNICATOR, build, library

SOURCE = Path(__file__).with_name("vendors_rank.c")
PARTS = ("bytes", "one", "hosts", "alike")
TCP = 0.956  # of a line's bits are data in frames of 1,500 bytes
KIB, MIB = 1 << 10, 1 << 20
LARGE = 16 * MIB  # from which on jobs come near their bounds
BYTES = ((4, 2), (3, 1, 2))  # ranks of the vendor clusters whose bytes are counted
DEADLINE_S = 600  # of the ranks of a case
OF_BOUND = {"allgather": 0.85, "allreduce": 0.70}


@dataclass(frozen=True, slots=True)
class Bound:
    """A figure, and what it must at least be."""

    what: str
    figure: float
    least: float

    @property
    def met(self) -> bool:
        """Whether it is."""
        return self.figure >= self.least


def installed(vendor: str) -> str:
    """Returns the file of a vendor's library, "" of hccc's own."""
    from tests.vendor import conftest

    return "" if vendor == "own" else conftest.installed(vendor)


def ran(part: str, case: Case, rate: str = "") -> list[dict[str, Any]]:
    """Runs all ranks, each vendor cluster on a host of its own where there is a rate; returns what
    rank 0 found. Raises SystemExit where a rank fails."""
    of_rank = [k for k, n in enumerate(case.ranks) for _ in range(n)]
    said = {"HCCC_JOB": secrets.token_hex(8), "HCCC_NRANKS": str(len(of_rank))}
    said |= {"HCCC_TIMEOUT": f"{TIMEOUT_S:g}", "HCCC_STANDARD": "1"}
    command = [sys.executable, "-m", "benchmarks.vendors_rank", part, json.dumps(asdict(case))]
    with ExitStack() as stack:
        hosts: Sequence[namespaces.Host] = ()
        if rate:
            hosts = stack.enter_context(namespaces.hosts(len(case.ranks), rate))
            said |= namespaces.job_on(hosts, 1) | {"HCCC_NRANKS": str(len(of_rank))}
            said |= {"HCCC_NETWORK": DEVICE, "HCCC_SOCKET_IFNAME": DEVICE}
            said |= {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": "19999"}
            said |= {"GLOO_SOCKET_IFNAME": DEVICE}
        ranks = []
        for r, k in enumerate(of_rank):
            own = {"HCCC_RANK": str(r)}
            if file := installed(case.vendors[k]):
                own |= {"HCCC_VENDOR_LIBRARY": file}
            if hosts:
                own |= {"HCCC_HOST_ID": hosts[k].namespace}
            before = hosts[k].before() if hosts else ()
            made = subprocess.Popen(
                [*before, *command], env=os.environ | said | own, stdout=subprocess.PIPE, text=True
            )
            stack.callback(made.kill)
            ranks.append(made)
        texts = [rank.communicate(timeout=DEADLINE_S)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"{part}, {case.collective}: a rank has failed")
    return [json.loads(line) for line in texts[0].splitlines()]


def table(title: str, heads: Sequence[str]) -> Table:
    """Returns an empty table, with the machine's load."""
    made = Table(title=title, caption=f"load {os.getloadavg()[0]:.1f}")
    for head in heads:
        made.add_column(head, justify="right")
    return made


def sent_bytes(c: Collective, ranks: Sequence[int], n: int) -> list[int]:
    """Returns the bytes that each vendor cluster sends (docs/jobs.md, section 4); root is rank 0.
    n: bytes of a block."""
    all, k = sum(ranks), len(ranks)
    match c.op:
        case OpType.ALLREDUCE:
            return [2 * n * (k - 1) // k] * k
        case OpType.ALLGATHER:
            return [(all - ranks[(i + 1) % k]) * n for i in range(k)]
        case OpType.REDUCESCATTER:
            return [(all - own) * n for own in ranks]
        case OpType.BROADCAST:
            return [n] * (k - 1) + [0]
        case OpType.REDUCE:
            return [0] + [n] * (k - 1)
        case OpType.GATHER:
            return [0, *(own * n for own in ranks[1:])]
        case OpType.SCATTER:
            return [(all - ranks[0]) * n] + [0] * (k - 1)
        case _:
            return [own * (all - own) * n for own in ranks]


def bytes_over_borders(vendor: str) -> tuple[Table, list[Bound]]:
    """Counts what jobs send."""
    made, bounds = table("Bytes over borders", ("collective", "ranks", "sent", "docs/jobs.md")), []
    for ranks in BYTES:
        for row in ran("bytes", Case(ranks, (vendor,) * len(ranks))):
            c = Collective(OpType(row["collective"]), sum(ranks), 1)
            want, shape = sent_bytes(c, ranks, 4 * row["count"]), " + ".join(map(str, ranks))
            made.add_row(c.name, shape, str(row["sent"]), str(want))
            bounds.append(Bound(f"bytes of {c.name}, {shape}", float(row["sent"] == want), 1))
    return made, bounds


def compiled(folder: str) -> str:
    """Compiles vendors_rank.c with libhccc, and returns the program."""
    rooms = [COMMUNICATOR.source.parents[1] / room for room in ("communicator", "vendor")]
    made, runtime = f"{folder}/vendors_rank", build()
    words = ["gcc", "-O2", *(f"-I{room / 'include'}" for room in rooms), str(SOURCE)]
    words += ["-o", made, str(runtime), f"-Wl,-rpath,{runtime.parent}", "-ldl"]
    subprocess.run(words, check=True)
    return made


def one_vendor(vendor: str, n: int, quick: bool) -> tuple[Table, list[Bound]]:
    """Times one vendor's library by a communicator, by its table, and by its own functions."""
    sizes = (
        (8, KIB, 64 * KIB, MIB) if quick else (8, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, LARGE)
    )
    said = {"HCCC_JOB": secrets.token_hex(8), "HCCC_NRANKS": str(n), "HCCC_VENDOR": vendor}
    said |= {"HCCC_VENDOR_LIBRARY": installed(vendor), "HCCC_STANDARD": "0"}
    with tempfile.TemporaryDirectory() as folder:
        words = [compiled(folder), vendor, str(21 if quick else 101), *map(str, sizes)]
        ranks = [
            subprocess.Popen(
                words,
                env=os.environ | said | {"HCCC_RANK": str(r)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for r in range(n)
        ]
        try:
            texts = [rank.communicate(timeout=DEADLINE_S)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"one, {vendor}: a rank has failed")
    found = [[float(word) for word in line.split()] for line in texts[0].splitlines()]
    ways = ("communicator", "table", "library")[: len(found[0]) - 2]
    title = f"Allreduce of {n} ranks by {vendor}, µs"
    made, bounds = table(title, ("bytes", *ways, f"{ways[-1]} / communicator")), []
    for size, *took, ratio in found:
        what = f"{size:,.0f}"
        made.add_row(what, *(f"{us:.3f}" for us in took), f"{ratio:.3f}")
        bounds.append(Bound(f"{vendor} alone, {what} bytes", ratio, 0.98))
    return made, bounds


def gbit(rate: str) -> float:
    """Returns the Gbit/s of a rate as tc writes it."""
    return float(rate.removesuffix("gbit"))


def over_hosts(case: Case, rate: str) -> tuple[Table, list[Bound], dict[str, Any]]:
    """Times the ways to make a collective over hosts. Returns also the row of the largest size."""
    found = ran("hosts", case, rate)
    shape = " + ".join(map(str, case.ranks))
    ways = [way for way in found[0]["ms"] if way not in ("library", "sendrecv")]
    title = f"{case.collective}, {shape} ranks of {' + '.join(case.vendors)}, {rate}, ms"
    made = table(title, ("bytes", *ways, "wire", "library alone", "SendRecv", "sent"))
    bounds: list[Bound] = []
    c = Collective(OpType(case.collective.capitalize()), sum(case.ranks), 1)
    for row in found:
        ms, what = row["ms"], f"{case.collective}, {row['size']:,} bytes, {rate}"
        row["wire"] = max(row["sent"]) * 8 / (gbit(rate) * TCP) / 1e6
        figures = [f"{one:.2f}" for one in (*(ms[w] for w in ways), row["wire"])]
        figures += [f"{ms['library']:.2f}", f"{ms['sendrecv']:.2f}", str(row["sent"])]
        made.add_row(f"{row['size']:,}", *figures)
        right = row["sent"] == sent_bytes(c, case.ranks, row["count"] * 4)
        bounds += [Bound(f"bytes of {what}", float(right), 1), *_bounds(what, row, case, rate)]
    return made, bounds, found[-1]


def _bounds(what: str, row: dict[str, Any], case: Case, rate: str) -> Iterator[Bound]:
    ms, size = row["ms"], row["size"]
    lanes = min(ms[way] for way in ms if way.startswith("lanes"))
    alike = 0.5 <= ms["library"] / row["wire"] <= 2
    if size >= LARGE:
        of = max(row["wire"], ms["library"]) / lanes
        yield Bound(f"{what}: of wire or library", of, OF_BOUND[case.collective])
        there = size * 8 / (gbit(rate) * TCP) / 1e6
        yield Bound(f"SendRecv, {size:,} bytes, {rate}: of the wire", there / ms["sendrecv"], 0.9)
    phases = "two lanes, phases alike" if alike and size >= LARGE else "two lanes"
    yield Bound(f"{what}: {phases}", row["two_lanes"], 1.2 if "alike" in phases else 0.97)
    if "gloo" in ms and size in (64 * KIB, *(s for s in case.sizes if s >= 4 * MIB)):
        yield Bound(f"{what}: of gloo", ms["gloo"] / lanes, 1.4 if size >= 4 * MIB else 1)


def rate_alike(row: dict[str, Any], rate: str) -> str:
    """Returns the rate of a line on which a call's bytes take as long as its library alone."""
    return f"{min(40.0, max(0.1, gbit(rate) * row['wire'] / row['ms']['library'])):.2f}gbit"


def measured(given: argparse.Namespace, console: Console) -> Iterator[Bound]:
    """Runs the parts, prints their tables, and yields all bounds."""

    def shown(made: tuple[Table, list[Bound]]) -> list[Bound]:
        console.print(made[0])
        return made[1]

    vendors = tuple(given.vendors.split(","))
    if "bytes" in given.part:
        yield from shown(bytes_over_borders(vendors[0]))
    if "one" in given.part and vendors[0] != "own":
        yield from shown(one_vendor(vendors[0], 2, given.quick))
    if not {"hosts", "alike"} & set(given.part):
        return
    if why := namespaces.missing():
        console.print(f"hosts, alike: left out: {why}")
        return
    gloo = importlib.util.find_spec("torch") is not None
    if not gloo:
        console.print("gloo is left out, and its bounds: PyTorch is not installed")
    sizes = (64 * KIB, LARGE) if given.quick else (64 * KIB, MIB, 4 * MIB, LARGE, 2 * LARGE)
    batches = (1, 4) if given.quick else (1, 2, 4, 8, 16)
    ranks = tuple(map(int, given.ranks.split(",")))
    for collective in CALLS:
        repeats = 3 if given.quick else 7
        case = Case(ranks, vendors, collective, sizes, batches, repeats, gloo)
        made, bounds, last = over_hosts(case, given.rate)
        console.print(made)
        if "hosts" in given.part:
            yield from bounds
        if "alike" in given.part:
            once = replace(case, sizes=(last["size"],), gloo=False)
            made, bounds, _ = over_hosts(once, rate_alike(last, given.rate))
            console.print(made)
            yield from (one for one in bounds if "two lanes" in one.what)


def main() -> None:
    """Measures, and prints tables and bounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", default="1gbit", help="of the line: a number and gbit")
    parser.add_argument("--ranks", default="2,2", help="of each host")
    parser.add_argument(
        "--vendors", default="mpich,mpich", help="library of each host: mpich, oneccl or own"
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes, within 8 minutes")
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="this part alone, or several"
    )
    given = parser.parse_args()
    given.part = given.part or PARTS
    build()
    library()
    console = Console() if sys.stdout.isatty() else Console(width=180)
    if flags := os.environ.get("HCCC_CXXFLAGS"):
        console.print(f"libhccc is compiled with HCCC_CXXFLAGS={flags}: for users it is not")
    found = list(measured(given, console))
    made = Table(title="Bounds")
    for head in ("what", "figure", "at least", ""):
        made.add_column(head, justify="left" if head == "what" else "right")
    for one in found:
        made.add_row(
            one.what, f"{one.figure:.3f}", f"{one.least:g}", "met" if one.met else "MISSED"
        )
    console.print(made)
    sys.exit(not all(one.met for one in found))


if __name__ == "__main__":
    main()
