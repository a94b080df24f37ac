"""processes: runs the ranks of `hccc run --procs` and `--hosts` in worker processes.

Ranks' memory belongs to the processes (`hccc.runtime.communicator`); each makes its data and checks
its results itself. `Workers` and `Remote` start the processes.
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
from hccc.base.progress import tell
from hccc.ir.collective import Collective
from hccc.launch.hosts import Host
from hccc.launch.messages import Message
from hccc.launch.remote import Remote, Shell, pack, start_of
from hccc.launch.workers import Died, HostProcesses, Workers, WorkerTask, answer_of, died
from hccc.runtime.communicator.kernels import built
from hccc.runtime.measure.patterns import Pattern
from hccc.runtime.recording import LaunchRecording, joined

ANSWER_S = 30.0  # in which a working process must show that it lives, at most
_LEAST_ANSWER_S = 5.0  # a process that counts errors in large buffers is slow to answer
_BUILD_S = 1800.0  # in which hosts build
_SETTLE_S = 1.0  # that other processes have to answer, once one has failed
_REACH = (
    "hosts must reach the first one: HCCC_SOCKET_IFNAME=eth0 or HCCC_BIND=ADDRESS says where its "
    "ranks listen, HCCC_NETWORK=eth0 which device carries data"
)
Variants = Sequence[tuple[str, str]]  # types and reductions


class RankProcesses:
    """All ranks of a library or a job, in processes. A context manager: its processes end with it.

    each: the number of ranks in each process.
    """

    def __init__(self, job: WorkerTask, each: int) -> None:
        self._job, timeout = job, job.timeout
        self._answer_s = min(ANSWER_S, max(_LEAST_ANSWER_S, timeout + 2)) if timeout else ANSWER_S
        self._each = each
        self._events: SimpleQueue[tuple[int, Message]] = SimpleQueue()
        self._places: list[HostProcesses] = []
        self._workers: list[tuple[HostProcesses, int]] = []  # a host and the index in it, by ranks

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
        self._start_here(built(place, *_unique(variants), trace=trace))

    def start_job(self, hosts: Sequence[Host], shell: Shell) -> None:
        """Starts processes that run the job: on hosts, or, without any, on this one."""
        if hosts:
            self._start_on(hosts, shell, {})
        else:
            self._start_here(None)

    def _start_here(self, library: Path | None) -> None:
        self._start(
            range(self._job.n_ranks),
            lambda groups, on_message: Workers(self._job, groups, library, on_message),
        )
        self._join(None)

    def start_on(
        self, hosts: Sequence[Host], shell: Shell, place: Path, variants: Variants
    ) -> None:
        """Starts processes on these hosts, which build the kernels in `place`."""
        dtypes, ops = _unique(variants)
        self._start_on(hosts, shell, {"sources": pack(place), "dtypes": dtypes, "ops": ops})

    def _start_on(self, hosts: Sequence[Host], shell: Shell, kernels: Message) -> None:
        for host in hosts:
            self._start(
                host.ranks,
                lambda groups, on_message, host=host: Remote(
                    host, shell, groups, start_of(self._job, groups, kernels), on_message
                ),
            )
        self._join(hosts[0].name if len(hosts) > 1 else None)

    def _start(self, ranks: range, started: Callable[..., HostProcesses]) -> None:
        """Starts the processes of one more host, for these ranks."""
        firsts = range(ranks.start, ranks.stop, self._each)
        groups = [range(first, first + self._each) for first in firsts]
        before = len(self._workers)
        place = started(groups, lambda k, message: self._events.put((before + k, message)))
        self._places.append(place)
        self._workers += [(place, k) for k in range(len(groups))]

    def _join(self, host: str | None) -> None:
        """Lets the ranks meet in the first process. host: the name by which others reach that
        process."""
        several = len(self._workers) > 1
        tell(f"Starting {len(self._workers)} process{'es' * several}")
        self._answers(range(len(self._workers)), _BUILD_S)  # they have started
        tell("Letting the ranks meet")
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
        place.send(k, message)

    def ask(self, word: str, **arguments: Any) -> list[Any]:
        """Sends a message to every process; returns their answers. Raises the error of a
        process."""
        for worker in range(len(self._workers)):
            self._tell(worker, {"word": word, **arguments})
        return self._answers(range(len(self._workers)))

    def _answers(self, workers: Sequence[int], timeout: float | None = None) -> list[Any]:
        """Collects the next answers of these workers, in order. After one has failed, the others
        have a moment to answer.

        timeout: seconds in which a working process must show that it lives; by default those of a
        call, and two more.
        """
        timeout = self._answer_s if timeout is None else timeout
        answers: dict[int, Any] = {}
        seen = dict.fromkeys(workers, time.monotonic())
        until = math.inf
        while len(answers) < len(workers) and (left := until - time.monotonic()) > 0:
            try:
                worker, message = self._events.get(timeout=min(left, timeout / 6))
            except Empty:
                self._check_alive([w for w in workers if w not in answers], seen, timeout)
                continue
            seen[worker] = time.monotonic()
            if "here" in message or worker in answers:  # the first error causes the others
                continue
            answers[worker] = answer_of(message)
            if isinstance(answers[worker], UserError):
                until = min(until, time.monotonic() + _SETTLE_S)
        errors = [answer for answer in answers.values() if isinstance(answer, UserError)]
        if errors:
            raise _of_all(errors)
        return [answers[worker] for worker in workers]

    def _check_alive(
        self, workers: Sequence[int], seen: Mapping[int, float], timeout: float
    ) -> None:
        """Asks silent processes for a sign of life; one silent for longer than `timeout` is
        reported dead."""
        for worker in workers:
            if time.monotonic() - seen[worker] > timeout:
                place, k = self._workers[worker]
                text = f"{place.name_of(k)} has not been heard of for {timeout:g} s"
                self._events.put((worker, died(Problem("E473", text))))
            else:
                self._tell(worker, {"word": "here"})

    def ranks(self, p: Pattern, in_place: bool, micro_batch: int, window: int) -> ProcessRanks:
        """Binds memory of all ranks for launches on `p`."""
        fields = _fields(p)
        self.ask("bind", pattern=fields, in_place=in_place, micro_batch=micro_batch, window=window)
        return ProcessRanks(self)


class ProcessRanks:
    """Ranks in processes, with their memory: `perf.Ranks`."""

    def __init__(self, processes: RankProcesses) -> None:
        self._processes = processes

    def fill(self, p: Pattern) -> None:
        """Fills the buffers, as `perf.Ranks`."""
        self._processes.ask("fill", pattern=_fields(p))

    def run(self, launches: int, warmups: int) -> float:
        """Launches; returns the seconds of the slowest rank."""
        return float(max(self._processes.ask("run", launches=launches, warmups=warmups)))

    def record(self, blocks: int, slots: int) -> LaunchRecording:
        """Records a launch of all processes, on their common clock."""
        found = self._processes.ask("record", blocks=blocks, slots=slots)
        return joined([LaunchRecording.of(fields) for fields in found])

    def wrong(self, p: Pattern, keeps_input: bool) -> int:
        """Returns the number of wrong elements, as `perf.Ranks`."""
        return sum(self._processes.ask("wrong", pattern=_fields(p), keeps_input=keeps_input))

    def differences(self, p: Pattern) -> None:
        """Returns None: there is no other device to compare with."""


def task_of(c: Collective, name: str, timeout: float) -> WorkerTask:
    """Returns the task of ranks that load a library of a name."""
    demand = c.demand.text() if c.demand else ""
    fields = (c.op.value, c.n_ranks, c.n_chunks, c.root, c.uneven, demand)
    return WorkerTask(name, fields, timeout)


def shared_out(n_ranks: int, n_processes: int, hosts: Sequence[Host]) -> int:
    """Returns the number of ranks in each process; by default, each rank has its own.

    Raises:
        UserError: E473 the ranks cannot be shared out evenly.
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
    """Returns the distinct types and the distinct reductions."""
    return list(dict.fromkeys(d for d, _ in variants)), list(dict.fromkeys(o for _, o in variants))


def _fields(p: Pattern) -> list[Any]:
    """Returns the fields of a pattern without its collective, which every process knows; of blocks
    their lengths."""
    lengths = None if p.blocks is None else p.blocks.lengths.tolist()
    return [p.dtype, p.op, p.count, p.seed, lengths]


def _of_all(errors: Sequence[UserError]) -> UserError:
    """Chooses the error to report: of a process that died, if any, with another's view of it as a
    note."""
    gone = [error for error in errors if isinstance(error, Died)]
    if not gone:
        return errors[0]
    problem = gone[0].problem
    seen = [Note(e.problem.message) for e in errors if not isinstance(e, Died)][:1]
    notes = [*problem.notes, *seen]
    return fail(problem.code, problem.message, notes=notes, help=problem.help)
