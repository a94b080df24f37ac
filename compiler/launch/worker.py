"""worker: a process of a run, which carries out messages for its ranks, with a thread for each.

`main` reads messages from its standard input and answers each. The process ends as soon as its
input does, even in the middle of a message.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]

from hccc.base.diagnostics import UserError, fail
from hccc.ir import job_json
from hccc.ir.collective import Collective, OpType
from hccc.ir.demand import parse as parse_demand
from hccc.ir.job import Job
from hccc.ir.uneven import BlockTable
from hccc.launch.addresses import address_of
from hccc.launch.device_memory import DeviceMemory, device_count
from hccc.launch.messages import Message, fields_of, serve
from hccc.runtime.communicator.communicator import Communicator, allocate, unique_id
from hccc.runtime.communicator.errors import check
from hccc.runtime.communicator.premul import premul_sum
from hccc.runtime.communicator.runtime_library import library
from hccc.runtime.device.device_layer import available, message
from hccc.runtime.job.loaded import MicroBatches
from hccc.runtime.measure import perf
from hccc.runtime.measure.patterns import Expected, Pattern, scalar_of
from hccc.runtime.measure.perf import RankMemory
from hccc.runtime.recording import recording
from hccc.runtime.vendor.files import PLATFORMS

_MEET_S = 120  # in which ranks meet


class _Rank:
    """One rank of this process."""

    def __init__(self, id: bytes, n_ranks: int, rank: int, gpu: tuple[str, int] | None) -> None:
        """Joins a communicator. gpu: the platform and the number of the GPU whose memory it has;
        None: the platform of the process says."""
        if gpu is not None:
            platform, device = gpu
            check(library().call("SetMemory", platform.encode(), device))
        try:
            self.communicator = Communicator.join(id, n_ranks, rank)
        finally:
            if gpu is not None:
                check(library().call("SetMemory", None, 0))
        self._rank = rank
        self._memory: RankMemory | None = None
        self._there: DeviceMemory | None = None  # what calls use, where memory is a GPU's
        self._launch: Callable[[], None] = lambda: None

    def load(self, library: str, timeout: float) -> None:
        self.communicator.load(Path(library))
        self.communicator.set_timeout(timeout)

    def load_job(
        self, job: Job, library: Sequence[str], batches: MicroBatches, timeout: float
    ) -> None:
        vendor, file = library
        self.communicator.load(job, vendor=vendor, file=file, micro_batches=batches)
        self.communicator.set_timeout(timeout)

    def bind(self, name: str, p: Pattern, in_place: bool, micro_batch: int, window: int) -> None:
        self._memory = self._there = None  # free the memory bound before
        c = self.communicator
        on_host = c.platform == "cpu"
        made = partial(allocate, dtype="uint8") if on_host else partial(np.empty, dtype=np.uint8)
        m = self._memory = perf.allocate(p, self._rank, in_place, made)
        base, size = m.slab.ctypes.data, m.slab.itemsize
        if not on_host:
            self._there = DeviceMemory(c.platform, c.device, m.slab.nbytes)
            base = self._there.address
        send = base + m.send_at * size if m.sends else None
        receive = base + m.receive_at * size if m.receives else None
        c.set_cut(micro_batch, window)
        op = p.op if p.op != "premul_sum" else premul_sum(scalar_of(p.dtype, self._rank)[0])
        if p.blocks is None:
            self._launch = c.prepared(name, send, receive, p.count, p.dtype, op)
        else:
            self._launch = c.prepared_blocks(p.blocks, send, receive, p.dtype, op)
        for job in c.jobs:  # the trials of a job are no part of what is measured
            for _ in range(job.trials_left(p.count, p.numpy.itemsize)):
                self._launch()

    def fill(self, p: Pattern) -> None:
        assert self._memory
        perf.fill(p, self._rank, self._memory)
        if self._there is not None:
            self._there.put(self._memory.slab)

    def run(self, launches: int, warmups: int) -> float:
        for _ in range(warmups):
            self._launch()
        started = time.perf_counter()
        for _ in range(launches):
            self._launch()
        return time.perf_counter() - started

    def wrong(self, p: Pattern, want: Expected | None, keeps_input: bool) -> int:
        assert self._memory
        if self._there is not None:
            self._there.get(self._memory.slab)
        return perf.wrong_at(p, self._rank, self._memory, want, keeps_input)


class Worker:
    """The ranks of a process. Each method is a word of the protocol; `answer` calls it."""

    def __init__(self) -> None:
        self._here: list[_Rank] = []

    def answer(self, message: Message) -> Message:
        """Carries out a message and returns the answer."""
        word = message.pop("word")
        try:
            return {"value": WORDS[word](self, **message)}
        except UserError as error:
            return {"error": fields_of(error)}
        except Exception as error:
            traceback.print_exc()
            failure = fail("E473", f"a process of the run failed: {type(error).__name__}: {error}")
            return {"error": fields_of(failure)}

    def start(
        self,
        n_ranks: int,
        ranks: Sequence[int],
        near: tuple[int, int],
        library: str,
        name: str,
        collective: Sequence[Any],
        timeout: float,
        job: str,
        vendors: Sequence[Sequence[str]],
        micro_batches: MicroBatches,
    ) -> None:
        """Stores the ranks of this process, and their library or job. near: the first rank of
        this host, and how many it has; timeout: seconds that launches wait; the others as in
        `WorkerTask`."""
        os.environ.setdefault("HCCC_TIMEOUT", str(_MEET_S))
        self._n_ranks, self._ranks, (self._first_near, self._n_near) = n_ranks, ranks, near
        self._library, self._name, self._timeout = library, name, timeout
        self._job = job_json.loads(job) if job else None
        self._vendors, self._micro_batches = vendors, micro_batches
        op, n, chunks, root, uneven, text = collective
        demand = parse_demand(text, n) if text else None
        self._collective = Collective(OpType(op), n, chunks, root, uneven, demand)
        self._pool = ThreadPoolExecutor(len(ranks))

    def meet(self, host: str | None) -> str:
        """Returns the id that all ranks join with; they meet in this process. host: the name that
        others have for this host; None: all ranks are on it."""
        chosen = any(map(os.environ.get, ("HCCC_BIND", "HCCC_SOCKET_IFNAME")))
        address = None if host is None or chosen else address_of(host)
        if address:
            os.environ["HCCC_BIND"] = address
        return unique_id().hex()

    def join(self, id: str) -> None:
        """Joins the communicators of all ranks."""
        shared = bytes.fromhex(id)
        self._here = self._each(
            lambda rank: _Rank(shared, self._n_ranks, rank, self._gpu_of(rank)), self._ranks
        )

    def _gpu_of(self, rank: int) -> tuple[str, int] | None:
        """Returns the platform and the number of the GPU of a rank whose vendor's library works in
        its memory; None of other ranks. Ranks of a host take its GPUs in turn."""
        if self._job is None:
            return None
        own = os.environ.get("HCCC_VENDOR", "")
        of = [name or own for name, _ in self._vendors or [("", "")] * self._n_ranks]
        platform = PLATFORMS.get(of[rank])
        if platform is None:
            return None
        if platform not in available():
            text = f"rank {rank} has the library of {of[rank]}, which works in memory of a GPU"
            raise fail("E473", f"{text}: there is no {platform} on its host: {message(platform)}")
        before = sum(name in PLATFORMS for name in of[self._first_near : rank])
        return platform, before % device_count(platform)

    def load(self) -> None:
        """Loads the library, or the job."""
        job, batches, timeout = self._job, self._micro_batches, self._timeout
        if job is not None:
            whose = dict(zip(self._ranks, self._here, strict=True))
            vendors = self._vendors or [("", "")] * self._n_ranks
            self._each(lambda r: whose[r].load_job(job, vendors[r], batches, timeout), self._ranks)
            return
        self._each(lambda rank: rank.load(self._library, self._timeout), self._here)

    def bind(self, pattern: Sequence[Any], in_place: bool, micro_batch: int, window: int) -> None:
        """Allocates and binds memory for launches on `pattern`."""
        p = self._pattern(pattern)
        # A rank's buffers, copies to compare them with, and the expected results of all ranks.
        need = 4 * self._n_near * p.count * p.numpy.itemsize * self._collective.most_blocks()
        free = psutil.virtual_memory().available
        if need > free:
            message = f"{self._n_near} ranks need {need / 1e9:.1f} GB of memory"
            raise fail("E429", f"{message}; {free / 1e9:.1f} GB are free", help="use a smaller -e")
        self._each(lambda rank: rank.bind(self._name, p, in_place, micro_batch, window), self._here)

    def fill(self, pattern: Sequence[Any]) -> None:
        """Fills the buffers with the data of a launch."""
        p = self._pattern(pattern)
        self._each(lambda rank: rank.fill(p), self._here)

    def run(self, launches: int, warmups: int) -> float:
        """Launches; returns the seconds of the slowest rank, without warmups."""
        return float(max(self._each(lambda rank: rank.run(launches, warmups), self._here)))

    def record(self, blocks: int, slots: int) -> Message:
        """Records the ranks' kernels in one launch."""
        held = range(self._ranks[0], self._ranks[0] + len(self._ranks))
        with recording(Path(self._library), held, blocks, slots) as recorder:
            self._each(lambda rank: rank.run(1, 0), self._here)
        return recorder.read().fields()

    def wrong(self, pattern: Sequence[Any], keeps_input: bool) -> int:
        """Returns the number of elements that differ from the expected result."""
        p = self._pattern(pattern)
        want = perf.wanted(p)
        return sum(self._each(lambda rank: rank.wrong(p, want, keeps_input), self._here))

    def end(self) -> None:
        """Leaves the communicators."""
        self._each(lambda rank: rank.communicator.destroy(), self._here)

    def _pattern(self, fields: Sequence[Any]) -> Pattern:
        *plain, lengths = fields
        p = Pattern(self._collective, *plain)
        if lengths is None:
            return p
        table = BlockTable.of_rows(p.collective, np.array(lengths, np.int64), p.count)
        return replace(p, blocks=table)

    def _each(self, do: Callable[[Any], Any], of_each: Sequence[Any]) -> list[Any]:
        """Runs `do` for every rank at the same time. Raises the first error."""
        with np.errstate(all="ignore"):
            return list(self._pool.map(do, of_each))


WORDS: dict[str, Callable[..., Any]] = {
    name: getattr(Worker, name)
    for name in ("start", "meet", "join", "load", "bind", "fill", "run", "record", "wrong", "end")
}


def main() -> None:
    """Answers messages one by one."""
    with serve() as (channel, next_message):
        worker = Worker()
        while True:
            message = next_message()
            last = message["word"] == "end"
            channel.send(worker.answer(message))
            if last:
                return
