"""The files that ship with hccc, found by name, and reading a file or one of those.

The folders beside this module are links into `examples/`: what ships is what the examples are. A
file that ships has the name of its stem (`hm_allreduce`, `resccl-topo4`); no two have the same.
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


class Kind(Enum):
    """A kind of file that ships: its folder and the end of its files' names."""

    ALGORITHM = ("algorithms", ".rccl")
    XML = ("msccl", ".xml")
    CLUSTER = ("clusters", ".cluster")


STDIN = "-"
EVERY = tuple(Kind)
PROGRAMS = (Kind.ALGORITHM,)
CLUSTERS = (Kind.CLUSTER,)
LIST_CLUSTERS = "`hccc cluster list` names the clusters that ship"


def names(kind: Kind) -> list[str]:
    """The names of all files of one kind, sorted."""
    return sorted(file.name.removesuffix(kind.value[1]) for file in _folder(kind))


def read(path: Path, most: int | Callable[[str], int], kinds: Iterable[Kind] = EVERY) -> Source:
    """The text of a file, or of what ships under that name; a path that exists comes first,
    and `-` is stdin.

    most: as for `read_text`. kinds: what may be meant by a name.

    Raises:
        UserError: E401 there is neither, or it cannot be read; E402, E404 as `read_text`.
    """
    if (found := find(path, kinds)) is not None:
        return Source(found.name, found.read_text(encoding="utf-8"))
    return Source("<stdin>" if str(path) == STDIN else str(path), read_text(path, most))


def find(path: Path, kinds: Iterable[Kind] = EVERY) -> Traversable | None:
    """What ships as `path`, with or without the end of its name; None where a file is meant.

    Raises:
        UserError: E401 a name that is no file's, here or among what ships.
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


def _folder(kind: Kind) -> list[Traversable]:
    folder, end = kind.value
    return [file for file in (files("hccc.shipped") / folder).iterdir() if file.name.endswith(end)]


def _help(word: str, kinds: tuple[Kind, ...]) -> str:
    known = {kind: names(kind) for kind in kinds}
    every = [name for found in known.values() for name in found]
    if near := get_close_matches(word[:64], every, n=1):
        return f"did you mean {near[0]}?"
    if Kind.ALGORITHM in known:
        return f"algorithms that ship are {', '.join(known[Kind.ALGORITHM])}"
    return LIST_CLUSTERS
