"""meeting: how the ranks of a process group find each other, through PyTorch's store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hccc.runtime.communicator.rank import unique_id

_KEY = "hccc"


def met(store: Any, rank: int, timeout: timedelta) -> bytes:
    """Returns the id of the group's communicator, which rank 0 makes.

    store: a clone of the group's. Raises CommunicatorError, and PyTorch's error where rank 0 does
    not come in time.
    """
    if rank == 0:
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
