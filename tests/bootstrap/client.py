"""client: functions of hccc_bootstrap.h that only tests call from Python."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

from hccc.runtime.bootstrap.rendezvous import Bootstrap, call, library, seconds_of

MOST_MESSAGE = 256


class BootstrapClient(Bootstrap):
    """One rank, with every call of the C interface. Collective: `gather_equal`, `barrier` too."""

    def gather_equal(self, own: bytes, timeout: float | None = None) -> list[bytes]:
        """Gathers as many bytes of every rank, in order of ranks."""
        n = len(own)
        data = ctypes.create_string_buffer(n * self.n_ranks)
        ctypes.memmove(ctypes.addressof(data) + n * self.rank, own, n)
        call("allgather", self._handle, data, n, seconds_of(timeout))
        return [data.raw[n * i : n * (i + 1)] for i in range(self.n_ranks)]

    def barrier(self, timeout: float | None = None) -> None:
        """Returns when all ranks have called it."""
        call("barrier", self._handle, seconds_of(timeout))

    def fileno(self) -> int:
        """Returns a descriptor, readable when `departure` or `message` may return something."""
        return int(library().call("poll_fd", self._handle))

    def departure(self) -> tuple[int, bool] | None:
        """Returns a rank that has gone, once, and whether it closed before; None: none."""
        rank, orderly = ctypes.c_int(), ctypes.c_int()
        by = ctypes.byref
        if not library().call("next_departure", self._handle, by(rank), by(orderly)):
            return None
        return rank.value, bool(orderly.value)

    def notify(self, message: bytes) -> None:
        """Sends a message of up to MOST_MESSAGE bytes to all other ranks."""
        library().call("notify", self._handle, message, len(message))

    def message(self) -> tuple[int, bytes] | None:
        """Returns the next message of another rank; None: none."""
        rank, n = ctypes.c_int(), ctypes.c_size_t()
        data = ctypes.create_string_buffer(MOST_MESSAGE)
        by = ctypes.byref
        if not library().call("next_message", self._handle, by(rank), data, by(n)):
            return None
        return rank.value, data.raw[: n.value]


def hmac(key: bytes, data: bytes) -> bytes:
    """Computes HMAC-SHA-256 as the handshake does."""
    made = ctypes.create_string_buffer(32)
    library().call("hmac", key, len(key), data, len(data), made)
    return made.raw


def close_all(descriptors: Sequence[Sequence[int]]) -> None:
    """Closes the descriptors that `Bootstrap.share` returned."""
    for fd in (fd for of_rank in descriptors for fd in of_rank if fd >= 0):
        os.close(fd)
