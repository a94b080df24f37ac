"""Ranks in processes of their own, and their results.

A body is a function of a module, called as body(communicator, *arguments) in every rank's process;
what it returns, or the error that it raises, comes back. Processes are forked from a server that
has nothing of the tests' own process.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hccc.runtime.communicator import Communicator, CommunicatorError, unique_id
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.runtime_library import build
from tests.communicator import stacks

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["hccc.runtime.communicator", "tests.communicator.world", "numpy"])
Body = Callable[..., Any]
_MARKS = "HCCC_TEST_MARKS"  # a directory


@dataclass(frozen=True, slots=True)
class Lost:
    """A rank's call that failed, and how long it took."""

    result: Result
    text: str
    seconds: float


@dataclass(slots=True)
class World:
    """n ranks; some may still run."""

    processes: Sequence[BaseProcess]
    told: Any
    marks: str | None = None

    def outcomes(self, timeout: float = 120, silent: Sequence[int] = ()) -> dict[int, Any]:
        """Returns the results of all ranks but the silent ones, by rank. Raises AssertionError
        after `timeout` seconds, and for any exception of a rank but CommunicatorError."""
        found: dict[int, Any] = {}
        wanted = set(range(len(self.processes))) - set(silent)
        until = time.monotonic() + timeout
        try:
            while wanted - set(found):
                rank, value = self.told.get(timeout=max(0.01, until - time.monotonic()))
                assert not isinstance(value, BaseException), f"rank {rank}: {value!r}"
                found[rank] = value
        except queue.Empty:
            others = {rank: value for rank, value in found.items() if isinstance(value, Lost)}
            lost = self._described(sorted(wanted - set(found)))
            raise AssertionError(f"no word of ranks\n{lost}\n{others}") from None
        finally:
            self.end(silent)
        return found

    def _described(self, ranks: Sequence[int]) -> str:
        lines = []
        for rank in ranks:
            process = self.processes[rank]
            ended = f"ended with {process.exitcode}"
            lines.append(f"{rank}: {stacks.of(process.pid or 0) if process.is_alive() else ended}")
        return "\n".join(lines)

    def end(self, silent: Sequence[int] = ()) -> None:
        """Ends all processes, the silent ones by killing them."""
        for rank in silent:
            self.processes[rank].kill()
        for one in self.processes:
            one.join(timeout=5 if one.is_alive() else None)
            if one.is_alive():
                one.kill()
                one.join()
        if self.marks:
            shutil.rmtree(self.marks, ignore_errors=True)


def start(
    n: int,
    body: Body,
    *arguments: Any,
    environment: Mapping[str, str] | None = None,
    of_rank: Callable[[int], Mapping[str, str]] = lambda rank: {},
) -> World:
    """Starts n processes that join a communicator and call `body`.

    environment: of all of them; of_rank: of each.
    """
    build()
    told = CONTEXT.Queue()
    marks = tempfile.mkdtemp()
    job = {"HCCC_JOB": uuid.uuid4().hex, "HCCC_NRANKS": str(n), _MARKS: marks}
    job.update(environment or {})
    made = []
    for rank in range(n):
        variables = {**job, "HCCC_RANK": str(rank), **of_rank(rank)}
        made.append(CONTEXT.Process(target=_main, args=(rank, variables, body, arguments, told)))
    for one in made:
        one.start()
    return World(made, told, marks)


def run(n: int, body: Body, *arguments: Any, **options: Any) -> list[Any]:
    """Returns the ranks' results, in order."""
    found = start(n, body, *arguments, **options).outcomes()
    return [found[rank] for rank in range(n)]


def mark(rank: int) -> None:
    """Says that this rank, of `start`, is where others wait for it; they need no communicator."""
    Path(os.environ[_MARKS], str(rank)).touch()


def await_marks(ranks: Iterable[int], seconds: float = 20) -> None:
    """Waits until all these ranks have said it; raises AssertionError after `seconds`."""
    until, wanted = time.monotonic() + seconds, {str(rank) for rank in ranks}
    while missing := wanted - set(os.listdir(os.environ[_MARKS])):
        assert time.monotonic() < until, f"ranks that did not come: {sorted(missing)}"
        time.sleep(0.01)


def _main(rank: int, variables: Mapping[str, str], body: Body, arguments: Any, told: Any) -> None:
    stacks.ready()
    os.environ.update({"HCCC_TIMEOUT": "50", "HCCC_STANDARD": "0", **variables})
    started = time.monotonic()
    try:
        with Communicator.from_environment() as communicator:
            value = body(communicator, *arguments)
    except CommunicatorError as error:
        value = Lost(error.result, error.text, time.monotonic() - started)
    except BaseException as error:
        value = RuntimeError(f"{type(error).__name__}: {error}")
    told.put((rank, value))
    told.close()
    told.join_thread()


def alone(body: Body, *arguments: Any) -> Any:
    """Returns a function's result from a process of its own, without a communicator."""
    build()
    told = CONTEXT.Queue()
    made = CONTEXT.Process(target=_alone, args=(body, arguments, told))
    made.start()
    return World([made], told).outcomes()[0]


def _alone(body: Body, arguments: Any, told: Any) -> None:
    os.environ.update({"HCCC_TIMEOUT": "50", "HCCC_STANDARD": "0"})
    try:
        value = body(*arguments)
    except BaseException as error:
        value = RuntimeError(f"{type(error).__name__}: {error}")
    told.put((0, value))
    told.close()
    told.join_thread()


def in_threads(n: int, body: Body, *arguments: Any) -> list[Any]:
    """Returns the ranks' results as `run` does, with threads of one process as ranks."""
    found: list[Any] = alone(_threads, n, body, arguments)
    for rank, value in enumerate(found):
        assert not isinstance(value, BaseException), f"rank {rank}: {value!r}"
    return found


def _threads(n: int, body: Body, arguments: Any) -> list[Any]:
    id = unique_id()

    def rank(me: int) -> Any:
        started = time.monotonic()
        try:
            with Communicator.join(id, n, me) as communicator:
                return body(communicator, *arguments)
        except CommunicatorError as error:
            return Lost(error.result, error.text, time.monotonic() - started)
        except BaseException as error:
            return RuntimeError(f"{type(error).__name__}: {error}")

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(rank, range(n)))


def loaded(communicator: Communicator, *places: Path) -> Communicator:
    """Loads the libraries of these directories, float32 and int32."""
    for place in places:
        communicator.load(place, ["float32", "int32"], ["sum", "max"])
    return communicator
