"""device_memory: memory of a GPU for what a rank measures, filled and read by way of the host."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from numpy.typing import NDArray

from hccc.runtime.device.device_layer import library
from hccc.runtime.device.stream import on_platform, value_of


def device_count(platform: str) -> int:
    """Returns how many devices of a platform this host has, one at least."""
    found = ctypes.c_int()
    with on_platform(platform):
        library().call("GetDeviceCount", ctypes.byref(found))
    return max(1, found.value)


class DeviceMemory:
    """Memory of a device of a platform, `bytes` long, which lives as long as it. Raises UserError
    E472 where the device refuses."""

    def __init__(self, platform: str, device: int, bytes: int) -> None:
        self._platform, self._device = platform, device
        made = ctypes.c_void_p()
        self._call("Malloc", ctypes.byref(made), max(1, bytes))
        self.address = made.value or 0
        end = weakref.finalize(self, _free, platform, device, self.address)
        end.atexit = False  # the process's end frees it

    def put(self, array: NDArray[Any]) -> None:
        """Copies an array of the host into it."""
        self._call(
            "Memcpy", self.address, array.ctypes.data, array.nbytes, value_of("MemcpyDefault")
        )

    def get(self, array: NDArray[Any]) -> None:
        """Copies it into an array of the host."""
        self._call(
            "Memcpy", array.ctypes.data, self.address, array.nbytes, value_of("MemcpyDefault")
        )

    def _call(self, name: str, *arguments: Any) -> None:
        _call(self._platform, self._device, name, *arguments)


def _call(platform: str, device: int, name: str, *arguments: Any) -> None:
    with on_platform(platform):
        library().call("SetDevice", device)
        library().call(name, *arguments)


def _free(platform: str, device: int, address: int) -> None:
    _call(platform, device, "Free", address)
