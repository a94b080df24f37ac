"""rank_commands: runs any command in one process per rank, with what launchers say to ranks.

The variables are those of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...) and hccc's own,
so that `Communicator.from_environment()`, `hcccCommInitRank` and `torch.distributed` find their
ranks. On other hosts `hccc.launch.host` starts the processes.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from hccc.base.diagnostics import fail
from hccc.launch.addresses import address_of
from hccc.launch.messages import Message

LOOPBACK = "127.0.0.1"
_PARENT_GONE = 1  # PR_SET_PDEATHSIG
_LINE = 1 << 16  # bytes of output that are passed on at once
_TRIES = 100


@dataclass(frozen=True, slots=True)
class RankCommand:
    """A command and where its ranks meet. words: its words; module: whether the first is a Python
    module; root: an address of rank 0's host and a port of it, the next one is free too."""

    words: tuple[str, ...]
    module: bool
    n_ranks: int
    directory: str
    environment: Mapping[str, str] = field(default_factory=dict)
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    root: tuple[str, int] = ("", 0)

    def here(self) -> list[str]:
        """Returns its words on this host: a file `.py` and a module run in this interpreter.

        Raises:
            UserError: E476 there is no such file or command here.
        """
        first, *rest = self.words
        if self.module:
            return [sys.executable, "-m", first, *rest]
        if first.endswith(".py"):
            if not Path(self.directory, first).is_file():
                raise fail("E476", f"there is no file {first}")
            return [sys.executable, first, *rest]
        found = shutil.which(str(Path(self.directory, first)) if os.sep in first else first)
        if found is None:
            help = "a Python script ends with .py; `-m` runs a module"
            raise fail("E476", f"there is no command {first}", help=help)
        return [found, *rest]

    def variables(self, rank: int, near: range, *, piped: bool) -> dict[str, str]:
        """Returns the environment of a rank. near: the ranks on its host; piped: whether lines of
        its output are read, which Python then must not hold back."""
        host, port = self.root
        share = max(1, len(os.sched_getaffinity(0)) // len(near))
        own = {
            "RANK": rank,
            "WORLD_SIZE": self.n_ranks,
            "LOCAL_RANK": rank - near.start,
            "LOCAL_WORLD_SIZE": len(near),
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
            "HCCC_RANK": rank,
            "HCCC_NRANKS": self.n_ranks,
            "HCCC_LOCAL_RANK": rank - near.start,
            "HCCC_LOCAL_NRANKS": len(near),
            "HCCC_ROOT": f"[{host}]:{port + 1}" if ":" in host else f"{host}:{port + 1}",
            "HCCC_SECRET": self.secret,
        }
        shared = {"OMP_NUM_THREADS": str(share)}
        if piped:
            shared["PYTHONUNBUFFERED"] = "1"
        return {**shared, **os.environ, **self.environment, **{k: str(v) for k, v in own.items()}}


# (rank, {"out": text, "to": 1 or 2} or {"exit": code})
OnOutput = Callable[[int, Message], None]


class Processes:
    """The processes of a command on this host. They die with the thread that made this object."""

    def __init__(
        self,
        command: RankCommand,
        ranks: range,
        on_message: OnOutput,
        *,
        piped: bool,
        reads: bool = False,
    ) -> None:
        """Starts them. piped: their output comes as messages, line by line, instead of going where
        this process's goes; reads: whether rank 0 gets this process's input. Raises UserError
        E476."""
        if not Path(command.directory).is_dir():
            raise fail("E476", f"there is no directory {command.directory}")
        words = command.here()
        self._on_message = on_message
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        try:
            for rank in ranks:
                self._begin(words, command, rank, ranks, piped, reads)
        except OSError as error:
            self.signal(signal.SIGKILL)
            raise fail("E476", f"{words[0]} cannot be run: {error.strerror}") from None
        for thread in self._threads:
            thread.start()

    def _begin(
        self,
        words: Sequence[str],
        command: RankCommand,
        rank: int,
        near: range,
        piped: bool,
        reads: bool,
    ) -> None:
        # Groups, not sessions: Linux schedules each session by itself (child.py).
        out = subprocess.PIPE if piped else None
        process = subprocess.Popen(
            words,
            cwd=command.directory,
            env=command.variables(rank, near, piped=piped),
            stdin=None if reads and rank == 0 else subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            process_group=0,
            preexec_fn=_dies_with_parent,
        )
        self._processes.append(process)
        streams = [(process.stdout, 1), (process.stderr, 2)] if piped else []
        readers = [
            threading.Thread(target=self._read, args=(rank, stream, to), daemon=True)
            for stream, to in streams
        ]
        end = threading.Thread(target=self._wait, args=(rank, process, readers), daemon=True)
        self._threads += [*readers, end]

    def _read(self, rank: int, stream: IO[bytes], to: int) -> None:
        while line := stream.readline(_LINE):
            self._on_message(rank, {"out": line.decode("utf-8", "replace"), "to": to})

    def _wait(
        self, rank: int, process: subprocess.Popen[bytes], readers: Sequence[threading.Thread]
    ) -> None:
        code = process.wait()
        for reader in readers:
            reader.join(1)  # its children may keep the pipe
        self._on_message(rank, {"exit": code})

    def signal(self, number: int) -> None:
        """Sends a signal to all processes and their children."""
        for process in self._processes:
            try:
                os.killpg(process.pid, number)
            except (ProcessLookupError, PermissionError):
                continue


_libc = ctypes.CDLL(None)


def _dies_with_parent() -> None:
    _libc.prctl(_PARENT_GONE, signal.SIGKILL, 0, 0, 0)


def root_here(name: str | None) -> tuple[str, int]:
    """Returns an address of this host, by which it is reached as `name` (None: from here only), and
    a port; the next one is free too.

    Raises:
        UserError: E476 there are none.
    """
    for _ in range(_TRIES):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("", port + 1))
            except (OSError, OverflowError):
                continue
            return (address_of(name) or name if name else LOOPBACK), port
    raise fail("E476", "this host has no two free ports")


def command_of(fields: Mapping[str, Any]) -> RankCommand:
    """Returns the command whose fields, from `asdict`, came as a message."""
    words, root = tuple(fields["words"]), tuple(fields["root"])
    return RankCommand(**{**fields, "words": words, "root": root})
