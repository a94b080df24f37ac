"""meeting: how the ranks of a process group find each other, through PyTorch's store."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from hccc.runtime.communicator.rank import unique_id

_KEY = "hccc"
_ADDRESSES = ("HCCC_BIND", "HCCC_SOCKET_IFNAME")


def met(store: Any, rank: int, timeout: timedelta) -> bytes:
    """Returns the id of the group's communicator, which rank 0 makes.

    store: a clone of the group's. Raises CommunicatorError, and PyTorch's error where rank 0 does
    not come in time.
    """
    if rank == 0:
        with _reachable():
            made = unique_id()
        store.set(_KEY, made)
        return made
    store.wait([_KEY], timeout)
    return bytes(store.get(_KEY))


def forget(store: Any, rank: int) -> None:
    """Removes the id, when all ranks have met: stores live longer than groups, and a later group
    of the same name must not find it."""
    if rank == 0:
        store.delete_key(_KEY)


@contextmanager
def _reachable() -> Iterator[None]:
    """Has an id made at an address that other hosts reach, where the job has several: the one by
    which this host reaches PyTorch's master. HCCC_BIND and HCCC_SOCKET_IFNAME go before."""
    address = None if any(map(os.environ.get, _ADDRESSES)) else _own_address()
    if address is None:
        yield
        return
    os.environ["HCCC_BIND"] = address
    try:
        yield
    finally:
        del os.environ["HCCC_BIND"]


def _own_address() -> str | None:
    master = os.environ.get("MASTER_ADDR", "")
    everywhere, here = (os.environ.get(name) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if not master or everywhere == here:
        return None
    try:
        family, kind, _, _, place = socket.getaddrinfo(master, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)  # sends nothing: chooses the route
            address = str(probe.getsockname()[0])
    except OSError:
        return None
    return None if address == "::1" or address.startswith("127.") else address
