"""places: directories of this user's for files that are compiled and then run as this user.

Anybody who can write there could run code as this user. So a place belongs to the user, nobody else
can write to it, and it is no link, which somebody else may have put at a predictable name.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from hccc.base.diagnostics import fail

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def user_directory(name: str) -> Path:
    """Returns the directory `name` of hccc in this user's cache: `$XDG_CACHE_HOME/hccc` or
    `~/.cache/hccc`; if neither can be written, one in the temporary directory.

    Raises:
        UserError: E413 there is none that only this user can write to.
    """
    refused = []
    for base in _bases():
        try:
            base.parent.mkdir(parents=True, exist_ok=True)
            return _private(_private(base) / name)
        except OSError as error:
            refused.append(f"{error.filename or base}: {error.strerror or error}")
    raise fail(
        "E413",
        f"nowhere can compiled libraries be kept: {'; '.join(refused)}",
        help="set XDG_CACHE_HOME or TMPDIR to a directory of your own",
    )


def _bases() -> list[Path]:
    caches = []
    for cache in (os.environ.get("XDG_CACHE_HOME", ""), "~/.cache"):
        expanded = Path(os.path.expanduser(cache))
        if expanded.is_absolute():
            caches.append(expanded / "hccc")
    return [*caches, Path(tempfile.gettempdir()) / f"hccc-{os.getuid()}"]


def _private(directory: Path) -> Path:
    """Creates a directory that only this user can write to, unless it exists. Raises OSError."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()  # of a link, not of what it names
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(0, "is no directory", str(directory))
    if found.st_uid != os.getuid():
        raise PermissionError(0, "belongs to another user", str(directory))
    if found.st_mode & _OTHERS:
        raise PermissionError(0, "others can write to it", str(directory))
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(0, "cannot be written", str(directory))
    return directory
