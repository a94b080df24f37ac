"""compiler: finds, identifies and runs the host's C++ compiler.

It gets its arguments as a list; names never reach a shell.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from hccc.base.diagnostics import Note, UserError, fail
from hccc.base.limits import COMPILE_BYTES, COMPILE_S

COMPILERS = ("g++", "clang++", "c++")
ERROR_LINES = 12
TIMEOUT_S = COMPILE_S
TAG = 8  # digits of a compiler in the names of files
# The words of the command are arguments of the shell, which does not look into them.
_LIMITED = 'ulimit -v "$0" 2>/dev/null; exec "$@"'


def find_compiler() -> str:
    """Returns the path of the host's C++ compiler: $CXX, else g++, clang++ or c++. Raises UserError
    E412."""
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
    """Returns the first line of the compiler's --version; part of the cache key."""
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    return done.stdout.partition("\n")[0]


@cache
def processor() -> str:
    """Hashes what this machine's processor can do, the meaning of `-march=native`; part of the
    cache key, as several machines may share the directory's disk. No compiler is asked."""
    words = [platform.system(), platform.machine()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        words += sorted({line for line in lines if line.startswith(("flags", "Features"))})
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def own_options() -> list[str]:
    """Returns the options of $HCCC_CXXFLAGS, which come after hccc's. Raises UserError E412."""
    text = os.environ.get("HCCC_CXXFLAGS", "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise fail("E412", f"HCCC_CXXFLAGS is no list of options: {error}") from None


def compiler_tag() -> str:
    """Returns eight digits that differ between compilers; `` where there is none."""
    try:
        compiler = find_compiler()
    except UserError:
        return ""
    words = f"{compiler}\0{compiler_version(compiler)}"
    return hashlib.sha256(words.encode()).hexdigest()[:TAG]


def limited(command: Sequence[str], memory: int = COMPILE_BYTES) -> list[str]:
    """Returns the command that runs `command` with at most `memory` bytes of address space, in each
    of its processes. Where the system has no such limit, there is none."""
    return ["/bin/sh", "-c", _LIMITED, str(memory >> 10), *command]


def environment() -> dict[str, str]:
    """Returns the variables of compilers: this process's, and that hipcc is for AMD, also where it
    finds nvcc."""
    return {**os.environ, "HIP_PLATFORM": "amd"}


def run_compiler(source: Path, command: Sequence[str]) -> None:
    """Runs one compile, within limits of time and memory (`base/limits`). Raises UserError E414."""
    words = limited(command)
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failure_of(source, str(error)) from error
    if done.returncode:
        raise _failure_of(source, done.stderr)


def _failure_of(source: Path, stderr: str) -> UserError:
    """Makes the error for a failed compilation, with the compiler's first lines."""
    lines = [line for line in stderr.splitlines() if line.strip()][:ERROR_LINES]
    return fail(
        "E414",
        f"the C++ compiler failed on {source}",
        notes=[Note("\n".join(lines) or "it printed nothing")],
        help="generate the directory again; if it still fails this is a bug in hccc",
    )
