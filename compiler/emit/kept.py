"""kept: directories of kernels in this user's cache, where they are built and loaded.

Only hccc writes there, and only what it emitted: nothing of a directory that somebody else has made
is ever compiled or loaded in its place. A directory has the name of what it holds, so the libraries
built in it are found again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hccc.base.building.places import user_directory
from hccc.base.files.libraries import FOLDER
from hccc.base.files.writing import write_whole
from hccc.emit.compare import compare_kernels
from hccc.emit.targets import Target
from hccc.ir.catalogue import Catalogue

_KEPT_S = 30 * 86_400.0  # after which unused kernels are deleted


def kept(files: Mapping[str, str]) -> Path:
    """Writes the files of a directory, by name, into this user's cache, unless they are there;
    returns their folder.

    Raises:
        UserError: E413 there is no place that only this user can write to; E431 it cannot be
        written.
    """
    text = json.dumps(dict(sorted(files.items())), ensure_ascii=False).encode()
    place = _cache() / hashlib.sha256(text).hexdigest()[:32]
    place.mkdir(mode=0o700, exist_ok=True)
    for name, body in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != body.encode():
            write_whole(path, lambda file, body=body: file.write(body))  # type: ignore[misc]
    os.utime(place)
    _forget_old(place.parent)
    return place


def kept_kernels(place: Path, catalogue: Catalogue, targets: Sequence[Target]) -> Path:
    """Compares a directory with what its plan emits for these targets, and returns the folder where
    that is kept, from which the kernels are built and loaded; nothing of `place` ever is.

    Raises:
        UserError: E427, E428 as `compare_kernels`; E413, E431 as `kept`.
    """
    return kept(compare_kernels(place, catalogue, targets))


def is_kept(place: Path) -> bool:
    """Tells whether a directory is one of `kept`."""
    return place.resolve().parent == _cache().resolve()


def has_built(name: str) -> bool:
    """Tells whether any library whose name begins so was built in a directory of `kept`."""
    return any(_cache().glob(f"*/{FOLDER}/{name}*.so"))


def _cache() -> Path:
    return user_directory("kernels")


def _forget_old(cache: Path) -> None:
    for place in cache.iterdir():
        with suppress(OSError):
            if time.time() - place.stat().st_mtime > _KEPT_S:
                shutil.rmtree(place)
