"""messages: the messages between the processes of a run: one line of JSON each, over pipes.

Before its first message a process prints a line of its own, MARK: anything that a remote shell, or
the shell's start-up files, printed before is skipped.
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
PROTOCOL = 2
MARK = b"hccc speaks"
MOST_BYTES = 1 << 30  # of a message
_MOST_BEFORE = 1 << 16  # bytes before MARK


class Channel:
    """Two pipes. Several threads may send at once; one reads."""

    def __init__(self, source: IO[bytes], target: IO[bytes]) -> None:
        self._source, self._target = source, target
        self._sending = threading.Lock()

    def announce(self) -> None:
        """Sends MARK: messages follow."""
        self._write(b"\n" + MARK + b"\n")

    def send(self, message: Message) -> None:
        """Sends a message. Raises OSError if nobody reads any more."""
        self._write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        with self._sending:
            self._target.write(line)
            self._target.flush()

    def receive(self, *, announced: bool = False) -> Iterator[Message]:
        """Yields messages until the end; if `announced`, those after MARK. Raises ValueError for a
        line that is no message."""
        if announced and not self._skip():
            return
        while line := self._source.readline(MOST_BYTES):
            message = json.loads(line)
            if not isinstance(message, dict):
                raise ValueError("a message is no object")
            yield message

    def _skip(self) -> bool:
        """Reads past MARK; returns False if there is none."""
        left = _MOST_BEFORE
        while left > 0 and (line := self._source.readline(left)):
            if line.strip() == MARK:
                return True
            left -= len(line)
        return False

    def close(self) -> None:
        """Closes the pipe that it sends on."""
        with suppress(OSError):
            self._target.close()


def of_this_process() -> Channel:
    """Takes over the standard input and output for messages; later prints go to the standard
    error."""
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return Channel(sys.stdin.buffer, target)


@contextmanager
def serve() -> Iterator[tuple[Channel, Callable[[], Message]]]:
    """Runs a worker: yields its channel and a function that returns the next message.

    The worker exits and kills its children if stdin closes before an `end` message.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    with suppress(PermissionError):  # it leads a session
        os.setpgid(0, 0)
    channel, messages = of_this_process(), SimpleQueue[Message]()
    threading.Thread(target=_listen, args=(channel, messages.put), daemon=True).start()
    try:
        channel.announce()
        yield channel, messages.get
    except BrokenPipeError:
        _end_all()


def _listen(channel: Channel, on_message: Callable[[Message], None]) -> None:
    with suppress(OSError, ValueError):
        for message in channel.receive():
            if message.get("word") == "here":
                channel.send({"here": True})  # even during a long job
                continue
            on_message(message)
            if message.get("word") == "end":
                return
    _end_all()


def _end_all() -> None:
    os.killpg(0, signal.SIGKILL)


def fields_of(error: UserError) -> Message:
    """Turns an error into a message for another process, without its place in a source."""
    problem = error.problem
    return {
        "code": problem.code,
        "message": problem.message,
        "notes": [note.text for note in problem.notes],
        "help": problem.help,
    }


def error_of(fields: Message) -> UserError:
    """Turns such a message back into the error."""
    notes = tuple(Note(str(text)) for text in fields["notes"])
    return UserError(Problem(fields["code"], fields["message"], notes=notes, help=fields["help"]))
