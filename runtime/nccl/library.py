"""library: builds `libnccl.so.2` and `librccl.so.1`, with what they need beside them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from hccc.base.building.build import Piece, build_pieces
from hccc.base.building.places import user_directory
from hccc.base.files.writing import beside
from hccc.runtime.communicator import runtime_library

HERE = Path(__file__).parent
NAMES = ("libnccl.so.2", "librccl.so.1")  # as programs are linked with them
_ROOMS = tuple(HERE.parent / room for room in ("communicator", "device"))
PIECE = Piece(
    HERE / "hcccnccl.cpp",
    include=(HERE / "include", HERE.parent / "include", *(room / "include" for room in _ROOMS)),
    reads=(HERE.parent / "communicator", HERE.parent / "vendor"),
)


def link(name: str) -> list[str]:
    """Returns the linker's options of the library of a name."""
    return [f"-Wl,-soname,{name}", "-Wl,-z,nodelete", "-ldl"]


def folder() -> Path:
    """Builds both libraries, unless they were, and returns their folder in this user's cache.

    Beside them are a link to the library of communicators, which a process loads once, and the
    command that makes standard libraries.

    Raises UserError E412 to E414.
    """
    links = {"libhccc.so": runtime_library.build()}
    for name in NAMES:
        links[name] = build_pieces([PIECE], link(name))
    command = "\n".join([*runtime_library.command(), ""])
    words = [command, *(str(path) for path in links.values())]
    place = user_directory("nccl") / hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    place.mkdir(mode=0o700, exist_ok=True)
    _fill(place, links, command)
    return place


def _fill(place: Path, links: Mapping[str, Path], command: str) -> None:
    """Writes what is missing in the folder; others may do the same at the same time."""
    for name, target in links.items():
        if not (place / name).is_symlink():
            made = beside(place / name)
            made.unlink(missing_ok=True)
            os.symlink(target, made)
            made.replace(place / name)
    if not (place / "command").exists():
        made = beside(place / "command")
        made.write_text(command, encoding="utf-8")
        made.replace(place / "command")
