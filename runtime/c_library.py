"""c_library: a C library's functions with their types, called through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Signature = tuple[Any, tuple[Any, ...]]  # the ctypes types of the result and of the parameters


class CLibrary:
    """Functions of a shared library by their names without a prefix.

    The library stays loaded. Raises OSError where it cannot be loaded, and AttributeError where it
    lacks a function.
    """

    def __init__(self, path: Path, prefix: str, signatures: Mapping[str, Signature]) -> None:
        self._loaded = ctypes.CDLL(str(path))
        self._functions: dict[str, Any] = {}
        for name, (result, parameters) in signatures.items():
            function = getattr(self._loaded, prefix + name)
            function.restype, function.argtypes = result, list(parameters)
            self._functions[name] = function

    @property
    def handle(self) -> int:
        """The handle of dlopen."""
        return int(self._loaded._handle)

    def function(self, name: str) -> Any:
        """Returns a function, to be called without a look-up."""
        return self._functions[name]

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a function and returns its result."""
        return self._functions[name](*arguments)


def text_of(data: bytes | None) -> str:
    """Decodes a C string; bytes that are no UTF-8 are replaced."""
    return (data or b"").decode("utf-8", "replace")
