"""network: an emulated network between ranks of one process, by the proxy of
`include/hccc/proxy.h`.

Ranks of one memory domain address each other's memory; transfers between two domains go through the
proxy, over the NICs of both ranks, by the same code path as over a real NIC.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.building.build import Piece, build_pieces
from hccc.base.diagnostics import InternalError, fail
from hccc.runtime.abi import ProxyRingRecord, RankRecord, TransferRecord
from hccc.runtime.c_library import CLibrary, Signature

RING = 1024  # transfers
LINE = 128  # bytes between counters
BYTES_PER_US = 1000.0  # of one GB/s


@dataclass(frozen=True, slots=True)
class Wire:
    """The speed of a network. bandwidth: GB/s of each NIC in each direction, 0 for no limit;
    latency: µs; copy_on_arrival: bytes are copied when a transfer arrives, not when it begins."""

    bandwidth: float = 0.0
    latency: float = 0.0
    copy_on_arrival: bool = False


@dataclass(frozen=True, slots=True)
class RankNetwork:
    """The network between ranks. domain, nic: the memory domain and the NIC of each rank."""

    domain: tuple[int, ...]
    nic: tuple[int, ...]
    wire: Wire = Wire()

    def hosts(self) -> list[tuple[int, int]]:
        """Returns runs of ranks [first, last) of one domain, which one process of a cluster would
        launch."""
        cuts = [r for r in range(1, len(self.domain)) if self.domain[r] != self.domain[r - 1]]
        return list(zip([0, *cuts], [*cuts, len(self.domain)], strict=True))


class _Wire(ctypes.Structure):
    """hccc_wire."""

    _fields_ = (
        ("bytes_per_us", ctypes.c_double),
        ("latency_us", ctypes.c_double),
        ("n_nics", ctypes.c_int),
        ("nic", ctypes.c_void_p),
        ("copy_on_arrival", ctypes.c_int),
    )


class Proxy:
    """The proxy rings of all ranks, and the proxy that serves them.

    ranks: the table of all ranks' memory in this process; it may change between launches.
    """

    def __init__(self, network: RankNetwork, ranks: ctypes.Array[RankRecord]) -> None:
        n = len(network.domain)
        self._rings = np.zeros((n, RING * ctypes.sizeof(TransferRecord)), np.uint8)
        self._counters = np.zeros((n, 3, LINE), np.uint8)
        self._nic = np.array(network.nic, np.int32)
        self._ranks = ranks
        self.rings = (ProxyRingRecord * n)(*[self._ring(r) for r in range(n)])
        wire = network.wire
        self._threads = max(1, min(len(set(network.domain)), 2))
        self._library = _library()
        self._proxy = self._library.call(
            "new",
            n,
            ctypes.addressof(ranks),
            ctypes.addressof(self.rings),
            ctypes.byref(
                _Wire(
                    wire.bandwidth * BYTES_PER_US,
                    wire.latency,
                    int(self._nic.max()) + 1,
                    self._nic.ctypes.data,
                    wire.copy_on_arrival,
                )
            ),
        )
        if not self._proxy:
            raise fail("E455", f"no memory for a network between {n} ranks")

    def _ring(self, rank: int) -> ProxyRingRecord:
        submitted, taken, completed = (self._counters[rank, k].ctypes.data for k in range(3))
        ring = self._rings[rank].ctypes.data
        size, entry = ctypes.sizeof(ProxyRingRecord), ctypes.sizeof(TransferRecord)
        return ProxyRingRecord(size, entry, RING, 0, ring, submitted, taken, completed)

    def ring(self, rank: int) -> int:
        """Returns the address of a rank's proxy ring."""
        return ctypes.addressof(self.rings) + rank * ctypes.sizeof(ProxyRingRecord)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serves the rings while the context lasts."""
        if not self._library.call("start", self._proxy, self._threads):
            raise fail("E455", "no memory or threads for the proxy of the network")
        try:
            yield
        finally:
            self._library.call("stop", self._proxy)

    def reset(self) -> None:
        """Zeroes rings and counters, after a fault."""
        self._rings[...] = 0
        self._counters[...] = 0
        self._library.call("reset", self._proxy)

    def __del__(self) -> None:
        if getattr(self, "_proxy", None):
            self._library.call("free", self._proxy)
            self._proxy = None


def network_of(
    domain: Sequence[int] | NDArray[Any], nics: Sequence[int] | NDArray[Any], wire: Wire
) -> RankNetwork:
    """Makes a RankNetwork. nics: the NIC of each rank, by any numbers."""
    if len(domain) != len(nics):
        raise InternalError("a domain and a NIC for every rank")
    _, number = np.unique(np.asarray(nics), return_inverse=True)
    return RankNetwork(tuple(map(int, domain)), tuple(map(int, number)), wire)


_P, _INT = ctypes.c_void_p, ctypes.c_int
_SIGNATURES: dict[str, Signature] = {
    "new": (_P, (_INT, _P, _P, _P)),
    "start": (_INT, (_P, _INT)),
    "stop": (None, (_P,)),
    "reset": (None, (_P,)),
    "free": (None, (_P,)),
}


def _library() -> CLibrary:
    """Loads the library of proxy.h, built once."""
    include = Path(__file__).resolve().parent / "include"
    built = build_pieces([Piece(include / "proxy.cpp", flags=())])
    return CLibrary(built, "hccc_network_", _SIGNATURES)
