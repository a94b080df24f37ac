"""lock: one writer at a time in the places that have one parent directory.

The lock is the kernel's, on the parent directory itself: it leaves no file behind, ends with its
process, and can be taken before the place exists. On file systems that lock no directories (NFS)
a file in the temporary directory is locked instead, which excludes only processes of the same user
on the same machine.
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

TIMEOUT_S = 60.0  # writing takes well below one second
_PAUSE_S = 0.01
_NO_LOCKS = frozenset(
    {errno.EACCES, errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}
)


@contextmanager
def locked(parent: Path) -> Iterator[None]:
    """Creates `parent` and keeps other writers out of it until the `with` block ends.

    Directories created for it are removed again if the lock or the block fails.

    Raises:
        UserError: E435 others held the lock for TIMEOUT_S. OSError: `parent` cannot be created.
    """
    made = [path for path in (parent, *parent.parents) if not path.exists()]
    try:
        lock = _wait_for(parent)
    except BaseException:
        _remove(made)
        raise
    try:
        yield
    except BaseException:
        _remove(made)
        raise
    finally:
        os.close(lock)


def _remove(directories: list[Path]) -> None:
    for path in directories:
        with suppress(OSError):  # another process has put something there
            path.rmdir()


def _wait_for(parent: Path) -> int:
    deadline = time.monotonic() + TIMEOUT_S
    while (lock := _lock_parent(parent)) is None:
        if time.monotonic() > deadline:
            message = f"{parent}: another process has been writing there for {TIMEOUT_S:.0f} s"
            raise fail("E435", message, help="wait until it ends, or give -o another place")
        time.sleep(_PAUSE_S)
    return lock


def _lock_parent(parent: Path) -> int | None:
    """Returns a descriptor that holds the lock; None while another process holds it."""
    parent.mkdir(parents=True, exist_ok=True)
    try:
        return try_lock(parent, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:  # a writer that failed removed it again
        return None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    name = hashlib.sha256(os.fsencode(os.path.realpath(parent))).hexdigest()[:16]
    stand_in = Path(tempfile.gettempdir()) / f"hccc-{os.getuid()}-{name}.lock"
    return try_lock(stand_in, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)


def try_lock(path: Path, flags: int) -> int | None:
    """Opens and locks a file or directory. Returns its descriptor, which holds the lock until it is
    closed; None while another process or thread holds it.

    Raises:
        OSError: it cannot be opened or locked, or somebody has removed it meanwhile.
    """
    lock = os.open(path, flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), path.stat()):  # the path still names the locked file
            return lock
    except BlockingIOError:
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None
