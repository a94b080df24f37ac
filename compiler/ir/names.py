"""names: legal plan names, the plan's file name, and how a plan names its source.

A Plan's name becomes part of C names and file names, its `source` stands in comments; both may come
from an untrusted file or file name.
"""

from __future__ import annotations

import re
from pathlib import Path

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
MAX_SOURCE = 1024  # characters; `plan_check` and the schema hold plans to it
OWN = "hccc"
PLAN_FILE = "plan.json"  # of a directory of kernels
CMAKES = frozenset(
    {
        "ALL_BUILD",
        "INSTALL",
        "ZERO_CHECK",
        "all",
        "clean",
        "edit_cache",
        "help",
        "install",
        "preinstall",
        "rebuild_cache",
    }
)


def objection(name: str) -> str | None:
    """Explains why a legal C name may not name a plan; None if it may.

    The plan's C names would clash with those of hccc's headers: `hccc` and `hccc_...`, in any case
    of letters, because of the headers' macros and of file systems without case. Or its CMake target
    would clash with one that every project has.
    """
    if name.lower() == OWN or name.lower().startswith(f"{OWN}_"):
        return "`hccc` and what begins with `hccc_` are hccc's own names"
    return f"`{name}` is a target of every CMake project" if name in CMAKES else None


def source_name(name: str) -> str:
    """Turns the name or path of a file into a Plan's `source`: one printable line, at most
    MAX_SOURCE long.

    A longer name keeps its end, which has the file's own name.
    """
    clean = "".join(c if c.isprintable() else "_" for c in name)
    return clean if len(clean) <= MAX_SOURCE else "..." + clean[3 - MAX_SOURCE :]


def file_read(path: Path) -> Path:
    """Returns the file to read for an input: for a directory of kernels, its plan."""
    return path / PLAN_FILE if path.is_dir() else path
