"""device_layer: the library of the device layer, built at its first use, called through ctypes.

Names of calls are those of Fig. 10 of HetCCL-SNU, without a prefix: `call("Malloc", ...)`.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hccc.base.building.build import Piece, build_pieces
from hccc.base.diagnostics import UserError, fail
from hccc.runtime.c_library import CLibrary, Signature, text_of
from hccc.runtime.device.description import PREFIX, DeviceCall, description

DEVICE = Piece(Path(__file__).parent / "hcccrt.cpp")
LINK = ("-Wl,-z,nodelete",)  # threads of streams run its code until the devices are reset
PLATFORMS = ("cpu", "cuda", "hip")  # by number, from 1 on
MESSAGE_BYTES = 1024
_PLAIN: Mapping[str, Any] = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "size_t": ctypes.c_size_t,
    "unsigned long long": ctypes.c_ulonglong,
    "char": ctypes.c_char,
    "const char *": ctypes.c_char_p,
}


def _type(text: str) -> Any:
    """Returns the ctypes type of a C type; pointers, handles and functions are addresses."""
    if text in _PLAIN:
        return _PLAIN[text]
    name = text.removeprefix(PREFIX)
    if name in {struct.name for struct in description().structs}:
        return structure(name)
    enums = {f"{enum.name}_t" for enum in description().enums}
    return ctypes.c_int if name in enums else ctypes.c_void_p


@cache
def structure(name: str) -> type[ctypes.Structure]:
    """Makes the ctypes structure of a name (`DeviceProp`, `Dim3`)."""
    (found,) = (struct for struct in description().structs if struct.name == name)
    fields: list[tuple[str, Any]] = []
    for type_, declarator, _ in found.fields:
        match = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", declarator)
        assert match, declarator
        of = _type(type_)
        fields.append((match[1], of * int(match[2]) if match[2] else of))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


class DeviceLibrary(CLibrary):
    """The device layer at `path`."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path, PREFIX, {call.name: _signature(call) for call in description().calls}
        )

    def try_call(self, name: str, *arguments: Any) -> int:
        """Calls a function and returns its `hcccrtError_t`, as a number."""
        return int(super().call(name, *arguments))

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function. Raises UserError E472 for anything but success."""
        error = self.try_call(name, *arguments)
        if error:
            raise _failed(name, error, self.string_of(error))

    def string_of(self, error: int) -> str:
        """Returns the text of an error."""
        return text_of(super().call("GetErrorString", error))


def _signature(call: DeviceCall) -> Signature:
    return _type(call.result), tuple(_type(p.type) for p in call.parameters)


def _failed(name: str, error: int, meaning: str) -> UserError:
    return fail("E472", f"{PREFIX}{name} failed: {meaning} ({error})")


@cache
def library() -> DeviceLibrary:
    """Loads the device layer of this process, once. Raises UserError E412 to E414."""
    return DeviceLibrary(build_pieces([DEVICE], LINK))


def available() -> tuple[str, ...]:
    """Lists the platforms of this machine: `cpu`, and `cuda` and `hip` where there are devices."""
    mask = ctypes.c_uint()
    library().call("GetAvailablePlatforms", ctypes.byref(mask))
    return tuple(name for i, name in enumerate(PLATFORMS, 1) if mask.value >> i & 1)


def message(platform: str | None = None) -> str:
    """Returns what was found of a platform, or why it is not here; None: how the process's was
    chosen."""
    text = ctypes.create_string_buffer(MESSAGE_BYTES)
    number = 0 if platform is None else _number(platform)
    library().call("GetPlatformMessage", number, text, MESSAGE_BYTES)
    return text_of(text.value)


def current() -> str:
    """Returns the platform of this thread. Raises UserError E470: HCCC_PLATFORM names none that is
    here."""
    number = ctypes.c_int()
    if library().try_call("GetPlatform", ctypes.byref(number)):
        named = number.value
        why = message(PLATFORMS[named - 1]) if named else "it is none of cpu, cuda and hip"
        raise fail("E470", f"{message()}: {why}", help=f"one of: {', '.join(available())}")
    return PLATFORMS[number.value - 1]


def use(platform: str | None) -> None:
    """Directs later calls of this thread to `platform`; None: the process's. Raises UserError
    E470."""
    if platform is None:
        if library().try_call("SetPlatformAuto"):
            current()
    elif library().try_call("SetPlatform", _number(platform)):
        raise fail(
            "E470",
            f"there is no {platform} here: {message(platform)}",
            help=f"one of: {', '.join(available())}",
        )


def _number(platform: str) -> int:
    if platform not in PLATFORMS:
        raise fail("E470", f"`{platform}` is no platform", help=f"one of: {', '.join(PLATFORMS)}")
    return PLATFORMS.index(platform) + 1
