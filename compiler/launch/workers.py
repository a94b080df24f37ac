"""workers: the processes of ranks on this host."""

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

END_S = 10.0  # that a process has to end
# The same hccc as this process has: what it imports from comes as arguments.
_CODE = "import sys; sys.path[:] = sys.argv[1:]; from hccc.launch.worker import main; main()"


class Died(UserError):
    """A process of the run has ended before it was told to, or cannot be reached."""


# (which worker, what it answers: `value` or `error`)
Heard = Callable[[int, Message], None]


@dataclass(frozen=True, slots=True)
class Job:
    """What a run's processes are for. collective: the fields of a Collective, timeout: seconds a
    launch waits."""

    name: str
    collective: tuple[str, int, int, int]
    timeout: float

    @property
    def n_ranks(self) -> int:
        """All ranks."""
        return self.collective[1]


class Place(Protocol):
    """The processes of a host."""

    def tell(self, worker: int, message: Message) -> None:
        """Says something to one of them."""

    def called(self, worker: int) -> str:
        """What errors call it."""
        ...

    def end(self, orderly: bool) -> None:
        """Ends them. orderly: after their ranks have left their communicators."""


class Workers:
    """Processes of this host, one for each group of ranks."""

    def __init__(
        self, job: Job, groups: Sequence[Sequence[int]], library: Path, heard: Heard
    ) -> None:
        self._groups, self._heard = groups, heard
        self._children: list[Child] = []
        self._ending = False
        build()  # once, and not in each of them
        command = [sys.executable, "-P", "-c", _CODE, *sys.path]
        start = {"word": "start", **asdict(job), "n_ranks": job.n_ranks, "library": str(library)}
        start["n_near"] = sum(map(len, groups))
        for k, ranks in enumerate(groups):
            child = Child(command, lambda message, k=k: self._hears(k, message))  # type: ignore[misc]
            self._children.append(child)
            child.begin()
            child.tell({**start, "ranks": list(ranks)})

    def tell(self, worker: int, message: Message) -> None:
        """Says something to one of them."""
        self._children[worker].tell(message)

    def called(self, worker: int) -> str:
        """What errors call it."""
        return f"the process of {named(self._groups[worker])}"

    def end(self, orderly: bool) -> None:
        """Ends them."""
        self._ending = True
        for child in self._children:
            if orderly:
                child.tell({"word": "end"})
            child.hang_up()
        for child in self._children:
            child.end(END_S)

    def _hears(self, k: int, message: Message | None) -> None:
        if message is not None:
            self._heard(k, message)
        elif not self._ending:
            how = how_it_ended(self._children[k].exit_code())
            self._heard(k, died(Problem("E473", f"{self.called(k)} {how}")))


def died(problem: Problem) -> Message:
    """What is heard of a worker that answers no more."""
    return {"error": {**fields_of(UserError(problem)), "died": True}}


def answer_of(message: Message) -> Any:
    """The value that a worker answers, or the error."""
    if "error" not in message:
        return message["value"]
    error = error_of(message["error"])
    return Died(error.problem) if message["error"].get("died") else error


def named(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 4 to 7`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {ranks[0]} to {ranks[-1]}"
