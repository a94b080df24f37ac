"""plain: reads files of a directory that somebody else has made, following no link in it.

Opening a link would read another file, a device that never ends, or a pipe that nobody writes to.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_plain(directory: Path, name: str, most: int) -> bytes | None:
    """Returns at most the first `most` bytes of a regular file; None if there is none.

    name: relative to the directory, `/` between folders. The directory itself may be a link.
    """
    *folders, file = name.split("/")
    with suppress(OSError), _opened(directory, folders) as folder:
        found = os.open(file, _FILE, dir_fd=folder)
        with os.fdopen(found, "rb") as opened:
            if stat.S_ISREG(os.fstat(found).st_mode):
                return opened.read(most)
    return None


def is_plain(directory: Path, name: str) -> bool:
    """Tells whether there is a regular file of this name, as in `read_plain`."""
    return read_plain(directory, name, 0) is not None


def entries_in(directory: Path, folder: str, most: int) -> list[tuple[str, str]]:
    """Lists the entries of the directory, or of a folder in it, sorted: the name and what it is.

    folder: its name, "" for the directory itself. most: entries that are looked at. What an entry
    is: `file`, `folder`, `link` or `special`. A folder that is none has no entries.
    """
    inner = [folder] if folder else []
    with suppress(OSError), _opened(directory, inner) as opened, os.scandir(opened) as found:
        return sorted((entry.name, _kind(entry)) for entry in islice(found, most))
    return []


@contextmanager
def _opened(directory: Path, folders: list[str]) -> Iterator[int]:
    """Opens a folder below the directory. Raises OSError if one of `folders` is a link."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in folders:
            inner = os.open(name, _FOLDER, dir_fd=opened)
            os.close(opened)
            opened = inner
        yield opened
    finally:
        os.close(opened)


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "special"
