"""One rank of benchmarks.vendors: `python -m benchmarks.vendors_rank PART CASE`, CASE as JSON.

Rank 0 prints a line of JSON for each result.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import accumulate, pairwise
from random import Random
from typing import Any

import numpy as np

from hccc.ir.collective import OpType
from hccc.ir.job import VendorClusters, vendor_clusters
from hccc.runtime.communicator.communicator import Communicator, allocate
from hccc.runtime.communicator.errors import check
from hccc.runtime.communicator.runtime_library import library
from hccc.runtime.job.loaded import LoadedJob
from hccc.runtime.vendor.engines import ID_BYTES, VendorCommunicator, load
from hccc.synth.builtin.hetccl import OPS, hetccl

INT32, FLOAT32, SUM = 2, 7, 0
CALLS = {"allreduce": "all_reduce", "allgather": "all_gather"}
TIMEOUT_S = 60.0
# Up to so many bytes calls are made so many times more often. The shortest go one way, with lanes
# and as an ordered list, which many show.
REPEATS = ((1 << 16, 30), (1 << 20, 9))


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured. ranks, vendors: of each vendor cluster; sizes: bytes of a call's largest
    buffer; batches: numbers of micro-batches; repeats: long calls of each way that count."""

    ranks: tuple[int, ...]
    vendors: tuple[str, ...]
    collective: str = "allreduce"
    sizes: tuple[int, ...] = ()
    batches: tuple[int, ...] = (1,)
    repeats: int = 3
    gloo: bool = False

    def rows(self) -> list[list[int]]:
        """Returns the ranks of each vendor cluster."""
        return [list(range(a, b)) for a, b in pairwise(accumulate(self.ranks, initial=0))]

    def clusters(self) -> VendorClusters:
        """Returns the vendor clusters, all of whose ranks are border ranks."""
        rows = enumerate(self.rows())
        return vendor_clusters([(f"cluster{k}", row, row, [1] * len(row)) for k, row in rows])

    def vendor(self, rank: int) -> str:
        """Returns whose library serves a rank."""
        return next(v for v, row in zip(self.vendors, self.rows(), strict=True) if rank in row)


class Ranks:
    """This rank among all."""

    def __init__(self, case: Case) -> None:
        self.case, self.comm = case, Communicator.from_environment()
        self.n, self.rank = self.comm.n_ranks, self.comm.rank

    def gathered(self, value: float) -> list[float]:
        """Returns the numbers of all ranks; they meet for it."""
        all = np.zeros(self.n)
        all[self.rank] = value
        check(library().call("CommGatherBytes", self.comm.handle, all.ctypes.data, all.itemsize))
        return [float(x) for x in all]

    def slowest(self, call: Callable[[], object]) -> float:
        """Returns the milliseconds of a call that all ranks make, at the slowest."""
        self.gathered(0)
        begun = time.perf_counter()
        call()
        return max(self.gathered(time.perf_counter() - begun)) * 1e3

    def alone(self, vendor: str, members: list[int]) -> VendorCommunicator | None:
        """Joins the other ranks of a vendor cluster by its library; None of one rank."""
        engine, ids = load(vendor), np.zeros((self.n, ID_BYTES), np.uint8)
        if self.rank == members[0]:
            ids[self.rank] = np.frombuffer(engine.unique_id(), np.uint8)
        check(library().call("CommGatherBytes", self.comm.handle, ids.ctypes.data, ID_BYTES))
        words = (ids[members[0]].tobytes(), len(members), members.index(self.rank))
        return engine.join(*words, timeout=TIMEOUT_S) if len(members) > 1 else None

    def leave(self) -> None:
        """Ends the communicator, at all ranks, and this process: MPI is never finalized."""
        self.comm.destroy()
        sys.stdout.flush()
        os._exit(0)

    def say(self, found: object) -> None:
        """Prints a result, at rank 0."""
        if not self.rank:
            print(json.dumps(found), flush=True)


def of_bytes(case: Case) -> None:
    """Says what each vendor cluster sends in calls of all collectives of 60 elements."""
    all, v, count = Ranks(case), case.clusters(), 60
    first: LoadedJob | None = None
    for op in OPS:
        job = hetccl(v, op)
        words = (all.comm.handle, all.rank, job, case.vendor(all.rank), None, [(0, 1)])
        loaded = LoadedJob(*words, beside=first)
        first = first or loaded
        c = job.collective
        send = np.ones(c.input_blocks(all.rank) * count, np.int32)
        receive = np.ones(c.output_blocks(all.rank) * count, np.int32)
        at = (send.ctypes.data, receive.ctypes.data, count)
        loaded.run(*at, INT32, SUM, TIMEOUT_S)
        sent = np.zeros(len(v))
        np.add.at(sent, v.of_ranks(), all.gathered(float(loaded.sent)))
        all.say({"collective": op.value, "count": count, "sent": [int(x) for x in sent]})
        if loaded is not first:
            loaded.end()
    if first:
        first.end()
    all.leave()


class Hosts(Ranks):
    """This rank of jobs over hosts, and the ways to make its calls."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.job = hetccl(case.clusters(), OpType(case.collective.capitalize()))
        self.own = next(row for row in case.rows() if self.rank in row)
        vendor = case.vendor(self.rank)
        self.jobs: dict[str, LoadedJob] = {}
        for batches in case.batches:
            for lanes in (True, False):
                first = next(iter(self.jobs.values()), None)
                words = (self.comm.handle, self.rank, self.job, vendor, None, [(0, batches)])
                name = f"{'lanes' if lanes else 'list'}, {batches}"
                self.jobs[name] = LoadedJob(*words, lanes=lanes, beside=first)
        self.library = self.alone(vendor, self.own)

    def measure(self, size: int) -> dict[str, Any]:
        """Returns the milliseconds of each way, and the bytes that each host has sent in a call."""
        c = self.job.collective
        count = size // 4 // c.most_blocks()
        send = allocate(c.input_blocks(self.rank) * count)
        receive = allocate(c.output_blocks(self.rank) * count)
        send[:] = 1 + self.rank
        ways: dict[str, Callable[[], object]] = {}
        for name, job in self.jobs.items():
            words = (send.ctypes.data, receive.ctypes.data, count, FLOAT32, SUM, TIMEOUT_S)
            ways[name] = partial(job.run, *words)
        ways["plan"] = lambda: getattr(self.comm, CALLS[self.case.collective])(send, receive)
        if self.case.gloo:
            ways["gloo"] = self._gloo(send, receive)
        checked = list(ways)
        ways["library"] = self._alone(send, receive, count)
        ways["sendrecv"] = self._messages(size)
        times: dict[str, list[float]] = {name: [] for name in ways}
        first, mine = next(iter(self.jobs.values())), [0.0] * self.n
        names = list(ways)
        repeats = self.case.repeats * next((k for most, k in REPEATS if size <= most), 1)
        for k in range(1 + repeats):
            Random(k).shuffle(names)  # alike at all ranks; each comes after each other
            for name in names:
                call = ways[name]
                receive[:] = 0
                before = first.sent
                took = self.slowest(call)
                if name in checked:
                    self._check(receive, count, name)
                if k:  # the first may make a library
                    times[name].append(took)
                if first.sent > before:
                    mine = self.gathered(float(first.sent - before))
        hosts = np.zeros(len(self.case.ranks))
        np.add.at(hosts, self.job.clusters.of_ranks(), mine)
        medians = {name: statistics.median(all) for name, all in times.items()}
        kinds = (
            [name for name in self.jobs if name.startswith(kind)] for kind in ("list", "lanes")
        )
        listed, lanes = (times[min(names, key=lambda name: medians[name])] for names in kinds)
        return {
            "size": size,
            "count": count,
            "ms": medians,
            "two_lanes": statistics.median(a / b for a, b in zip(listed, lanes, strict=True)),
            "sent": [int(x) for x in hosts],
        }

    def _check(self, receive: Any, count: int, name: str) -> None:
        every = 1 + np.arange(self.n, dtype=np.float32)
        total = self.job.collective.op is OpType.ALLREDUCE
        want = np.full(count, every.sum()) if total else np.repeat(every, count)
        if not np.array_equal(receive, want):
            raise AssertionError(f"{name}: rank {self.rank} has a wrong result")

    def _alone(self, send: Any, receive: Any, count: int) -> Callable[[], object]:
        """Returns the call of the vendor's library, within each vendor cluster, whose largest
        buffer is as long as the job's."""
        own = self.library
        if own is None:
            return lambda: None
        if self.job.collective.op is OpType.ALLREDUCE:
            return lambda: own.all_reduce(send, receive)
        of_all = allocate(count * self.n // len(self.own))
        return lambda: own.all_gather(of_all, receive[: of_all.size * len(self.own)])

    def _messages(self, size: int) -> Callable[[], object]:
        """Returns a message of the first rank of the first host to that of the second."""
        source, target = (row[0] for row in self.case.rows()[:2])
        if self.rank not in (source, target):
            return lambda: None
        data = allocate(size // 4)
        if self.rank == source:
            return lambda: self.comm.send(data, target)
        return lambda: self.comm.recv(data, source)

    def _gloo(self, send: Any, receive: Any) -> Callable[[], object]:
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


def of_hosts(case: Case) -> None:
    """Says what each way takes."""
    all = Hosts(case)
    for size in case.sizes:
        all.say(all.measure(size))
    for job in all.jobs.values():
        job.end()
    all.leave()


if __name__ == "__main__":
    said: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in json.loads(sys.argv[2]).items()
    }
    {"bytes": of_bytes, "hosts": of_hosts}[sys.argv[1]](Case(**said))
