"""messages: what the processes of a run say to each other: a line of JSON each, over pipes.

Before its first message a process prints a line of its own, MARK: what a remote shell, or the
shell's start-up files, printed before is passed over.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import IO, Any

from hccc.base.diagnostics import Note, Problem, UserError

Message = dict[str, Any]
PROTOCOL = 1
MARK = b"hccc speaks"
MOST_BYTES = 1 << 30  # of a message
_MOST_BEFORE = 1 << 16  # bytes before MARK


class Channel:
    """Two pipes. Threads may send at the same time; one reads."""

    def __init__(self, source: IO[bytes], target: IO[bytes]) -> None:
        self._source, self._target = source, target
        self._sending = threading.Lock()

    def announce(self) -> None:
        """Says that messages begin."""
        self._write(b"\n" + MARK + b"\n")

    def send(self, message: Message) -> None:
        """Raises OSError where nobody reads any more."""
        self._write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        with self._sending:
            self._target.write(line)
            self._target.flush()

    def receive(self, *, announced: bool = False) -> Iterator[Message]:
        """Messages until the end. announced: after MARK. Raises ValueError for what is none."""
        if announced and not self._skip():
            return
        while line := self._source.readline(MOST_BYTES):
            message = json.loads(line)
            if not isinstance(message, dict):
                raise ValueError("a message is no object")
            yield message

    def _skip(self) -> bool:
        """Reads past MARK. False: there is none."""
        left = _MOST_BEFORE
        while left > 0 and (line := self._source.readline(left)):
            if line.strip() == MARK:
                return True
            left -= len(line)
        return False

    def close(self) -> None:
        """Ends what is sent."""
        with suppress(OSError):
            self._target.close()


def of_this_process() -> Channel:
    """The standard input and output, which nothing else writes to from now on: what is printed
    goes to the standard error."""
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return Channel(sys.stdin.buffer, target)


@contextmanager
def served() -> Iterator[tuple[Channel, Callable[[], Message]]]:
    """A process that is told what to do: where it answers, and what gives the next message.

    Whatever it is doing, it ends when its input ends before the message `end`, and with it what it
    started.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who tells it what to do ends it
    with suppress(PermissionError):  # it leads a session
        os.setpgid(0, 0)
    channel, messages = of_this_process(), SimpleQueue[Message]()
    threading.Thread(target=_listen, args=(channel, messages.put), daemon=True).start()
    try:
        channel.announce()
        yield channel, messages.get
    except BrokenPipeError:
        _end_all()


def _listen(channel: Channel, heard: Callable[[Message], None]) -> None:
    with suppress(OSError, ValueError):
        for message in channel.receive():
            if message.get("word") == "here":
                channel.send({"here": True})  # whatever this process is doing
                continue
            heard(message)
            if message.get("word") == "end":
                return
    _end_all()


def _end_all() -> None:
    os.killpg(0, signal.SIGKILL)


def fields_of(error: UserError) -> Message:
    """An error, for another process; its place in a source is not told."""
    problem = error.problem
    return {
        "code": problem.code,
        "message": problem.message,
        "notes": [note.text for note in problem.notes],
        "help": problem.help,
    }


def error_of(fields: Message) -> UserError:
    """The error of such fields."""
    notes = tuple(Note(str(text)) for text in fields["notes"])
    return UserError(Problem(fields["code"], fields["message"], notes=notes, help=fields["help"]))
