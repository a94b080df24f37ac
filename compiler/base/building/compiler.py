"""compiler: the host's C++ compiler: found, told from others, and run.

It gets its arguments as a list; names never reach a shell.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from hccc.base.diagnostics import Note, UserError, fail

COMPILERS = ("g++", "clang++", "c++")
ERROR_LINES = 12
TIMEOUT_S = 600


def find_compiler() -> str:
    """The host C++ compiler: $CXX, else g++, clang++ or c++. Raises UserError E412."""
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else COMPILERS:
        path = shutil.which(name)
        if path:
            return path
    looked = f"$CXX is `{wanted}`" if wanted else f"looked for {', '.join(COMPILERS)} on PATH"
    raise fail(
        "E412",
        f"no C++ compiler found ({looked})",
        help="install one (apt-get install g++) or set CXX to its path",
    )


@cache
def compiler_version(path: str) -> str:
    """The first line that the compiler says about itself; part of the cache key."""
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    return done.stdout.partition("\n")[0]


@cache
def processor(path: str) -> str:
    """A hash of what `-march=native` means to the compiler here; part of the cache key.

    The directory may be on a disk that several machines share. Every instruction set that the
    compiler may use defines a macro; what else it knows of the processor changes only the speed.
    """
    command = [path, "-march=native", "-dM", "-E", "-x", "c++", os.devnull]
    done = subprocess.run(command, capture_output=True, timeout=60)
    return hashlib.sha256(b"\n".join(sorted(done.stdout.splitlines()))).hexdigest()


def compiler_words() -> list[str]:
    """What tells compilers and processors apart. Raises UserError E412."""
    compiler = find_compiler()
    return [compiler, compiler_version(compiler), processor(compiler)]


def run_compiler(source: Path, command: list[str]) -> None:
    """Runs one compile. Raises UserError E414."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failure_of(source, str(error)) from error
    if done.returncode:
        raise _failure_of(source, done.stderr)


def _failure_of(source: Path, stderr: str) -> UserError:
    """The error for a failed compile, with the compiler's first lines."""
    lines = [line for line in stderr.splitlines() if line.strip()][:ERROR_LINES]
    return fail(
        "E414",
        f"the C++ compiler failed on {source}",
        notes=[Note("\n".join(lines) or "it printed nothing")],
        help="generate the directory again; if it still fails this is a bug in hccc",
    )
