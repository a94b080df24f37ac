"""reading: a language's file as text, or one clear error."""

from __future__ import annotations

from pathlib import Path

from hccc.diagnostics import fail


def read_text(path: Path, most: int) -> str:
    """The text of a file of at most `most` bytes, without a byte order mark.

    Raises:
        UserError: E401 it cannot be read; E404 it is larger; E402 it is not UTF-8 text.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
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
