"""lock: one writer at a time in the places that have one parent directory.

The lock is the kernel's, on the parent directory itself: it leaves no file behind, ends with its
process, and is there before the place is. Where the file system locks no directories (NFS), a file
in the temporary directory stands for it, which keeps apart the processes of one user and machine.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hccc.base.diagnostics import fail

PATIENCE_S = 60.0  # writing takes well below one second
_PAUSE_S = 0.01
_NO_LOCKS = frozenset(
    {errno.EACCES, errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}
)


@contextmanager
def locked(parent: Path) -> Iterator[None]:
    """Makes `parent`, waits until nobody else writes below it, and lets nobody until it ends.

    Directories that were made for it are taken away again where that, or what follows, fails.

    Raises:
        UserError: E435 others were writing all the time. OSError: it cannot be made.
    """
    made = [path for path in (parent, *parent.parents) if not path.exists()]
    try:
        lock = _patiently(parent)
    except BaseException:
        _take_away(made)
        raise
    try:
        yield
    except BaseException:
        _take_away(made)
        raise
    finally:
        os.close(lock)


def _take_away(directories: list[Path]) -> None:
    for path in directories:
        with suppress(OSError):  # somebody has put something there
            path.rmdir()


def _patiently(parent: Path) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while (lock := _attempt(parent)) is None:
        if time.monotonic() > deadline:
            message = f"{parent}: another process has been writing there for {PATIENCE_S:.0f} s"
            raise fail("E435", message, help="wait until it ends, or give -o another place")
        time.sleep(_PAUSE_S)
    return lock


def _attempt(parent: Path) -> int | None:
    """A descriptor that holds the lock; None while somebody else does."""
    parent.mkdir(parents=True, exist_ok=True)
    try:
        return _taken(parent, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:  # somebody whose writing failed took it away again
        return None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    name = hashlib.sha256(os.fsencode(os.path.realpath(parent))).hexdigest()[:16]
    stand_in = Path(tempfile.gettempdir()) / f"hccc-{os.getuid()}-{name}.lock"
    return _taken(stand_in, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)


def _taken(path: Path, how: int) -> int | None:
    lock = os.open(path, how, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), path.stat()):  # it is still what has that name
            return lock
    except BlockingIOError:
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None
