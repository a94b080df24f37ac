"""launch: runs a command on all its ranks, here or on other hosts, until all have ended.

When a rank fails, the others have a while to see it and to say so; then they are stopped.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from queue import Empty, SimpleQueue
from typing import NoReturn

from hccc.base.diagnostics import Note, Problem, UserError, fail
from hccc.ir.ranks import named_runs
from hccc.launch.child import how_it_ended
from hccc.launch.hosts import Host
from hccc.launch.messages import Message, error_of
from hccc.launch.rank_commands import Processes, RankCommand, root_here
from hccc.launch.remote import Remote, Shell, variables

GRACE_S = 5.0  # that ranks have to end by themselves once one has failed
STOP_S = 3.0  # and again after SIGTERM
_ROOT_S = 90.0  # in which the first host says where ranks meet; it has 60 to start
Events = SimpleQueue[tuple[int, Message]]  # a rank and its message
OnLine = Callable[[int, str, int], None]  # a rank, its output, and 1 (stdout) or 2 (stderr)


def launch(
    command: RankCommand,
    hosts: Sequence[Host] = (),
    shell: Shell | None = None,
    *,
    label: bool = False,
    on_line: OnLine | None = None,
) -> None:
    """Runs a command. hosts: where, in order of ranks; none: here. label: each line of output
    begins with its rank. on_line: gets the output of ranks on hosts, which is not printed then.

    Raises:
        UserError: E475 a rank failed; E474 a host cannot be reached; E476 the command cannot be
            started.
    """
    events: Events = SimpleQueue()
    with _started(command, hosts, shell, label, events) as stop:
        _Job(
            command.n_ranks, hosts, on_line or _printer(command.n_ranks, label), events, stop
        ).wait()


@contextmanager
def _started(
    command: RankCommand, hosts: Sequence[Host], shell: Shell | None, label: bool, events: Events
) -> Iterator[Callable[[int], None]]:
    """Starts a command; yields what sends a signal to all its ranks."""
    if shell is None:
        placed = replace(command, root=root_here(None))
        processes = Processes(
            placed,
            range(command.n_ranks),
            lambda *event: events.put(event),
            piped=label or not sys.stdout.isatty(),  # whole lines: those of ranks do not mix
            reads=True,
        )
        try:
            yield processes.signal
        finally:
            processes.signal(signal.SIGKILL)
        return
    remotes: list[Remote] = []
    try:
        name = hosts[0].name if len(hosts) > 1 else None
        remotes += (_remote(host, shell, name, events) for host in hosts)
        placed = replace(command, root=_root(events), environment=variables())
        for host, remote in zip(hosts, remotes, strict=True):
            ranks = [host.ranks.start, host.ranks.stop]
            remote.tell({"word": "command", "command": asdict(placed), "ranks": ranks})

        def stop(number: int) -> None:
            for remote in remotes:
                remote.tell({"word": "signal", "number": number})

        yield stop
    finally:
        for remote in remotes:
            remote.tell({"word": "signal", "number": signal.SIGKILL})
            remote.end(orderly=True)


def _printer(n_ranks: int, label: bool) -> OnLine:
    """Returns what prints the output of ranks, each line with its rank if it has a label."""

    def on_line(rank: int, text: str, to: int) -> None:
        before = f"[{rank:{len(str(n_ranks - 1))}}] " if label else ""
        end = "\n" if label and not text.endswith("\n") else ""
        print(before + text, end=end, file=sys.stdout if to == 1 else sys.stderr, flush=True)

    return on_line


def _remote(host: Host, shell: Shell, name: str | None, events: Events) -> Remote:
    groups = [range(rank, rank + 1) for rank in host.ranks]
    first = {"word": "root", "host": name}
    start = host.ranks.start
    return Remote(host, shell, groups, first, lambda k, message: events.put((start + k, message)))


def _root(events: Events) -> tuple[str, int]:
    """Returns where ranks meet, as the first host says. Raises the error of a host."""
    until = time.monotonic() + _ROOT_S
    while (left := until - time.monotonic()) > 0:
        try:
            rank, message = events.get(timeout=left)
        except Empty:
            break
        if "error" in message:
            raise error_of(message["error"])
        if rank == 0 and "root" in message:
            address, port = message["root"]
            return str(address), int(port)
    raise fail("E474", "the first host does not say where ranks meet")


class _Job:
    """The ranks of a command that runs."""

    def __init__(
        self,
        n_ranks: int,
        hosts: Sequence[Host],
        on_line: OnLine,
        events: Events,
        stop: Callable[[int], None],
    ) -> None:
        self._n, self._hosts, self._on_line = n_ranks, hosts, on_line
        self._events, self._stop = events, stop
        self._ended: dict[int, int | None] = {}
        self._failed: tuple[int, UserError] | None = None  # the first rank, and how
        self._stopped: list[int] = []
        self._signals = [signal.SIGTERM, signal.SIGKILL]
        self._until: float | None = None  # when the next of them is sent

    def wait(self) -> None:
        """Waits until all ranks have ended. Raises UserError of the first that failed."""
        try:
            while len(self._ended) < self._n and self._signals:
                self._step()
        except KeyboardInterrupt:
            self._interrupted()
        if self._failed:
            self._raise(*self._failed)

    def _step(self) -> None:
        left = None if self._until is None else max(0.0, self._until - time.monotonic())
        try:
            self._hear(*self._events.get(timeout=left))
        except Empty:
            self._stopped = self._stopped or [r for r in range(self._n) if r not in self._ended]
            self._stop(self._signals.pop(0))
            self._until = time.monotonic() + STOP_S

    def _hear(self, rank: int, message: Message) -> None:
        if "out" in message:
            self._on_line(rank, message["out"], message["to"])
        elif "error" in message:
            self._end(rank, None, error_of(message["error"]))
        elif "exit" in message:
            code = int(message["exit"])
            how = UserError(Problem("E475", f"{self._name(rank)} {how_it_ended(code)}"))
            self._end(rank, code, how if code else None)

    def _end(self, rank: int, code: int | None, failure: UserError | None) -> None:
        self._ended.setdefault(rank, code)
        if failure and not self._failed:
            self._failed, self._until = (rank, failure), time.monotonic() + GRACE_S

    def _name(self, rank: int) -> str:
        where = next((f" on {host.name}" for host in self._hosts if rank in host.ranks), "")
        return f"rank {rank}{where}"

    def _interrupted(self) -> NoReturn:
        """Passes Ctrl-C on; ranks that do not end are stopped. Raises KeyboardInterrupt."""
        self._stop(signal.SIGINT)
        self._until = self._until or time.monotonic() + STOP_S
        while len(self._ended) < self._n and self._signals:
            self._step()
        raise KeyboardInterrupt

    def _raise(self, first: int, failure: UserError) -> NoReturn:
        notes = list(failure.problem.notes)
        others = {r: code for r, code in self._ended.items() if r not in (first, *self._stopped)}
        if also := [r for r, code in others.items() if code]:
            notes.append(Note(f"{_ranks(also)} failed after it"))
        if self._stopped:
            notes.append(Note(f"{_ranks(self._stopped)} did not end in {GRACE_S:g} s: stopped"))
        raise UserError(replace(failure.problem, notes=tuple(notes)))


def _ranks(ranks: Sequence[int]) -> str:
    names = ", ".join(named_runs("", sorted(ranks), 0))
    return f"rank{'s' * (len(ranks) > 1)} {names}"
