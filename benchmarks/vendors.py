"""Jobs over two hosts: what crosses the border, and how long calls take; a vendor's library alone.

python -m benchmarks.vendors [--rate 1gbit] [--ranks 2,2] [--vendors own,own] [--quick]
python -m benchmarks.vendors --same mpich [--ranks 2]

Two network namespaces stand for the hosts (needs root); each is a vendor cluster, all its ranks
border ranks. For each collective and size: the job with two lanes, in one micro-batch and in
several; the same as an ordered list; the compiled plan that hccc takes by itself; gloo, where
PyTorch is installed. Times are those of the slowest rank, the median of calls that follow each
other, all ways in turn. Bytes are counted where they are sent, and must be those of the closed
forms (docs/jobs.md, section 4).

With --same, on this host: calls of a communicator that leaves all to the vendor's library
(HCCC_VENDOR, HCCC_STANDARD=0) beside calls of the library's own table, in processes that take
turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import namespaces
from benchmarks.namespaces import DEVICE
from hccc.ir.collective import Collective, OpType
from hccc.ir.job import vendor_clusters
from hccc.runtime.communicator.communicator import Communicator, allocate
from hccc.runtime.communicator.errors import check
from hccc.runtime.communicator.runtime_library import build, library
from hccc.runtime.job.loaded import LoadedJob
from hccc.runtime.vendor.engines import ID_BYTES, load
from hccc.synth.builtin.hetccl import hetccl

FLOAT32, SUM = 7, 0
CALLS = {"allreduce": "all_reduce", "allgather": "all_gather"}
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured: bytes of a call's largest buffer, ranks and library of each host, and in
    how many micro-batches."""

    collective: str
    sizes: tuple[int, ...]
    ranks: tuple[int, ...]
    vendors: tuple[str, ...]
    batches: tuple[int, ...]
    repeats: int
    gloo: bool


class Rank:
    """One rank, and the ways to make its calls."""

    def __init__(self, case: Case) -> None:
        self.case, self.comm = case, Communicator.from_environment()
        self.n, self.rank = self.comm.n_ranks, self.comm.rank
        ends = np.cumsum([0, *case.ranks]).tolist()
        rows = [list(range(a, b)) for a, b in pairwise(ends)]
        v = vendor_clusters([(f"host{k}", row, row, [1] * len(row)) for k, row in enumerate(rows)])
        self.own = next(k for k, row in enumerate(rows) if self.rank in row)
        self.job = hetccl(v, OpType(case.collective.capitalize()))
        self.jobs: dict[str, LoadedJob] = {}
        for batches in case.batches:
            for lanes in (True, False):
                name = f"{'lanes' if lanes else 'list'}, {batches}"
                self.jobs[name] = LoadedJob(
                    self.comm.handle,
                    self.rank,
                    self.job,
                    case.vendors[self.own],
                    micro_batches=[(0, batches)],
                    lanes=lanes,
                )

    def gathered(self, value: float) -> list[float]:
        """Returns the numbers of all ranks; they meet for it."""
        all = np.zeros(self.n)
        all[self.rank] = value
        check(library().call("CommGatherBytes", self.comm.handle, all.ctypes.data, all.itemsize))
        return [float(x) for x in all]

    def measure(self, size: int) -> dict[str, Any]:
        """Returns the milliseconds of each way, and the bytes that each host has sent in a call."""
        c = self.job.collective
        count = size // 4 // c.most_blocks()
        send = allocate(c.input_blocks(self.rank) * count)
        receive = allocate(c.output_blocks(self.rank) * count)
        send[:] = 1 + self.rank
        ways: dict[str, Callable[[], None]] = {}
        for name, job in self.jobs.items():
            words = (send.ctypes.data, receive.ctypes.data, count, FLOAT32, SUM, TIMEOUT_S)
            ways[name] = lambda job=job, words=words: job.run(*words)  # type: ignore[misc]
        ways["plan"] = lambda: getattr(self.comm, CALLS[self.case.collective])(send, receive)
        if self.case.gloo:
            ways["gloo"] = self._gloo(send, receive)
        times: dict[str, list[float]] = {name: [] for name in ways}
        first, mine = next(iter(self.jobs.values())), [0.0] * self.n
        for k in range(1 + self.case.repeats):
            for name, call in ways.items():
                receive[:] = 0
                before = first.sent
                self.gathered(0)
                begun = time.perf_counter()
                call()
                slowest = max(self.gathered(time.perf_counter() - begun))
                self._check(receive, count, name)
                if k:  # the first may make a library
                    times[name].append(slowest * 1e3)
                if first.sent > before:
                    mine = self.gathered(float(first.sent - before))
        hosts = np.zeros(len(self.case.ranks))
        np.add.at(hosts, self.job.clusters.of_ranks(), mine)
        return {
            "size": size,
            "count": count,
            "ms": {name: statistics.median(all) for name, all in times.items()},
            "sent": [int(x) for x in hosts],
        }

    def _check(self, receive: Any, count: int, name: str) -> None:
        every = 1 + np.arange(self.n, dtype=np.float32)
        total = self.job.collective.op is OpType.ALLREDUCE
        want = np.full(count, every.sum()) if total else np.repeat(every, count)
        if not np.array_equal(receive, want):
            raise AssertionError(f"{name}: rank {self.rank} has a wrong result")

    def _gloo(self, send: Any, receive: Any) -> Callable[[], None]:
        torch, dist = import_module("torch"), import_module("torch.distributed")

        if not dist.is_initialized():
            dist.init_process_group("gloo", rank=self.rank, world_size=self.n)
        s, r = torch.from_numpy(send), torch.from_numpy(receive)

        def call() -> None:
            if self.job.collective.op is OpType.ALLREDUCE:
                r.copy_(s)
                dist.all_reduce(r)
            else:
                dist.all_gather_into_tensor(r, s)

        return call


def rank_main() -> None:
    """Measures as one rank, and prints the results."""
    case = Case(**json.loads(sys.argv[2]))
    rank = Rank(case)
    for size in case.sizes:
        print(json.dumps(rank.measure(size)), flush=True)
    rank.gathered(0)
    for job in rank.jobs.values():
        job.end()
    rank.comm.destroy()


SAME_SIZES = tuple(8 << (3 * k) for k in range(8))  # 8 bytes to 16 MiB
TURNS = 5  # of each way


def same_main() -> None:
    """Measures AllReduce as one rank, and prints the seconds of a call of each size."""
    vendor, way = sys.argv[2:4]
    comm = Communicator.from_environment()
    call: Callable[[Any, Any], None] = comm.all_reduce
    if way == "table":
        engine = load(vendor)
        ids = np.zeros((comm.n_ranks, ID_BYTES), np.uint8)
        if comm.rank == 0:
            ids[0] = np.frombuffer(engine.unique_id(), np.uint8)
        check(library().call("CommGatherBytes", comm.handle, ids.ctypes.data, ID_BYTES))
        call = engine.join(ids[0].tobytes(), comm.n_ranks, comm.rank, timeout=TIMEOUT_S).all_reduce
    took = []
    for size in SAME_SIZES:
        send, receive = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
        calls = max(3, min(2000, (1 << 23) // size))
        for _ in range(calls):
            call(send, receive)
        begun = time.perf_counter()
        for _ in range(calls):
            call(send, receive)
        took.append((time.perf_counter() - begun) / calls)
        assert (receive == comm.n_ranks).all()
    print(json.dumps(took), flush=True)
    os._exit(0)  # MPI is never finalized


def same(vendor: str, n: int) -> Table:
    """Returns the table of --same: both ways in turn, medians of the slowest rank."""
    from tests.vendor.conftest import installed

    file = installed(vendor)
    found: dict[str, list[Any]] = {"communicator": [], "table": []}
    for way, rows in list(found.items()) * TURNS:
        said = {
            **os.environ,
            "HCCC_JOB": secrets.token_hex(8),
            "HCCC_NRANKS": str(n),
            "HCCC_VENDOR_LIBRARY": file,
            "HCCC_STANDARD": "0",
            **({"HCCC_VENDOR": vendor} if way == "communicator" else {}),
        }
        command = [sys.executable, "-m", "benchmarks.vendors", "--same-rank", vendor, way]
        ranks = [
            subprocess.Popen(
                command, env=said | {"HCCC_RANK": str(r)}, stdout=subprocess.PIPE, text=True
            )
            for r in range(n)
        ]
        texts = [rank.communicate(timeout=300)[0] for rank in ranks]
        rows.append(np.max([json.loads(text) for text in texts], axis=0))
    title = f"AllReduce of {n} ranks by {vendor}, µs, {TURNS} turns"
    made = Table(title=title, caption=f"load {os.getloadavg()[0]:.1f}")
    for head in ("bytes", *found, "table / communicator"):
        made.add_column(head, justify="right")
    by, own = (np.median(rows, axis=0) * 1e6 for rows in found.values())
    for size, a, b in zip(SAME_SIZES, by, own, strict=True):
        made.add_row(f"{size:,}", f"{a:.2f}", f"{b:.2f}", f"{b / a:.3f}")
    return made


def closed_form(c: Collective, ranks: tuple[int, ...], count: int) -> list[int]:
    """Returns the bytes that each host sends (docs/jobs.md, section 4)."""
    hosts, n = len(ranks), count * 4
    if c.op is OpType.ALLREDUCE:
        return [2 * n * (hosts - 1) // hosts] * hosts
    return [(sum(ranks) - ranks[(k + 1) % hosts]) * n for k in range(hosts)]


def measured(case: Case, rate: str) -> list[dict[str, Any]]:
    """Runs all ranks, and returns what rank 0 found for each size."""
    with namespaces.hosts(len(case.ranks), rate) as hosts:
        said = {
            **os.environ,
            "HCCC_JOB": secrets.token_hex(8),
            "HCCC_NRANKS": str(sum(case.ranks)),
            "HCCC_TIMEOUT": f"{TIMEOUT_S:g}",
            "HCCC_STANDARD": "1",
            "HCCC_ROOT": f"{hosts[0].address}:{20000 + random.randrange(10000)}",
            "HCCC_SECRET": secrets.token_hex(16),
            "HCCC_NETWORK": DEVICE,
            "HCCC_SOCKET_IFNAME": DEVICE,
            "UCX_TLS": "tcp,self",
            "MASTER_ADDR": hosts[0].address,
            "MASTER_PORT": "19999",
            "GLOO_SOCKET_IFNAME": DEVICE,
        }
        command = [sys.executable, "-m", "benchmarks.vendors", "--rank", json.dumps(asdict(case))]
        ends = [host for host, n in zip(hosts, case.ranks, strict=True) for _ in range(n)]
        ranks = [
            subprocess.Popen(
                [*end.before(), *command],
                env=said | {"HCCC_RANK": str(r), "HCCC_HOST_ID": end.namespace},
                stdout=subprocess.PIPE,
                text=True,
            )
            for r, end in enumerate(ends)
        ]
        try:
            texts = [rank.communicate(timeout=300)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"{case.collective}: a rank has failed")
    return [json.loads(line) for line in texts[0].splitlines()]


def table(case: Case, rows: list[dict[str, Any]], rate: str) -> Table:
    """Lays out the results of a collective. Raises AssertionError where bytes are not as they
    must be."""
    title = f"{case.collective}, {' + '.join(map(str, case.ranks))} ranks, {rate}, ms"
    made = Table(title=title, caption=f"load {os.getloadavg()[0]:.1f}")
    ways = list(rows[0]["ms"])
    for head in ("bytes", *ways, "sent by each host"):
        made.add_column(head, justify="right")
    c = Collective(OpType(case.collective.capitalize()), sum(case.ranks), 1)
    for row in rows:
        want = closed_form(c, case.ranks, row["count"])
        assert row["sent"] == want, f"{row['sent']} bytes were sent, and not {want}"
        figures = [f"{row['ms'][way]:.2f}" for way in ways]
        made.add_row(f"{row['size']:,}", *figures, ", ".join(f"{x:,}" for x in row["sent"]))
    return made


def main() -> None:
    """Measures, and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="1gbit", help="of the line, as tc writes it")
    parser.add_argument("--ranks", default="2,2", help="of each host")
    parser.add_argument("--vendors", default="own,own", help="library of each host")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, within 3 minutes")
    parser.add_argument("--same", metavar="VENDOR", help="mpich or oneccl, on one host")
    given = parser.parse_args()
    if given.same:
        build()
        Console().print(same(given.same, int(given.ranks.split(",")[0])))
        return
    if why := namespaces.missing():
        raise SystemExit(why)
    build()
    library()
    gloo = importlib.util.find_spec("torch") is not None
    console = Console()
    if not gloo:
        console.print("gloo is left out: PyTorch is not installed")
    sizes = (1 << 16, 1 << 22) if given.quick else (1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24)
    for collective in CALLS:
        case = Case(
            collective,
            sizes,
            tuple(map(int, given.ranks.split(","))),
            tuple(given.vendors.split(",")),
            (1, 4) if given.quick else (1, 4, 16),
            3 if given.quick else 7,
            gloo,
        )
        console.print(table(case, measured(case, given.rate), given.rate))


if __name__ == "__main__":
    {"--rank": rank_main, "--same-rank": same_main}.get("".join(sys.argv[1:2]), main)()
