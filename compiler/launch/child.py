"""child: a process that is told what to do, as who started it sees it."""

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

_KEPT_LINES = 12  # of what it printed, for errors


class Child:
    """A process with pipes to it. `heard` is called with what it says, by a thread, and with None
    when it says no more; `begin` comes first."""

    def __init__(
        self,
        command: Sequence[str],
        heard: Callable[[Message | None], None],
        *,
        keeps_errors: bool = False,
    ) -> None:
        """keeps_errors: what it prints before its first word is kept for `printed`."""
        self._heard = heard
        self._printed: deque[str] = deque(maxlen=_KEPT_LINES)
        self.began = False
        # A group of its own, as Ctrl-C is for who started it. No session: Linux schedules each
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
        self._threads = [threading.Thread(target=one, daemon=True) for one in work]

    def begin(self) -> None:
        """Begins to hear what it says."""
        for thread in self._threads:
            thread.start()

    def tell(self, message: Message) -> None:
        """Says something; nothing where it has gone, which is heard anyway."""
        with suppress(OSError, ValueError):
            self._channel.send(message)

    def hang_up(self) -> None:
        """Says no more, so that it ends."""
        self._channel.close()

    def end(self, seconds: float) -> None:
        """Waits until it has ended, and kills it after so long."""
        self.hang_up()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # nor is anything left that it started
        self._process.wait()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(1)

    def exit_code(self) -> int | None:
        """When nothing is heard any more: its exit code, the negative number of what killed it, or
        None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(2)
        return None

    def printed(self) -> str:
        """The last lines of its standard error."""
        self._threads[0].join(0.5)
        return "\n".join(self._printed)

    def _listen(self) -> None:
        with suppress(OSError, ValueError):
            for message in self._channel.receive(announced=True):
                self.began = True
                self._heard(message)
        self._heard(None)

    def _pass_on(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            text = line.decode("utf-8", "replace").rstrip()
            self._printed.append(text)
            if self.began:
                print(text, file=sys.stderr, flush=True)


def how_it_ended(code: int | None) -> str:
    """In words."""
    if code is None:
        return "says what hccc does not know"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
