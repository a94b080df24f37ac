"""workers: the processes of the ranks on this host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from hccc.base.diagnostics import Problem, UserError
from hccc.launch.child import Child, how_it_ended
from hccc.launch.messages import Message, error_of, fields_of
from hccc.runtime.communicator.runtime_library import build

END_S = 10.0  # in which a process ends
LOST_S = 0.5  # after a failure, when it may be stopped and hear nothing
# The same hccc as in this process: the module search path comes as arguments.
_CODE = "import sys; sys.path[:] = sys.argv[1:]; from hccc.launch.worker import main; main()"


class Died(UserError):
    """A process of the run ended before it was asked to, or cannot be reached."""


# (worker, its answer: `value` or `error`)
OnMessage = Callable[[int, Message], None]


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """The job of a run's processes. collective: the fields of a Collective, its demand as a text;
    timeout: seconds a launch waits; job: a Job as JSON, "" where they load a library; vendors:
    whose library, and which file of it, serves each rank; micro_batches: of its calls of so many
    bytes or more."""

    name: str
    collective: tuple[str, int, int, int, bool, str]
    timeout: float
    job: str = ""
    vendors: tuple[tuple[str, str], ...] = ()
    micro_batches: tuple[tuple[int, int], ...] = ()

    @property
    def n_ranks(self) -> int:
        """All ranks."""
        return self.collective[1]


class HostProcesses(Protocol):
    """The processes of a host."""

    def send(self, worker: int, message: Message) -> None:
        """Sends a message to one of the processes."""

    def name_of(self, worker: int) -> str:
        """Returns the name of one of the processes, for errors."""
        ...

    def end(self, orderly: bool) -> None:
        """Ends the processes. orderly: after their ranks have left their communicators."""


class Workers:
    """The processes of this host, one for each group of ranks."""

    def __init__(
        self,
        job: WorkerTask,
        groups: Sequence[Sequence[int]],
        library: Path | None,
        on_message: OnMessage,
    ) -> None:
        """Starts the processes. library: of kernels; None: they run a job."""
        self._groups, self._on_message = groups, on_message
        self._children: list[Child] = []
        self._ending = False
        build()  # once, and not in each of them
        command = [sys.executable, "-P", "-c", _CODE, *sys.path]
        start = {
            "word": "start",
            **asdict(job),
            "n_ranks": job.n_ranks,
            "library": str(library or ""),
        }
        start["near"] = [groups[0][0], sum(map(len, groups))]
        for k, ranks in enumerate(groups):
            child = Child(command, lambda message, k=k: self._receive(k, message))  # type: ignore[misc]
            self._children.append(child)
            child.begin()
            child.send({**start, "ranks": list(ranks)})

    def send(self, worker: int, message: Message) -> None:
        """Sends a message to one of the processes."""
        self._children[worker].send(message)

    def name_of(self, worker: int) -> str:
        """Returns the name of one of the processes, for errors."""
        return f"the process of {named(self._groups[worker])}"

    def end(self, orderly: bool) -> None:
        """Ends the processes."""
        self._ending = True
        for child in self._children:
            if orderly:
                child.send({"word": "end"})
            child.close_input()
        for child in self._children:
            child.end(END_S if orderly else LOST_S)

    def _receive(self, k: int, message: Message | None) -> None:
        if message is not None:
            self._on_message(k, message)
        elif not self._ending:
            how = how_it_ended(self._children[k].exit_code())
            self._on_message(k, died(Problem("E473", f"{self.name_of(k)} {how}")))


def died(problem: Problem) -> Message:
    """Returns the message that stands for a worker that cannot answer any more."""
    return {"error": {**fields_of(UserError(problem)), "died": True}}


def answer_of(message: Message) -> Any:
    """Returns the value in a worker's answer, or the error."""
    if "error" not in message:
        return message["value"]
    error = error_of(message["error"])
    return Died(error.problem) if message["error"].get("died") else error


def named(ranks: Sequence[int]) -> str:
    """Writes ranks as `rank 3` or `ranks 4 to 7`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {ranks[0]} to {ranks[-1]}"
