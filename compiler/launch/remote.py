"""remote: the processes of ranks on another host, started over a remote shell.

`ssh` runs one command there, `python -P -m hccc.launch.host`, which gets everything through its
standard input: sources of kernels, variables, later the secret by which ranks meet. The kernels are
built there, for the processor and with the compiler of that host.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import sys
import threading
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hccc.base.diagnostics import Note, Problem, fail
from hccc.base.files.libraries import FOLDER
from hccc.base.version import __version__
from hccc.launch.child import Child, how_it_ended
from hccc.launch.hosts import Host
from hccc.launch.messages import PROTOCOL, Message
from hccc.launch.workers import END_S, LOST_S, OnMessage, WorkerTask, died, named

# No terminal, no X11, no questions; a host that stops answering is noticed within 15 s.
SSH = (
    "ssh -T -x -o BatchMode=yes -o ConnectTimeout=10 "
    "-o ServerAliveInterval=5 -o ServerAliveCountMax=3"
)
_START_S = 60.0  # until hccc answers over the remote shell
_UNREACHED = 255  # the exit code of ssh if the command did not run
HOST = ("-P", "-m", "hccc.launch.host")
_SENT = frozenset({".h", ".inc", ".cpp", ".json"})
_VARIABLE = re.compile(r"(?:HCCC|UCX)_[A-Z0-9_]{1,60}")
# Variables with values of this host or of another job.
_OWN = frozenset(
    {
        "HCCC_RANK",
        "HCCC_NRANKS",
        "HCCC_LOCAL_RANK",
        "HCCC_LOCAL_NRANKS",
        "HCCC_ROOT",
        "HCCC_JOB",
        "HCCC_ROOT_PORT",
        "HCCC_SECRET",
        "HCCC_SECRET_FILE",
        "HCCC_HOST_ID",
        "HCCC_RSH",
        "HCCC_REMOTE_PYTHON",
    }
)


@dataclass(frozen=True, slots=True)
class Shell:
    """How to reach hosts. command: of the remote shell, before the host; python: the interpreter
    there."""

    command: tuple[str, ...]
    python: str

    @classmethod
    def of(cls, rsh: str | None, python: str | None) -> Shell:
        """Returns the shell of the options, else of the variables, else `ssh` and this
        interpreter's path. Raises UserError E474 for text that is no command."""
        text = rsh or os.environ.get("HCCC_RSH") or SSH
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise fail("E474", f"the remote shell {text!r} is no command: {error}") from None
        if not words:
            raise fail("E474", f"the remote shell {text!r} is no command")
        named = python or os.environ.get("HCCC_REMOTE_PYTHON") or sys.executable
        return cls(words, named)

    def line(self, login: str) -> list[str]:
        """Returns the command that starts the processes of a host; ssh joins the words after the
        host for a shell there."""
        return [*self.command, login, *map(shlex.quote, (self.python, *HOST))]


class Remote:
    """The processes of a remote host, one for each group of its ranks."""

    def __init__(
        self,
        host: Host,
        shell: Shell,
        groups: Sequence[range],
        first: Message,
        on_message: OnMessage,
    ) -> None:
        """Starts the remote shell. groups: the ranks of each process; first: the first message that
        `hccc.launch.host` gets."""
        self._host, self._on_message, self._groups = host, on_message, groups
        self._python, self._shell = shell.python, shell.command[0]
        self._ending = self._welcome = False
        self._first = first
        command = shell.line(host.login)
        try:
            self._child = Child(command, self._receive, keeps_errors=True)
        except OSError as error:
            message = f"{command[0]} cannot be run: {error.strerror}"
            raise fail("E474", message, help="--rsh, or HCCC_RSH, names another") from None
        self._late = threading.Timer(_START_S, self._is_late)
        self._late.daemon = True
        self._late.start()
        self._child.begin()

    def send(self, worker: int, message: Message) -> None:
        """Sends a message to one of the processes."""
        self.tell({"word": "tell", "to": worker, "message": message})

    def tell(self, message: Message) -> None:
        """Sends a message to `hccc.launch.host` itself."""
        self._child.send(message)

    def name_of(self, worker: int) -> str:
        """Returns the name of one of the processes, for errors."""
        return f"{self._where}: the process of {named(self._groups[worker])}"

    def end(self, orderly: bool) -> None:
        """Ends the processes."""
        self._ending = True
        self._late.cancel()
        if orderly:
            self._child.send({"word": "end"})
        # If nothing has started, nobody listens; else the ranks get time to end, then the host.
        self._child.end(0 if not self._welcome else 2 * END_S if orderly else LOST_S)

    def _receive(self, message: Message | None) -> None:
        if message is None:
            if not self._ending:
                self._all(died(self._gone()))
        elif not self._welcome:
            self._check(message)
        else:
            try:
                worker, answer = message["from"], message["message"]
                if "error" in answer:
                    answer["error"]["message"] = f"{self._where}: {answer['error']['message']}"
            except (LookupError, TypeError) as error:
                raise ValueError("no message of hccc") from error
            self._on_message(worker, answer)

    @property
    def _where(self) -> str:
        return f"host {self._host.name}"

    def _all(self, message: Message) -> None:
        for worker in range(len(self._groups)):
            self._on_message(worker, message)

    def _is_late(self) -> None:
        if not self._welcome:
            message = f"{self._where}: hccc did not start there within {_START_S:g} s"
            self._all(died(Problem("E474", message, notes=self._notes())))

    def _check(self, hello: Message) -> None:
        """Sends the job, if the host has the same version of hccc."""
        self._welcome = True
        self._late.cancel()
        if hello.get("protocol") == PROTOCOL and hello.get("version") == __version__:
            self._child.send(self._first)
            self._first = {}
            return
        there = f"hccc {hello.get('version')} (protocol {hello.get('protocol')})"
        message = f"{self._where} has {there}, this is {__version__} (protocol {PROTOCOL})"
        help = "install the same there, or name its interpreter with --remote-python"
        self._all(died(Problem("E474", message, help=help)))

    def _gone(self) -> Problem:
        """Describes the end of the remote shell, or of the program it ran."""
        code, notes = self._child.exit_code(), self._notes()
        how = how_it_ended(code)
        if self._welcome:
            return Problem("E473", f"{self._where}: what ran there {how}", notes=notes)
        message = f"{self._where}: hccc did not start there: the remote shell {how}"
        help = f"`{self._python}` must be a Python with hccc there (--remote-python names another)"
        if code == _UNREACHED:
            help = f"`{self._shell} {self._host.login} true` must work, without a question"
        return Problem("E474", message, notes=notes, help=help)

    def _notes(self) -> tuple[Note, ...]:
        printed = self._child.printed()
        return (Note(f"it printed: {printed}"),) if printed else ()


def start_of(job: WorkerTask, groups: Sequence[range], kernels: Message) -> Message:
    """Returns the message that has a host build kernels and start ranks. kernels: `sources` made by
    `pack`, and the `dtypes` and `ops` to build; empty where ranks run a job."""
    return {
        "word": "job",
        "job": asdict(job),
        "groups": [list(ranks) for ranks in groups],
        "environment": variables(),
        **kernels,
    }


def pack(place: Path) -> str:
    """Packs the sources of a directory of kernels into text; `hccc.launch.host` unpacks them."""
    sources = {
        path.relative_to(place).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(place.rglob("*"))
        if path.suffix in _SENT and path.is_file() and FOLDER not in path.relative_to(place).parts
    }
    text = json.dumps(sources, ensure_ascii=False).encode()
    return base64.b64encode(zlib.compress(text)).decode()


def variables() -> dict[str, str]:
    """Returns hccc's and UCX's environment variables that the ranks of all hosts need."""
    return {
        name: value
        for name, value in os.environ.items()
        if _VARIABLE.fullmatch(name) and name not in _OWN
    }
