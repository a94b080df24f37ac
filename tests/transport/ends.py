"""One end of a transport: windows, a ring and its entries, in this process or another's.

`python -m tests.transport.ends` is the other process: it reads lines of JSON, each the name of a
method of `End` and its arguments, and answers each with a line.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import UserError
from hccc.runtime.abi import ProxyRingRecord, TransferRecord
from hccc.runtime.transport.ucx_transport import BEGIN, DONE, Copier, UcxTransport

FLAGS, SCRATCH, USER = 0, 1, 2
LINE = 128  # bytes between counters
DEADLINE_S = 10.0


class Message(NamedTuple):
    """A message submitted: bytes made of a seed, from and to the place `at`; counter -1: none."""

    seed: int
    at: int
    size: int
    tb: int
    channel: int
    counter: int
    value: int

    def data(self) -> NDArray[np.uint8]:
        """Returns the bytes of the message."""
        return np.random.default_rng(self.seed).integers(0, 256, self.size, np.uint8)


class _Expected:
    """Messages expected, and the counters that announce them."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        # Messages not yet announced, by counter.
        self.waiting: dict[int, list[int]] = {}
        for i, message in enumerate(messages):
            if message.counter >= 0:
                self.waiting.setdefault(message.counter, []).append(i)

    def look(self, counter: int, value: int, target: NDArray[np.uint8]) -> list[str]:
        """Lists the faults of a counter's value."""
        queue = self.waiting[counter]
        values = [self.messages[i].value for i in queue]
        if value not in values:
            return []
        last = queue[values.index(value)]
        del queue[: values.index(value) + 1]
        if not queue:
            del self.waiting[counter]
        me = self.messages[last]
        return [
            f"counter {counter} is {value} before the bytes of {m}"
            for m in self.messages[: last + 1]
            if (me.tb < 0 or (m.tb, m.channel) == (me.tb, me.channel))
            and not np.array_equal(target[m.at : m.at + m.size], m.data())
        ]


class LateCopier:
    """Copies as a device would: finished at the third question."""

    def __init__(self) -> None:
        self._pending: dict[int, list[int]] = {}
        self._tickets = 0
        self.copier = Copier(None, BEGIN(self._begin), DONE(self._done))

    def _begin(self, _: int, to: int, source: int, size: int, to_device: int, ticket: Any) -> int:
        self._tickets += 1
        self._pending[self._tickets] = [to, source, size, 2]
        ticket[0] = self._tickets
        return 0

    def _done(self, _: int, ticket: int) -> int:
        copy = self._pending[ticket]
        copy[3] -= 1
        if copy[3] >= 0:
            return 0
        ctypes.memmove(*copy[:3])
        del self._pending[ticket]
        return 1


class End:
    """A rank with flags, and two windows of `size` bytes: 2 is sent from, 3 is written to."""

    def __init__(
        self,
        rank: int,
        n_ranks: int,
        size: int,
        turn: int = 0,
        ring: int = 64,
        memory: str = "host",
        **options: Any,
    ) -> None:
        self.flags = np.zeros(1 << 16, np.uint8)
        self.source, self.target = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        self.failures: list[tuple[int, str]] = []
        self.lines: list[str] = []
        self._copier = LateCopier()
        if memory != "host":
            options |= {"copier": self._copier.copier, "force_staging": True}
        self.transport = UcxTransport(
            rank,
            n_ranks,
            log=self.lines.append,
            failed=lambda r, text: self.failures.append((r, text)),
            **options,
        )
        self.transport.window(FLAGS, self.flags.ctypes.data, self.flags.size, memory)
        for number, array in ((USER, self.source), (USER + 1, self.target)):
            self.transport.window(number, array.ctypes.data, array.size, memory)
        self.entries = (TransferRecord * ring)()
        for k in range(ring if turn else 0):  # as the turns before have left it
            self.entries[(turn - 1 - k) % ring].turn = (turn - k) & 0xFFFFFFFF
        self.counters = np.zeros((3, LINE // 4), np.uint32)
        self.counters[:, 0] = turn
        self.turn = turn
        submitted, taken, completed = (self.counters[k].ctypes.data for k in range(3))
        self.ring = ProxyRingRecord(
            ctypes.sizeof(ProxyRingRecord),
            ctypes.sizeof(TransferRecord),
            ring,
            0,
            ctypes.addressof(self.entries),
            submitted,
            taken,
            completed,
        )

    def blob(self) -> str:
        """Returns the rank's blob as hexadecimal digits."""
        return self.transport.blob().hex()

    def connect(self, peer: int, blob: str) -> None:
        """Connects to a peer."""
        self.transport.connect(peer, bytes.fromhex(blob))

    def start(self) -> None:
        """Starts the thread."""
        self.transport.start(ctypes.addressof(self.ring))

    def ready(self, timeout_s: float = DEADLINE_S) -> None:
        """Returns once all peers are ready."""
        self.transport.ready(timeout_s)

    def stop(self) -> None:
        """Ends the thread."""
        self.transport.stop()

    def close(self) -> None:
        """Ends it all."""
        self.transport.close()

    def submit(self, **fields: int) -> None:
        """Writes a descriptor, when the ring has room; its turn last."""
        _wait(lambda: self.turn - int(self.counters[1, 0]) & 0xFFFFFFFF < len(self.entries))
        entry = self.entries[self.turn % len(self.entries)]
        for name, value in ({"counter": -1, "tb": 0, "channel": 0} | fields).items():
            setattr(entry, name, value)
        self.turn = (self.turn + 1) & 0xFFFFFFFF
        entry.turn = self.turn

    def send(self, peer: int, messages: list[list[int]]) -> None:
        """Hands over messages, each of the fields of `Message`."""
        for message in map(Message._make, messages):
            self.source[message.at : message.at + message.size] = message.data()
        for m in map(Message._make, messages):
            self.submit(
                peer=peer,
                source_window=USER,
                target_window=USER + 1,
                source=m.at,
                target=m.at,
                bytes=m.size,
                tb=m.tb,
                channel=m.channel,
                counter=m.counter,
                value=m.value,
            )

    def turn_now(self) -> int:
        """Returns the number of transfers submitted, around 2^32."""
        return self.turn

    def completed(self, wait: int = -1) -> int:
        """Returns the number of complete transfers; wait: until it is that many."""
        if wait >= 0:
            _wait(lambda: int(self.counters[2, 0]) == wait & 0xFFFFFFFF)
        return int(self.counters[2, 0])

    def counter(self, at: int) -> int:
        """Returns a counter of the own flags."""
        return int(self.flags[at : at + 4].view(np.uint32)[0])

    def expect(self, messages: list[list[int]]) -> list[str]:
        """Awaits the messages that `send` sends, each with a counter raised at last. Lists the
        counters raised before earlier messages of their block, or, without a block, of their
        rank."""
        told = _Expected([Message._make(m) for m in messages])
        begin = time.monotonic()
        wrong: list[str] = []
        while told.waiting:
            for counter in list(told.waiting):
                wrong += told.look(counter, self.counter(counter), self.target)
            if time.monotonic() - begin > DEADLINE_S:
                return [*wrong, f"never arrived: {told.waiting}"]
        return wrong

    def clear(self) -> None:
        """Zeroes the data and the flags that have arrived."""
        self.target[...] = 0
        self.flags[...] = 0

    def failed(self, wait: bool = False) -> list[tuple[int, str]]:
        """Returns the failures that the transport reported; wait: until there is one."""
        if wait:
            _wait(lambda: bool(self.failures))
        return self.failures

    def statistics(self) -> dict[str, int]:
        """Returns the transport's counters."""
        return self.transport.counters()


@contextmanager
def joined(size: int = 1 << 20, **options: Any) -> Iterator[list[End]]:
    """Yields two ranks of this process, connected and started."""
    ends = [End(rank, 2, size, network="lo", **options) for rank in range(2)]
    blobs = [end.blob() for end in ends]
    for rank, end in enumerate(ends):
        end.connect(1 - rank, blobs[1 - rank])
        end.start()
    for end in ends:
        end.ready()
    try:
        yield ends
    finally:
        for end in ends:
            end.close()


def _wait(condition: Any) -> None:
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > DEADLINE_S:
            raise TimeoutError
        time.sleep(0.0002)


class EndProcess:
    """An End in a process of its own: methods as End's. before: the command that starts the
    process, as `ip netns exec NAME`; environment: of it."""

    def __init__(self, environment: dict[str, str], before: tuple[str, ...] = ()) -> None:
        command = [*before, sys.executable, "-m", "tests.transport.ends"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def tell(self, name: str, *arguments: Any, **options: Any) -> None:
        """Sends a call of a method; `answer` returns its result."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps([name, arguments, options]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Returns the last method's result."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the other process has ended"
        good, value = json.loads(line)
        assert good, value
        return value

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Sends a call of a method and returns its result."""
        self.tell(name, *arguments, **options)
        return self.answer()

    def kill(self) -> None:
        """Ends the process at once."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Closes its input and waits for it; the exit status."""
        self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode


def main() -> None:
    """Serves one End."""
    end: Any = None
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # UCX warns there
    for line in sys.stdin:
        name, arguments, options = json.loads(line)
        try:
            if name == "End":
                end, answer = End(*arguments, **options), None
            else:
                answer = getattr(end, name)(*arguments, **options)
            print(json.dumps([True, answer]), file=answers, flush=True)
        except (UserError, TimeoutError, AssertionError) as error:
            print(json.dumps([False, f"{name}: {error!r}"]), file=answers, flush=True)
    if end:
        end.close()


if __name__ == "__main__":
    main()
