"""child: the parent's handle on a worker process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from hccc.launch.messages import Channel, Message

_KEPT_LINES = 12  # of its standard error, for messages


class Child:
    """A process with pipes to it. After `begin`, a thread passes its messages to `on_message`, then
    None when it closes its output."""

    def __init__(
        self,
        command: Sequence[str],
        on_message: Callable[[Message | None], None],
        *,
        keeps_errors: bool = False,
    ) -> None:
        """Starts the process. keeps_errors: the lines that it prints before its first message are
        kept for `printed`."""
        self._on_message = on_message
        self._printed: deque[str] = deque(maxlen=_KEPT_LINES)
        self.began = False
        # A group of its own, since Ctrl-C is for the parent. No session: Linux schedules each
        # session by itself, and ranks that give way would not give way to those of another.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if keeps_errors else None,
            process_group=0,
        )
        assert self._process.stdin and self._process.stdout
        self._channel = Channel(self._process.stdout, self._process.stdin)
        work = [self._pass_on, self._listen] if keeps_errors else [self._listen]
        self._threads = [threading.Thread(target=run, daemon=True) for run in work]

    def begin(self) -> None:
        """Begins to receive messages."""
        for thread in self._threads:
            thread.start()

    def send(self, message: Message) -> None:
        """Sends a message. A process that has gone gets none; its end is reported by
        `on_message`."""
        with suppress(OSError, ValueError):
            self._channel.send(message)

    def close_input(self) -> None:
        """Closes its standard input, so that it ends."""
        self._channel.close()

    def end(self, seconds: float) -> None:
        """Lets the process end, and kills it and its children after so many seconds."""
        self.close_input()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # and its children
        self._process.wait()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(1)

    def exit_code(self) -> int | None:
        """Returns its exit code once its output is closed: the negative signal if it was killed,
        None if it still runs."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(2)
        return None

    def printed(self) -> str:
        """Returns the last lines of its standard error."""
        self._threads[0].join(0.5)
        return "\n".join(self._printed)

    def _listen(self) -> None:
        with suppress(OSError, ValueError):
            for message in self._channel.receive(announced=True):
                self.began = True
                self._on_message(message)
        self._on_message(None)

    def _pass_on(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            text = line.decode("utf-8", "replace").rstrip()
            self._printed.append(text)
            if self.began:
                print(text, file=sys.stderr, flush=True)


def how_it_ended(code: int | None) -> str:
    """Describes an exit code in words."""
    if code is None:
        return "says what hccc does not know"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
