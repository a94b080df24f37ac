"""libraries: the file names of compiled libraries, in `build/` beside their source.

A name holds two hashes: of everything the library was built from, and of its own content. No
other files have such names, so the libraries of a deleted source can be found, and a truncated
library is not taken for a whole one.
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
    """Returns a library's name up to the hash of its content. digest: of everything it is built
    from."""
    return "-".join(word for word in (source.stem, variant, digest[:HASH]) if word)


def name_of(stem: str, suffix: str, content: bytes) -> str:
    """Returns the name of the library that holds `content`. stem: from `stem_of`."""
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:HASH]}{suffix}"


def built_of(source: Path) -> Iterator[Path]:
    """Yields every library built from `source` that is still beside it, in order of names."""
    ends = "|".join(map(re.escape, SUFFIXES))
    name = re.compile(
        rf"{re.escape(source.stem)}(-\w+)*(-[0-9a-f]{{{HASH}}}){{2}}({ends})", re.ASCII
    )
    folder = source.parent / FOLDER
    if folder.is_dir() and not folder.is_symlink():
        for path in sorted(folder.iterdir()):
            if name.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                yield path
