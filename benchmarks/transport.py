"""The transport between hosts at the rate of its line: two network namespaces, shaped by tc.

    python -m benchmarks.transport [--rates 1,10] [--sizes 64K,...,64M] [--iters 9] [--json]

A rank hands over one transfer of that size, and its peer, when it sees the counter, raises one in
return. The time until then is what is divided by; it holds the way back. Beside it a plain TCP
socket, which sends as much and is answered with a byte; and both ranks at once, each until it has
the other's. Interleaved, medians. What a line carries of TCP's payload is 1448 of 1514 bytes:
95.6 %. Needs root.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.namespaces import DEVICE, Host, hosts, missing
from hccc.runtime.abi import ProxyRingRecord, TransferRecord
from hccc.runtime.transport.ucx_transport import UcxTransport, available

FLAGS, USER, RING, PORT = 0, 2, 64, 7177
SIZES = tuple(1 << k for k in range(16, 27, 2))
LARGEST = 1 << 26
SPIN_S, READY_S = 0.0005, 30.0


class TransportRank:
    """One end of the line: a window, a ring of transfers and a counter."""

    def __init__(self, rank: int) -> None:
        self.flags = np.zeros(128, np.uint8)
        self.memory = np.ones(LARGEST, np.uint8)
        self.entries = (TransferRecord * RING)()
        self.counters = np.zeros((3, 32), np.uint32)
        at = [self.counters[k].ctypes.data for k in range(3)]
        entries = ctypes.addressof(self.entries)
        self.ring = ProxyRingRecord(
            ctypes.sizeof(ProxyRingRecord), ctypes.sizeof(TransferRecord), RING, 0, entries, *at
        )
        self.transport = UcxTransport(rank, 2, network=DEVICE)
        self.transport.window(FLAGS, self.flags.ctypes.data, self.flags.size)
        self.transport.window(USER, self.memory.ctypes.data, self.memory.size)
        self.peer, self.turn = 1 - rank, 0

    def join(self) -> None:
        """Exchanges blobs over the standard streams, and starts."""
        print(self.transport.blob().hex(), flush=True)
        self.transport.connect(self.peer, bytes.fromhex(sys.stdin.readline()))
        self.transport.start(ctypes.addressof(self.ring))
        self.transport.ready(READY_S)

    def put(self, size: int, value: int) -> None:
        """Submits a transfer that raises the peer's counter."""
        entry = self.entries[self.turn % RING]
        entry.peer, entry.source_window, entry.target_window = self.peer, USER, USER
        entry.bytes, entry.counter, entry.value = size, 0, value
        self.turn += 1
        entry.turn = self.turn

    def wait(self, value: int) -> None:
        """Waits until the own counter is `value`: as kernels do, it gives way and later sleeps."""
        counter = self.flags.view(np.uint32)
        begin = time.perf_counter()
        while int(counter[0]) != value:
            if time.perf_counter() - begin < SPIN_S:
                os.sched_yield()
            else:
                time.sleep(0.00002)


def serve_rank(rank: int) -> None:
    """Runs the process of a rank: reads sizes, and whether both send, and answers with seconds."""
    end = TransportRank(rank)
    end.join()
    for value, line in enumerate(sys.stdin, 1):
        size, both = map(int, line.split())
        begin = time.perf_counter()
        if both or rank == 0:
            end.put(size, value)
        end.wait(value)
        if rank == 1 and not both:
            end.put(0, value)
        print(time.perf_counter() - begin, flush=True)
    end.transport.close()


def serve_socket(rank: int, address: str) -> None:
    """Serves as `serve_rank`, over a socket. Rank 1 listens."""
    data = memoryview(bytearray(LARGEST))
    if rank == 1:
        listener = socket.create_server((address, PORT))
        print("listening", flush=True)
        line, _ = listener.accept()
    else:
        print("ready", flush=True)
        sys.stdin.readline()
        line = socket.create_connection((address, PORT))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for text in sys.stdin:
        size = int(text.split()[0])
        begin = time.perf_counter()
        if rank == 0:
            line.sendall(data[:size])
            line.recv(1)
        else:
            while size:
                size -= line.recv_into(data[:size])
            line.sendall(b".")
        print(time.perf_counter() - begin, flush=True)


class RankPair:
    """Two processes, one on each host."""

    def __init__(self, ends: list[Host], *words: str) -> None:
        self.processes = [
            subprocess.Popen(
                [
                    *host.before(),
                    sys.executable,
                    "-m",
                    "benchmarks.transport",
                    "--serve",
                    str(rank),
                    *words,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=dict(os.environ),
            )
            for rank, host in enumerate(ends)
        ]

    def read(self, rank: int) -> str:
        """Returns the next line that is no message of UCX's own."""
        out = self.processes[rank].stdout
        assert out
        while True:
            line = out.readline()
            if not line:
                raise SystemExit(f"the process of rank {rank} has ended")
            if "UCX" not in line:
                return line.strip()

    def write(self, rank: int, text: str) -> None:
        """Writes a line to a rank."""
        into = self.processes[rank].stdin
        assert into
        print(text, file=into, flush=True)

    def seconds(self, size: int, both: bool = False) -> float:
        """Returns the seconds of one transfer of `size` bytes, or of one each way at once."""
        for rank in (1, 0):
            self.write(rank, f"{size} {int(both)}")
        took = [float(self.read(rank)) for rank in (0, 1)]
        return max(took) if both else took[0]

    def end(self) -> None:
        """Ends both processes."""
        for process in self.processes:
            process.communicate(timeout=30)


def transports(ends: list[Host]) -> RankPair:
    """Starts two ranks and connects them."""
    pair = RankPair(ends)
    blobs = [pair.read(rank) for rank in range(2)]
    for rank in range(2):
        pair.write(rank, blobs[1 - rank])
    return pair


def sockets(ends: list[Host]) -> RankPair:
    """Starts two sockets and connects them."""
    pair = RankPair(ends, "--socket", ends[1].address)
    for rank in (1, 0):
        pair.read(rank)
    pair.write(0, "connect")
    return pair


@dataclass(frozen=True, slots=True)
class TransportRow:
    """One rate and size. share, both_share, socket_share: of the line's rate each way, by the
    transport, by it both ways at once, and by the socket."""

    gbit: float
    size: int
    transport_us: float
    both_us: float
    socket_us: float
    share: float
    both_share: float
    socket_share: float


def measured(gbit: float, sizes: tuple[int, ...], iters: int) -> list[TransportRow]:
    """Measures all sizes at one rate."""
    rows = []
    with hosts(2, f"{gbit:g}gbit") as ends:
        ways: list[RankPair] = [make(ends) for make in (transports, sockets)]
        for size in sizes:
            times: list[list[float]] = [[], [], []]
            for i in range(iters + 2):
                for took, (way, both) in zip(
                    times, ((ways[0], False), (ways[0], True), (ways[1], False)), strict=True
                ):
                    seconds = way.seconds(size, both)
                    if i >= 2:
                        took.append(seconds)
            medians = [statistics.median(one) for one in times]
            shares = [size / one / (gbit * 1e9 / 8) for one in medians]
            rows.append(TransportRow(gbit, size, *(one * 1e6 for one in medians), *shares))
        for way in ways:
            way.end()
    return rows


def table(rows: list[TransportRow]) -> Table:
    """Makes the table: a line for each row."""
    heads = ("µs", "of the line", "both ways, µs", "of each", "socket, µs", "of the line")
    made = Table("Gbit/s", "KiB", *heads)
    for row in rows:
        made.add_row(
            f"{row.gbit:g}",
            f"{row.size >> 10:,}",
            f"{row.transport_us:,.0f}",
            f"{row.share:.1%}",
            f"{row.both_us:,.0f}",
            f"{row.both_share:.1%}",
            f"{row.socket_us:,.0f}",
            f"{row.socket_share:.1%}",
        )
    return made


def _size(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text.rstrip("KM")) * units.get(text[-1], 1)


def _list(of: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    return lambda text: tuple(of(one) for one in text.split(","))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rates", type=_list(float), default=(1.0, 10.0))
    parser.add_argument("--sizes", type=_list(_size), default=SIZES)
    parser.add_argument("--iters", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--socket", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        if given.socket:
            return serve_socket(given.serve, given.socket)
        return serve_rank(given.serve)
    usable, text = available()
    if not usable or missing():
        raise SystemExit(missing() or text)
    rows = [row for rate in given.rates for row in measured(rate, given.sizes, given.iters)]
    if given.json:
        print(json.dumps({"ucx": text, "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        Console().print(text, table(rows))
    return None


if __name__ == "__main__":
    main()
