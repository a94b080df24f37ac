"""processes: runs commands in a folder of their own, within limits, and can end them all."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from hccc.base.building.compiler import limited

KILLED = -signal.SIGKILL
CANNOT_START = 126


@dataclass(slots=True)
class LimitedProcesses:
    """The commands running now, each awaited by a thread. After `end`, none starts."""

    running: list[subprocess.Popen[str]] = field(default_factory=list)
    ended: bool = False
    lock: Lock = field(default_factory=Lock)

    def run(
        self, command: Sequence[str], place: Path, seconds: float, memory: int = 0
    ) -> tuple[int, str]:
        """Runs a command in `place`; returns its exit code, less than 0 for a signal, and its
        stderr.

        A command that cannot be started at all (a disk that forbids it) has exit code 126, as in a
        shell. seconds: until it is killed with all its children; memory: bytes of address space (on
        Linux), 0 for any. It gets no input, and only PATH of the environment.
        """
        try:
            process = self._start(limited(command, memory) if memory else command, place)
        except OSError as error:
            return CANNOT_START, str(error)
        if process is None:
            return KILLED, ""
        try:
            errors = process.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            return KILLED, ""
        finally:
            with self.lock:
                self.running.remove(process)
        return process.returncode, errors

    def _start(self, command: Sequence[str], place: Path) -> subprocess.Popen[str] | None:
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TMPDIR": str(place)}
        with self.lock:
            if self.ended:
                return None
            process = subprocess.Popen(
                command,
                cwd=place,
                env=environment,
                start_new_session=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            self.running.append(process)
            return process

    def end(self) -> None:
        """Kills all running commands; each waiting thread gets KILLED."""
        with self.lock:
            self.ended = True
            for process in self.running:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kills a process and all its children."""
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
