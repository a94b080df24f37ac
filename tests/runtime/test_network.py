"""The proxy of one process: it carries every transfer once, in order for each pair, in its time."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.runtime.abi import ProxyRingRecord, RankRecord, TransferRecord, all_memory
from hccc.runtime.network import RING, Proxy, RankNetwork, Wire, network_of
from tests.runtime.handwritten import INCLUDE, PROGRAMS

FLAGS, SCRATCH = 0, 1
BYTES = 1 << 16


class Ranks:
    """Ranks with flags and scratch of BYTES each, each in a domain of its own, and their proxy."""

    def __init__(self, n: int, wire: Wire, nics: list[int] | None = None) -> None:
        self.flags = [np.zeros(BYTES, np.uint8) for _ in range(n)]
        self.scratch = [np.zeros(BYTES, np.uint8) for _ in range(n)]
        self._window = all_memory()
        self._table = (RankRecord * n)(
            *(
                RankRecord(f.ctypes.data, s.ctypes.data, ctypes.addressof(self._window), 1, 0)
                for f, s in zip(self.flags, self.scratch, strict=True)
            )
        )
        self.proxy = Proxy(network_of(range(n), nics or range(n), wire), self._table)

    def ring(self, rank: int) -> ProxyRingRecord:
        """Returns a rank's ring."""
        return self.proxy.rings[rank]

    def submit(self, rank: int, **fields: int) -> None:
        """Submits a transfer as a thread block does."""
        ring = self.ring(rank)
        submitted = ctypes.c_uint.from_address(ring.submitted)
        turn = submitted.value
        wait(lambda: turn - ctypes.c_uint.from_address(ring.taken).value < RING)
        size = ctypes.sizeof(TransferRecord)
        entry = TransferRecord.from_address(ring.entries + turn % RING * size)
        for name, value in {"counter": -1, "bytes": 0, **fields}.items():
            setattr(entry, name, value)
        submitted.value = turn + 1
        entry.turn = turn + 1

    def completed(self, rank: int) -> int:
        """Returns the number of a rank's completed transfers."""
        return int(ctypes.c_uint.from_address(self.ring(rank).completed).value)

    def counter(self, rank: int, at: int) -> int:
        """Returns a counter of a rank."""
        return int(self.flags[rank].view(np.uint32)[at // 4])


def wait(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Sleeps until `true()` holds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0)


@pytest.mark.parametrize("late", [False, True])
def test_a_transfer_puts_bytes_and_then_raises_the_counter(late: bool) -> None:
    ranks = Ranks(2, Wire(copy_on_arrival=late))
    ranks.scratch[0][:100] = np.arange(100)
    with ranks.proxy.running():
        ranks.submit(
            0,
            peer=1,
            source_window=SCRATCH,
            source=3,
            target_window=SCRATCH,
            target=1000,
            bytes=50,
            counter=256,
            value=7,
        )
        wait(lambda: ranks.counter(1, 256) == 7)
        assert (ranks.scratch[1][1000:1050] == np.arange(3, 53)).all()
        wait(lambda: ranks.completed(0) == 1)
    assert ranks.scratch[1].sum() == np.arange(3, 53).sum()


transfers = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=60)


@given(
    transfers,
    st.sampled_from([Wire(), Wire(1.0, 3.0), Wire(0.01, 0.0), Wire(copy_on_arrival=True)]),
)
@settings(max_examples=20)
def test_transfers_of_a_pair_arrive_in_order(
    order: list[tuple[int, int, bool]], wire: Wire
) -> None:
    """Each writes its number over the last one's place: the last of the pair must stay."""
    ranks = Ranks(3, wire)
    last = {}
    with ranks.proxy.running():
        for number, (src, dst, big) in enumerate(order, 1):
            at, size = src * 4096, 2048 if big else 4
            ranks.scratch[src][number * 8 :][:4] = np.array([number], np.uint32).view(np.uint8)
            ranks.submit(
                src,
                peer=dst,
                source_window=SCRATCH,
                source=number * 8,
                target_window=FLAGS,
                target=8192 + at,
                bytes=size,
                counter=128 * src,
                value=number,
            )
            last[src, dst] = number
        for src in range(3):
            wait(lambda src=src: ranks.completed(src) == sum(o[0] == src for o in order))  # type: ignore[misc]
    for (src, dst), number in last.items():
        assert ranks.counter(dst, 128 * src) == number
        assert ranks.counter(dst, 8192 + 4096 * src) == number


def test_a_ring_is_used_again() -> None:
    ranks = Ranks(2, Wire())
    with ranks.proxy.running():
        for number in range(3 * RING):
            ranks.submit(0, peer=1, counter=0, value=number)
        wait(lambda: ranks.completed(0) == 3 * RING)
    assert ranks.counter(1, 0) == 3 * RING - 1


def test_what_was_taken_arrives_though_the_proxy_stops() -> None:
    """A rank whose last transfers raise no flag need not wait for their end to end a launch."""
    ranks = Ranks(2, Wire(latency=1e6, copy_on_arrival=True))
    ranks.scratch[0][:4] = 7
    with ranks.proxy.running():
        for number in range(1, 4):
            ranks.submit(
                0,
                peer=1,
                source_window=SCRATCH,
                target_window=SCRATCH,
                bytes=number,
                counter=128,
                value=number,
            )
        wait(lambda: ctypes.c_uint.from_address(ranks.ring(0).taken).value == 3)
    assert (ranks.completed(0), ranks.counter(1, 128)) == (3, 3)
    assert ranks.scratch[1][:4].tolist() == [7, 7, 7, 0]


@pytest.mark.parametrize("shared", [False, True])
def test_a_network_takes_its_time(shared: bool) -> None:
    """Two ranks send 40 KB each at 0.004 GB/s: 10 ms each, one after the other over one NIC."""
    ranks = Ranks(3, Wire(0.004, 2000), [0, 0, 1] if shared else [0, 1, 2])
    begin = time.monotonic()
    with ranks.proxy.running():
        for src in (0, 1):
            ranks.submit(
                src,
                peer=2 - 2 * src,
                source_window=SCRATCH,
                target_window=SCRATCH,
                bytes=40_000,
                counter=0,
                value=1,
            )
        wait(lambda: ranks.counter(2, 0) == 1)
        assert time.monotonic() - begin >= 0.012
        wait(lambda: ranks.counter(0, 0) == 1)
        assert time.monotonic() - begin >= (0.022 if shared else 0.012)


def test_hosts_are_runs_of_one_domain() -> None:
    assert RankNetwork((0, 0, 1, 1, 0), (0,) * 5).hosts() == [(0, 2), (2, 4), (4, 5)]


STRICT = [
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wshadow",
    "-Wpedantic",
    "-Werror",
]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_a_proxy_in_strict_c_without_memory(tmp_path: Path) -> None:
    """Transfers that it cannot remember stay in the ring until others have arrived."""
    program = tmp_path / "program"
    command = ["gcc", "-std=c99", "-D_POSIX_C_SOURCE=200809L", *STRICT, f"-I{INCLUDE}", "-pthread"]
    built = subprocess.run(
        [*command, str(PROGRAMS / "proxy.c"), "-o", str(program)], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    assert subprocess.run([program], timeout=60).returncode == 0


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_a_proxy_says_what_it_needs(tmp_path: Path) -> None:
    source = tmp_path / "x.c"
    source.write_text('#include "hccc/proxy.h"\n')
    command = ["gcc", "-std=c99", f"-I{INCLUDE}", "-fsyntax-only", str(source)]
    assert "_POSIX_C_SOURCE" in subprocess.run(command, capture_output=True, text=True).stderr
