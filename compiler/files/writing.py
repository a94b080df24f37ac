"""Output files: written whole or not at all; what was there before stays when something fails."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from hccc.diagnostics import fail


def write_whole(path: Path, write: Callable[[TextIO], object]) -> None:
    """Lets `write` write to a file beside `path`, which then takes its name.

    What is there and is no ordinary file (a pipe, a device) is written to as it is.

    Raises:
        UserError: E431 it cannot be written.
    """
    with _named_errors(path):
        if path.is_dir():
            raise IsADirectoryError(0, "it is a directory")
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8") as file:
                write(file)
            return
        _replace(path.resolve(), write)


def check_place(path: Path, *inputs: Path | None) -> None:
    """What can be known before any work: `path` can be written, and is none of `inputs`.

    Raises:
        UserError: E431 otherwise.
    """
    with _named_errors(path):
        if path.is_dir():
            raise IsADirectoryError(0, "it is a directory")
        if path.exists() and any(x and x.exists() and path.samefile(x) for x in inputs):
            raise FileExistsError(0, "it is read, too")
        if not path.parent.is_dir():
            raise FileNotFoundError(0, "there is no such directory")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PermissionError(0, "permission denied")


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a null byte in a path
        reason = getattr(error, "strerror", None) or str(error)
        help = "give a file in a directory that can be written"
        raise fail("E431", f"{path}: cannot be written: {reason}", help=help) from None


def _replace(path: Path, write: Callable[[TextIO], object]) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent, text=True)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            write(file)
        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
