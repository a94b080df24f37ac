"""prebuilt: libraries that a platform wheel brings, which need no compiler.

They lie in a directory of the package, and are for every processor of their kind (`MARCH`). A clone
has none. Whoever can change them could change the package as well: their directory and files have
the owner of the package's, and nobody else can write to them who cannot write to that. The standard
collectives there are found by `runtime/communicator/standard.cpp`, beside its own library.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hccc.base.files.libraries import name_of

PLACE = Path(__file__).parents[2] / "prebuilt"
VARIABLE = "HCCC_PREBUILT"  # 0: they are not used
MARCH = "x86-64"  # what the compiler calls the processors
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def prebuilt_place() -> Path | None:
    """Returns the directory of such libraries; None: there is none, or it is not to be used."""
    used = os.environ.get(VARIABLE) != "0" and _is_of_package(PLACE, stat.S_IFDIR)
    return PLACE if used else None


def prebuilt(stem: str, suffix: str = ".so") -> Path | None:
    """Finds a library by its name without the hash of its content."""
    place = prebuilt_place()
    found = place.glob(f"{stem}-*{suffix}") if place else ()
    own = (path for path in found if _is_of_package(path, stat.S_IFREG))
    return next((p for p in own if p.name == name_of(stem, suffix, p.read_bytes())), None)


def _is_of_package(path: Path, kind: int) -> bool:
    """Tells whether a path is of that kind, no link, and only whoever can change the package can
    change it."""
    try:
        found, package = path.lstat(), PLACE.parent.stat()
    except OSError:
        return False
    others = found.st_mode & _OTHERS & ~package.st_mode
    return stat.S_IFMT(found.st_mode) == kind and found.st_uid == package.st_uid and not others
