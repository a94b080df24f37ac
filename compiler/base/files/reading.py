"""reading: a text that somebody gives, read once, and no further than its language goes.

What is read may be a pipe or a device: it has no size beforehand, may never end, and cannot be
read twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

from hccc.base.diagnostics import fail

HEAD = 1 << 16  # bytes that tell the language; comments may come first


def read_text(path: Path, most: int | Callable[[str], int]) -> str:
    """The text of a file of at most `most` bytes, without a byte order mark; `-` is stdin.

    most: a number, or what tells it from the first HEAD bytes, for files of several languages.

    Raises:
        UserError: E401 it cannot be read; E404 it is larger; E402 it is not UTF-8 text.
    """
    try:
        with _opened(path) as file:
            data = file.read(HEAD)
            if not isinstance(most, int):
                most = most(data.decode("utf-8-sig", "replace"))
            data += file.read(most + 1 - len(data)) if len(data) <= most else b""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("E401", f"cannot read {str(path)!r}: {reason}") from None
    if len(data) > most:
        raise fail("E404", f"{path} is larger than {most >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise fail("E402", f"{path} is not UTF-8 text (byte {error.start})") from None
    if "\0" in text:
        raise fail("E402", f"{path} is not text (byte {text.index(chr(0))} is zero)")
    return text


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    """The file, or stdin for `-`, which stays open."""
    return nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb")
