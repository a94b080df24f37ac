"""Ranks as processes: each runs a function and sends back its result or error."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from hccc.runtime.bootstrap.rendezvous import library, unique_id
from tests.bootstrap.client import BootstrapClient

WAIT_S = 20.0  # a longer wait is a failure
_FORK = multiprocessing.get_context("fork")


class RankContext:
    """The argument of a rank's function."""

    def __init__(self, rank: int, n_ranks: int, id: bytes, connection: Connection) -> None:
        self.rank = rank
        self.n_ranks = n_ranks
        self.id = id
        self._connection = connection

    def open(self, timeout: float = WAIT_S) -> BootstrapClient:
        """Meets the others."""
        return BootstrapClient(self.id, self.n_ranks, self.rank, timeout)

    def say(self, value: Any) -> None:
        """Tells the test something."""
        self._connection.send(("said", value))

    def wait(self) -> None:
        """Returns once the test says `go`."""
        self._connection.recv()


class RankProcess:
    """A rank's process as the test sees it."""

    def __init__(
        self,
        body: Callable[..., Any],
        me: tuple[int, int, bytes],
        given: tuple[Any, ...],
        environment: Mapping[str, str],
    ) -> None:
        self._connection, other = _FORK.Pipe()
        self.process = _FORK.Process(target=_run, args=(body, me, other, given, environment))
        self.process.start()
        other.close()

    def _next(self, kind: str) -> Any:
        if not self._connection.poll(WAIT_S):
            raise AssertionError("a rank says nothing")
        got, value = self._connection.recv()
        assert got == kind, value
        return value

    def said(self) -> Any:
        """Returns the rank's next message."""
        return self._next("said")

    def go(self) -> None:
        """Ends its `wait`."""
        self._connection.send("go")

    def result(self) -> Any:
        """Returns the function's result."""
        value = self._next("returned")
        self.process.join(WAIT_S)
        assert self.process.exitcode == 0
        return value

    def kill(self) -> None:
        """Kills the rank as `kill -9` does."""
        assert self.process.pid
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(WAIT_S)

    def end(self) -> None:
        """Leaves nothing behind, whatever happened."""
        self.process.kill()
        self.process.join()
        self._connection.close()


class Job:
    """Some ranks of a job; on leaving, none is left."""

    def __init__(
        self,
        body: Callable[..., Any],
        n_ranks: int,
        *given: Any,
        id: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        of_rank: Callable[[int], Mapping[str, str]] | None = None,
        ranks: range | None = None,
    ) -> None:
        library()  # built once
        self.id = unique_id() if id is None else id
        which = range(n_ranks) if ranks is None else ranks
        self.ranks = {
            r: RankProcess(
                body,
                (r, n_ranks, self.id),
                given,
                {**(environment or {}), **(of_rank(r) if of_rank else {})},
            )
            for r in which
        }

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks.values():
            rank.end()

    def results(self) -> list[Any]:
        """Returns the function's result at every rank."""
        return [rank.result() for rank in self.ranks.values()]

    def said(self) -> list[Any]:
        """Returns every rank's next message."""
        return [rank.said() for rank in self.ranks.values()]


def run(body: Callable[..., Any], n_ranks: int, *given: Any, **options: Any) -> list[Any]:
    """Returns the result of `body(me, *given)` at every rank."""
    with Job(body, n_ranks, *given, **options) as job:
        return job.results()


def _run(
    body: Callable[..., Any],
    me: tuple[int, int, bytes],
    connection: Connection,
    given: tuple[Any, ...],
    environment: Mapping[str, str],
) -> None:
    os.environ.update(environment)
    try:
        value = body(RankContext(*me, connection), *given)
    except BaseException:
        connection.send(("failed", traceback.format_exc()))
        raise
    connection.send(("returned", value))


def departure_within(b: BootstrapClient, seconds: float) -> tuple[int, bool] | None:
    """Returns the next departure, or None after `seconds`."""
    until = time.monotonic() + seconds
    while (found := b.departure()) is None and (left := until - time.monotonic()) > 0:
        select.select([b], [], [], left)
    return found
