"""writing: output files, written whole or not at all; after a failure the old content is still
there.

New content is written to a temporary file beside its place, and renamed. A process that is killed
between the two leaves the temporary file; the next writer to the same place removes it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import TextIO

from hccc.base.diagnostics import fail

Write = Callable[[TextIO], object]
LEFT_S = 60.0  # a living writer changes its files more often
_BESIDE = re.compile(r"\.(.{1,40})\.hccc-[0-9a-f]{16}", re.DOTALL)
_NAMED = 40  # letters of the name kept in the temporary name: names have at most 255 bytes
_HELP = "give a file in a directory that can be written"


def write_whole(path: Path, write: Write) -> None:
    """Writes `path` whole or not at all: `write` fills a temporary file beside it, which is then
    renamed to `path`.

    A `path` that is no regular file (a pipe, a device) is written to directly.

    Raises:
        UserError: E431 it cannot be written.
    """
    with named_errors(path):
        _no_directory(path)
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8") as file:
                write(file)
            return
        path = path.resolve()
        remove_leftovers(path.parent, path.name)
        replace_all({path: write})


def check_place(path: Path, *inputs: Path | None) -> None:
    """Checks before any work that `path` can be written and is none of `inputs`.

    Raises:
        UserError: E431 otherwise.
    """
    with named_errors(path):
        _no_directory(path)
        if path.exists() and any(x and x.exists() and path.samefile(x) for x in inputs):
            raise FileExistsError(0, "it is read, too")
        if not path.parent.is_dir():
            raise FileNotFoundError(0, "there is no such directory")
        needed = [path] if path.exists() else []
        if not needed or path.is_file():  # it is replaced by renaming
            needed.append(path.resolve().parent)
        if not all(os.access(needs, os.W_OK) for needs in needed):
            raise PermissionError(0, "permission denied")


@contextmanager
def named_errors(path: Path, help: str = _HELP) -> Iterator[None]:
    """Turns errors of the system into E431 of `path`."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a null byte in a path
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("E431", f"{path}: cannot be written: {reason}", help=help) from None


def beside(path: Path) -> Path:
    """Returns a new temporary name in the directory of `path`."""
    return path.with_name(f".{path.name[:_NAMED]}.hccc-{token_hex(8)}")


def replace_all(files: Mapping[Path, Write], gone: Sequence[Path] = ()) -> None:
    """Writes every path of `files` by its function, in order, and removes the files `gone`.

    All or nothing: everything is written before the first file is renamed, and after a failure the
    renamed files are put back. New files keep the mode of the files they replace. The paths are
    regular files or do not exist; their directories exist.

    Raises:
        OSError: something failed. Also the exceptions of the functions.
    """
    new = {path: beside(path) for path in files}
    old = {path: beside(path) for path in (*gone, *files)}
    begun: list[Path] = []
    try:
        for path, write in files.items():
            _write_beside(path, new[path], write)
        for path in old:
            begun.append(path)
            if path not in files:
                os.rename(path, old[path])
                continue
            if path.exists():
                _keep(path, old[path])
            os.replace(new[path], path)
    except BaseException:
        for path in reversed(begun):
            if old[path].exists():
                os.replace(old[path], path)
            elif path in new and not new[path].exists():
                path.unlink()
        raise
    finally:
        for left in (*new.values(), *old.values()):
            left.unlink(missing_ok=True)


def remove_leftovers(directory: Path, name: str | None = None, age_s: float | None = None) -> None:
    """Removes temporary files of killed writers beside `name`, or beside any file of `directory`.

    A leftover has a name from `beside`, belongs to this user, and has not changed for `age_s`
    seconds (None: LEFT_S). Files that cannot be removed stay, without an error.
    """
    wanted = name and name[:_NAMED]
    age_s = LEFT_S if age_s is None else age_s
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            found = _BESIDE.fullmatch(entry.name)
            if found and wanted in (None, found[1]):
                with suppress(OSError):
                    _remove_old(entry, age_s)


def _remove_old(entry: os.DirEntry[str], age_s: float) -> None:
    there = entry.stat(follow_symlinks=False)
    if there.st_uid != os.getuid() or time.time() - there.st_ctime < age_s:
        return
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path)
    elif entry.is_file(follow_symlinks=False):
        os.unlink(entry.path)


def _no_directory(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(0, "it is a directory")


def _write_beside(path: Path, new: Path, write: Write) -> None:
    with new.open("x", encoding="utf-8", newline="\n") as file:
        write(file)
    if path.exists():
        os.chmod(new, path.stat().st_mode & 0o777)


def _keep(path: Path, old: Path) -> None:
    """Gives the content of `path` a second name; copies it where the file system has no hard
    links."""
    try:
        os.link(path, old)
    except OSError:
        shutil.copy2(path, old)
