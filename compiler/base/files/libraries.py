"""libraries: the names of what is built of a source, in `build/` beside it.

Two hashes are in each: of all that it was built from, and of what it holds. Nobody else's files
have such names, so those of a source that is gone can be found, and a library that was cut short
is not taken for a whole one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = "build"
SUFFIXES = (".so", ".bin", ".o")
HASH = 20  # hexadecimal digits of each


def stem_of(source: Path, digest: str, variant: str = "") -> str:
    """The name of what is built of `source`, without the hash of what it holds and the suffix."""
    return "-".join(word for word in (source.stem, variant, digest[:HASH]) if word)


def name_of(stem: str, suffix: str, content: bytes) -> str:
    """The name of the library that holds `content`; `stem` as `stem_of` has it."""
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:HASH]}{suffix}"


def built_of(source: Path) -> Iterator[Path]:
    """Every library that was ever built of `source` and is still beside it, in order of names."""
    ends = "|".join(map(re.escape, SUFFIXES))
    name = re.compile(
        rf"{re.escape(source.stem)}(-\w+)*(-[0-9a-f]{{{HASH}}}){{2}}({ends})", re.ASCII
    )
    folder = source.parent / FOLDER
    if folder.is_dir() and not folder.is_symlink():
        for path in sorted(folder.iterdir()):
            if name.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                yield path
