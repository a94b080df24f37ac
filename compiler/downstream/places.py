"""places: where an installed hccc has what other projects' builds look for."""

from __future__ import annotations

import shlex
from pathlib import Path

import hccc

PREFIX = Path(hccc.__file__).parent
INCLUDE = PREFIX / "runtime" / "include"
CMAKE = PREFIX / "downstream" / "cmake"
PKGCONFIG = PREFIX / "downstream" / "pkgconfig"
THREADS = "-pthread"  # a generated library for the CPU starts threads; nothing else is needed


def includes() -> str:
    """The compiler's option with which it finds `hccc/hccc.h`, as a shell takes it."""
    return shlex.quote(f"-I{INCLUDE}")


def cflags() -> str:
    """The compiler's options for what calls a generated library, as a shell takes them."""
    return f"{includes()} {THREADS}"


def libs() -> str:
    """What else is linked with a generated static library, as a shell takes it."""
    return THREADS
