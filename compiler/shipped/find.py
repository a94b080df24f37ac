"""find: the files that ship with hccc, by name; reads a file, or the shipped file of that name.

The folders beside this module are links into `examples/`. A shipped file is named by its stem
(`hm_allreduce`, `resccl-topo4`); no two have the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from enum import Enum
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from hccc.base.diagnostics import Source, fail
from hccc.base.files.reading import read_text


class ShippedKind(Enum):
    """A kind of shipped file: its folder and its suffix."""

    ALGORITHM = ("algorithms", ".rccl")
    XML = ("msccl", ".xml")
    CLUSTER = ("clusters", ".cluster")


STDIN = "-"
ALL_KINDS = tuple(ShippedKind)
PROGRAMS = (ShippedKind.ALGORITHM,)
CLUSTERS = (ShippedKind.CLUSTER,)
LIST_CLUSTERS = "`hccc cluster list` names the clusters that ship"


def names(kind: ShippedKind) -> list[str]:
    """Returns the names of all files of one kind, sorted."""
    return sorted(file.name.removesuffix(kind.value[1]) for file in _folder(kind))


def read(
    path: Path, limit: int | Callable[[str], int], kinds: Iterable[ShippedKind] = ALL_KINDS
) -> Source:
    """Reads a file or, where `path` does not exist, the shipped file of that name; `-` is stdin.

    limit: as for `read_text`. kinds: the kinds of shipped files that a name may stand for.

    Raises:
        UserError: E401 neither exists, or it cannot be read; E402, E404 as `read_text`.
    """
    if (found := find(path, kinds)) is not None:
        return Source(found.name, found.read_text(encoding="utf-8"))
    return Source("<stdin>" if str(path) == STDIN else str(path), read_text(path, limit))


def find(path: Path, kinds: Iterable[ShippedKind] = ALL_KINDS) -> Traversable | None:
    """Finds the shipped file named `path`, with or without its suffix; None if `path` is a file's
    path.

    Raises:
        UserError: E401 the name is neither a file's nor that of a shipped file.
    """
    word = str(path)
    if word == STDIN or os.path.lexists(path) or path.name != word:
        return None
    kinds = tuple(kinds)
    for kind in kinds:
        for file in _folder(kind):
            if word in (file.name, file.name.removesuffix(kind.value[1])):
                return file
    if path.suffix or not word:
        return None
    message = f"cannot read {word!r}: it is no file, and nothing of that name ships with hccc"
    raise fail("E401", message, help=_help(word, kinds))


def _folder(kind: ShippedKind) -> list[Traversable]:
    folder, end = kind.value
    return [file for file in (files("hccc.shipped") / folder).iterdir() if file.name.endswith(end)]


def _help(word: str, kinds: tuple[ShippedKind, ...]) -> str:
    known = {kind: names(kind) for kind in kinds}
    every = [name for found in known.values() for name in found]
    if near := get_close_matches(word[:64], every, n=1):
        return f"did you mean {near[0]}?"
    if ShippedKind.ALGORITHM in known:
        return f"algorithms that ship are {', '.join(known[ShippedKind.ALGORITHM])}"
    return LIST_CLUSTERS
