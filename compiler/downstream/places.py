"""places: the folders of an installed hccc that builds of other projects, and editors, use."""

from __future__ import annotations

import shlex
from pathlib import Path

import hccc

PREFIX = Path(hccc.__file__).parent
INCLUDE = PREFIX / "runtime" / "include"
CMAKE = PREFIX / "downstream" / "cmake"
PKGCONFIG = PREFIX / "downstream" / "pkgconfig"
EDITORS = PREFIX / "editors" / "vscode"
THREADS = "-pthread"  # a generated library for the CPU starts threads; nothing else is needed


def includes() -> str:
    """Returns the compiler option that finds `hccc/hccc.h`, quoted for a shell."""
    return shlex.quote(f"-I{INCLUDE}")


def cflags() -> str:
    """Returns the compiler options for callers of a generated library, quoted for a shell."""
    return f"{includes()} {THREADS}"


def libs() -> str:
    """Returns the linker options that a generated static library needs, quoted for a shell."""
    return THREADS
