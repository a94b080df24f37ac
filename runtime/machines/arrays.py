"""arrays: as much of CuPy's interface as launches use, in host memory that the machine knows."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

ALIGNMENT = 512  # bytes, as CuPy's allocator


class Pointer:
    """An address in device memory: cupy.cuda.MemoryPointer."""

    def __init__(self, address: int) -> None:
        self.ptr = address


class DeviceArray(np.ndarray[Any, Any]):
    """An array of the device: cupy.ndarray."""

    @property
    def data(self) -> Any:
        """Its memory."""
        return Pointer(self.__array_interface__["data"][0])

    def set(self, host: Any) -> None:
        """Copies from the host."""
        self[...] = host

    def get(self, out: Any) -> Any:
        """Copies to the host."""
        out[...] = self
        return out


class Arrays:
    """Makes arrays, and lists the memory of those that are still there."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[DeviceArray]] = []

    def empty(self, shape: Any, dtype: Any) -> DeviceArray:
        """Makes an array of zeros: nothing that a test reads may depend on chance."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        room = np.zeros(size + ALIGNMENT, np.uint8)
        begin = -room.ctypes.data % ALIGNMENT
        made: DeviceArray = room[begin : begin + size].view(kind).reshape(shape).view(DeviceArray)
        self._made.append(weakref.ref(made))
        return made

    zeros = empty

    def asarray(self, host: Any) -> DeviceArray:
        """Copies an array to the device."""
        host = np.asarray(host)
        made = self.empty(host.shape, host.dtype)
        made[...] = host
        return made

    def asnumpy(self, array: DeviceArray) -> Any:
        """Copies an array to the host."""
        return np.array(array)

    def regions(self) -> list[tuple[int, int]]:
        """Returns the address and bytes of each array."""
        alive = [(made, ref) for ref in self._made if (made := ref()) is not None]
        self._made = [ref for _, ref in alive]
        return [(int(made.data.ptr), made.nbytes) for made, _ in alive if made.nbytes]
