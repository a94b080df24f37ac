"""messages: what a receive got."""

from __future__ import annotations

import ctypes

ANY = -1  # HCCC_ANY_SOURCE, HCCC_ANY_TAG


class Status(ctypes.Structure):
    """hcccStatus_t."""

    _fields_ = (("source", ctypes.c_int), ("tag", ctypes.c_int), ("count", ctypes.c_size_t))


class Received:
    """The message of a receive, when that is done: at once, or after its group or in its stream."""

    def __init__(self) -> None:
        self._status = Status(ANY, ANY, 0)

    @property
    def address(self) -> int:
        """The address of its hcccStatus_t."""
        return ctypes.addressof(self._status)

    @property
    def source(self) -> int:
        """The rank that sent it; -1 until the receive is done."""
        return int(self._status.source)

    @property
    def tag(self) -> int:
        """Its tag; -1 until the receive is done."""
        return int(self._status.tag)

    @property
    def count(self) -> int:
        """Its elements, as many as the array has or fewer."""
        return int(self._status.count)

    def __repr__(self) -> str:
        return f"Received(source={self.source}, tag={self.tag}, count={self.count})"
