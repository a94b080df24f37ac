"""processes: the ranks of `hccc run --procs` and `--hosts`, in processes that are told what to do.

Ranks' memory is the processes' (`hccc.runtime.communicator`); each makes its data and checks its
results where they are. How processes are started is the affair of `Workers` and `Remote`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from hccc.base.diagnostics import Note, Problem, UserError, fail
from hccc.ir.collective import Collective
from hccc.launch.hosts import Host
from hccc.launch.messages import Message
from hccc.launch.remote import Remote, Shell, packed
from hccc.launch.workers import Died, Job, Place, Workers, answer_of, died
from hccc.runtime.communicator.kernels import built
from hccc.runtime.measure.patterns import Pattern
from hccc.runtime.recording import LaunchRecording, joined

PATIENCE_S = 30.0
_BUILD_S = 1800.0  # that hosts have to build
_SETTLE_S = 3.0  # that others have to say what they saw, once one has failed
_REACH = (
    "hosts must reach the first one: HCCC_SOCKET_IFNAME=eth0 or HCCC_BIND=ADDRESS says where its "
    "ranks listen, HCCC_NETWORK=eth0 which device carries data"
)
Variants = Sequence[tuple[str, str]]  # types and reductions


class Processes:
    """All ranks of a library, in processes. A context: its processes end with it.

    each: how many ranks each process has.
    """

    def __init__(self, name: str, collective: Collective, timeout: float, each: int) -> None:
        c = collective
        self._job = Job(name, (c.op.value, c.n_ranks, c.n_chunks, c.root), timeout)
        self._each = each
        self._events: SimpleQueue[tuple[int, Message]] = SimpleQueue()
        self._places: list[Place] = []
        self._workers: list[tuple[Place, int]] = []  # a place and which of its own, by ranks

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ThreadPoolExecutor(max(1, len(self._places))) as pool:
            list(pool.map(lambda place: place.end(orderly=kind is None), self._places))

    def start_here(self, place: Path, variants: Variants, *, trace: bool = False) -> None:
        """Builds the kernels in `place`, and starts processes on this host. trace: whether launches
        can be recorded."""
        library = built(place, *_unique(variants), trace=trace)
        self._start(
            range(self._job.n_ranks),
            lambda groups, heard: Workers(self._job, groups, library, heard),
        )
        self._join(None)

    def start_on(
        self, hosts: Sequence[Host], shell: Shell, place: Path, variants: Variants
    ) -> None:
        """Starts processes on these hosts, which build the kernels in `place`."""
        dtypes, ops = _unique(variants)
        kernels = {"sources": packed(place), "dtypes": dtypes, "ops": ops}
        for host in hosts:
            self._start(
                host.ranks,
                lambda groups, heard, host=host: Remote(
                    host, shell, self._job, groups, kernels, heard
                ),
            )
        self._join(hosts[0].name if len(hosts) > 1 else None)

    def _start(self, ranks: range, started: Callable[..., Place]) -> None:
        """One more place, which has these ranks."""
        firsts = range(ranks.start, ranks.stop, self._each)
        groups = [range(first, first + self._each) for first in firsts]
        before = len(self._workers)
        place = started(groups, lambda k, message: self._events.put((before + k, message)))
        self._places.append(place)
        self._workers += [(place, k) for k in range(len(groups))]

    def _join(self, host: str | None) -> None:
        """The ranks meet in the first process. host: its, by the name that others reach it by."""
        self._answers(range(len(self._workers)), _BUILD_S)  # they have started
        self._tell(0, {"word": "meet", "host": host})
        id = self._answers([0])[0]
        try:
            self.ask("join", id=id)
        except UserError as error:
            if host is None or isinstance(error, Died) or error.problem.help:
                raise
            raise UserError(replace(error.problem, help=_REACH)) from None
        self.ask("load")

    def _tell(self, worker: int, message: Message) -> None:
        place, k = self._workers[worker]
        place.tell(k, message)

    def ask(self, word: str, **arguments: Any) -> list[Any]:
        """What every process answers. Raises what one raised."""
        for worker in range(len(self._workers)):
            self._tell(worker, {"word": word, **arguments})
        return self._answers(range(len(self._workers)))

    def _answers(self, workers: Sequence[int], patience: float = PATIENCE_S) -> list[Any]:
        """The next answers of these, in order. Once one has failed, others have a moment to.
        patience: seconds in which a process that works says that it is there."""
        found: dict[int, Any] = {}
        seen = dict.fromkeys(workers, time.monotonic())
        until = math.inf
        while len(found) < len(workers) and (left := until - time.monotonic()) > 0:
            try:
                worker, message = self._events.get(timeout=min(left, patience / 6))
            except Empty:
                self._look_after([w for w in workers if w not in found], seen, patience)
                continue
            seen[worker] = time.monotonic()
            if "here" in message or worker in found:  # the first error is the reason of others
                continue
            found[worker] = answer_of(message)
            if isinstance(found[worker], UserError):
                until = min(until, time.monotonic() + _SETTLE_S)
        errors = [one for one in found.values() if isinstance(one, UserError)]
        if errors:
            raise _of_all(errors)
        return [found[worker] for worker in workers]

    def _look_after(
        self, workers: Sequence[int], seen: Mapping[int, float], patience: float
    ) -> None:
        """Asks processes whether they are there. One that was stopped is not."""
        for worker in workers:
            if time.monotonic() - seen[worker] > patience:
                place, k = self._workers[worker]
                text = f"{place.called(k)} has not been heard of for {patience:g} s"
                self._events.put((worker, died(Problem("E473", text))))
            else:
                self._tell(worker, {"word": "here"})

    def ranks(self, p: Pattern, in_place: bool, micro_batch: int, window: int) -> ProcessRanks:
        """Memory of all ranks for launches on `p`."""
        fields = _fields(p)
        self.ask("bind", pattern=fields, in_place=in_place, micro_batch=micro_batch, window=window)
        return ProcessRanks(self)


class ProcessRanks:
    """The ranks, and their memory in their processes."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    def fill(self, p: Pattern) -> None:
        """As `perf.Ranks` has it."""
        self._processes.ask("fill", pattern=_fields(p))

    def run(self, launches: int, warmups: int) -> float:
        """The seconds of the slowest rank."""
        return float(max(self._processes.ask("run", launches=launches, warmups=warmups)))

    def record(self, blocks: int, slots: int) -> LaunchRecording:
        """What the kernels of all processes did in a launch, when: their clock is one."""
        found = self._processes.ask("record", blocks=blocks, slots=slots)
        return joined([LaunchRecording.of(fields) for fields in found])

    def wrong(self, p: Pattern, keeps_input: bool) -> int:
        """As `perf.Ranks` has it."""
        return sum(self._processes.ask("wrong", pattern=_fields(p), keeps_input=keeps_input))

    def differences(self, p: Pattern) -> None:
        """There is no other device."""


def shared_out(n_ranks: int, n_processes: int, hosts: Sequence[Host]) -> int:
    """The ranks of each process; without a number of processes each rank has its own.

    Raises:
        UserError: E473 they cannot be as many everywhere.
    """
    each = n_ranks // n_processes if 0 < n_processes <= n_ranks else 1
    if n_processes and n_ranks != each * n_processes:
        message = f"--procs {n_processes}: {n_ranks} ranks cannot be shared out evenly"
        raise fail("E473", message, help=f"--procs {n_ranks}, or what divides it")
    for host in hosts:
        if len(host.ranks) % each:
            message = f"--procs {n_processes}: processes of {each} ranks, and {len(host.ranks)} on"
            raise fail("E473", f"{message} host {host.name}", help="leave --procs out")
    return each


def _unique(variants: Variants) -> tuple[list[str], list[str]]:
    """The types and the reductions."""
    return list(dict.fromkeys(d for d, _ in variants)), list(dict.fromkeys(o for _, o in variants))


def _fields(p: Pattern) -> list[Any]:
    """A pattern without its collective, which every process knows."""
    return [p.dtype, p.op, p.count, p.seed]


def _of_all(errors: Sequence[UserError]) -> UserError:
    """The error to tell: of a process that has gone, if one has, with what another saw of it."""
    gone = [error for error in errors if isinstance(error, Died)]
    if not gone:
        return errors[0]
    problem = gone[0].problem
    seen = [Note(e.problem.message) for e in errors if not isinstance(e, Died)][:1]
    notes = [*problem.notes, *seen]
    return fail(problem.code, problem.message, notes=notes, help=problem.help)
