"""reading: reads an input text once, and no further than the size limit of its language.

An input may be a pipe or a device: it has no known size, may never end, and cannot be read twice.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from hccc.base.diagnostics import fail
from hccc.base.files.plain import read_plain

_LOOKED_AT = 10_000  # files of a folder, for one with a name like that of a file that is not there
HEAD = 1 << 16  # bytes that tell the language; comments may come first


def read_text(path: Path, limit: int | Callable[[str], int]) -> str:
    """Reads the text of a file of at most `limit` bytes, without its byte order mark; `-` is stdin.

    limit: a number, or a function from the first HEAD bytes, for files of several languages.

    Raises:
        UserError: E401 the file cannot be read; E404 it is larger; E402 it is not UTF-8 text.
    """
    try:
        with _opened(path) as file:
            data = file.read(HEAD)
            if not isinstance(limit, int):
                limit = limit(data.decode("utf-8-sig", "replace"))
            data += file.read(limit + 1 - len(data)) if len(data) <= limit else b""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("E401", f"cannot read {str(path)!r}: {reason}", help=_similar(path)) from None
    return _text_of(path, data, limit)


def _similar(path: Path) -> str | None:
    """Returns the question whether another file of its folder is meant; None if none is like it."""
    try:
        if path.exists():
            return None
        names = [one.name for one in islice(path.parent.iterdir(), _LOOKED_AT)]
    except (OSError, ValueError):
        return None
    close = difflib.get_close_matches(path.name, names, 1, 0.75)
    return f"is it {str(path.with_name(close[0]))!r}?" if close else None


def read_text_in(directory: Path, name: str, limit: int) -> str:
    """Reads the text of a regular file of a directory that somebody else has made, as `read_text`.

    Raises:
        UserError: E401 it is no regular file, as a link is none, or cannot be read; E402, E404.
    """
    data = read_plain(directory, name, limit + 1)
    if data is None:
        raise fail("E401", f"cannot read {str(directory / name)!r}: it is no regular file")
    return _text_of(directory / name, data, limit)


def _text_of(path: Path, data: bytes, limit: int) -> str:
    if len(data) > limit:
        raise fail("E404", f"{path} is larger than {limit >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise fail("E402", f"{path} is not UTF-8 text (byte {error.start})") from None
    if "\0" in text:
        raise fail("E402", f"{path} is not text (byte {text.index(chr(0))} is zero)")
    return text


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    """Opens the file; `-` is stdin, which stays open."""
    return nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb")
