"""libraries: the file names of compiled libraries, in `build/` beside their source.

A name holds two hashes: of everything the library was built from, and of its own content, so that a
truncated library is not taken for a whole one. Anybody can compute such a name, so libraries lie
only where hccc itself wrote the source.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

FOLDER = "build"
HASH = 20  # hexadecimal digits of each


def stem_of(source: Path, digest: str, variant: str = "") -> str:
    """Returns a library's name up to the hash of its content. digest: of everything it is built
    from."""
    return "-".join(word for word in (source.stem, variant, digest[:HASH]) if word)


def name_of(stem: str, suffix: str, content: bytes) -> str:
    """Returns the name of the library that holds `content`. stem: from `stem_of`."""
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:HASH]}{suffix}"
