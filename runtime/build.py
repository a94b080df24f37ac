"""Compiling a generated directory's CPU source to a shared library, once per dtype and op.

Libraries are kept beside the source (or in a temporary directory when that is read-only), named
by a hash of all sources, the compiler, its flags and the processor it compiles for, so a changed
file is never mistaken for what it was, nor a library built on another machine for one that runs
here. Their names also have a hash of what they hold: a library that was cut short is built again.
The compiler gets its arguments as a list; names never reach a shell.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from hccc.base.diagnostics import Note, UserError, fail
from hccc.base.dtypes import NAMES, OPS
from hccc.base.files.libraries import FOLDER, name_of, stem_of
from hccc.base.files.writing import beside, remove_leftovers

COMPILERS = ("g++", "clang++", "c++")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", "-pthread")
ERROR_LINES = 12
TIMEOUT_S = 600
SUFFIXES = frozenset({".h", ".inc", ".cpp", ".cu", ".hip"})


@dataclass(frozen=True, slots=True)
class Variant:
    """What one translation unit is compiled for."""

    dtype: str
    op: str = "sum"
    trace: bool = False  # whether launches can be recorded: include/hccc/trace.h

    def __post_init__(self) -> None:
        if self.dtype not in NAMES:
            raise fail("E417", f"unknown dtype `{self.dtype}`", help=f"one of: {', '.join(NAMES)}")
        if self.op not in OPS:
            raise fail("E411", f"unknown reduction `{self.op}`", help=f"one of: {', '.join(OPS)}")

    def defines(self) -> list[str]:
        """The compiler options that choose it."""
        trace = ["-DHCCC_TRACE"] if self.trace else []
        return [f"-DHCCC_DTYPE={self.dtype}", f"-DHCCC_OP={self.op}", *trace]


@dataclass(frozen=True, slots=True)
class Piece:
    """A source of hccc's own. It includes what lies beside it and in `include`, and by relative
    paths what lies in `reads`."""

    source: Path
    include: tuple[Path, ...] = ()
    reads: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ("-O2", "-fvisibility=hidden")


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


def digest_of(directories: Sequence[Path], words: Sequence[str]) -> str:
    """A hash of `words` and of all sources under the directories."""
    state = hashlib.sha256("\0".join(words).encode())
    for directory in directories:
        for path in sorted(p for p in directory.rglob("*") if p.suffix in SUFFIXES):
            state.update(b"\0" + str(path.relative_to(directory)).encode() + b"\0")
            state.update(path.read_bytes())
    return state.hexdigest()


def build_directory(directory: Path) -> Path:
    """Where libraries of `directory` are kept: `build/` in it, or a temporary directory."""
    kept = directory / FOLDER
    try:
        kept.mkdir(exist_ok=True)
        if os.access(kept, os.W_OK):
            return kept
    except OSError:
        pass
    return _temporary(directory)


def _temporary(directory: Path) -> Path:
    """A directory of this user's own for what belongs to `directory`. Raises UserError E413."""
    name = f"hccc-{os.getuid()}-{hashlib.sha256(str(directory).encode()).hexdigest()[:16]}"
    fallback = Path(tempfile.gettempdir()) / name
    fallback.mkdir(mode=0o700, exist_ok=True)
    if fallback.stat().st_uid != os.getuid():
        raise fail("E413", f"{fallback} belongs to another user", help="set TMPDIR")
    return fallback


def failure_of(source: Path, stderr: str) -> UserError:
    """The error for a failed compile, with the compiler's first lines."""
    lines = [line for line in stderr.splitlines() if line.strip()][:ERROR_LINES]
    return fail(
        "E414",
        f"the C++ compiler failed on {source}",
        notes=[Note("\n".join(lines) or "it printed nothing")],
        help="generate the directory again; if it still fails this is a bug in hccc",
    )


def run_compiler(source: Path, command: list[str]) -> None:
    """Runs one compile. Raises UserError E414."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise failure_of(source, str(error)) from error
    if done.returncode:
        raise failure_of(source, done.stderr)


def build_library(
    source: Path,
    variant: Variant,
    *,
    include: Sequence[Path] = (),
    flags: Sequence[str] = (),
) -> Path:
    """Compiles `source` for `variant`, unless it was already; returns the shared library.

    `include`: directories with the hccc headers where the source's own has none; `flags` come
    after the usual ones. Raises UserError E412 to E414.
    """
    return _compiled(source, variant, ".so", [*FLAGS, *flags], include)


def build_several(
    dispatch: Path,
    sources: Sequence[Path],
    variants: Sequence[Variant],
    *,
    include: Sequence[Path] = (),
) -> Path:
    """The shared library of kernels, for each of the variants, and of `dispatch`, which finds them.

    Each is compiled by itself, a few at a time. Raises UserError E412 to E414.
    """
    flags = [flag for flag in FLAGS if flag != "-shared"]
    pieces = list(product(sources, variants))
    with ThreadPoolExecutor(max(1, min(len(pieces), os.cpu_count() or 1))) as pool:
        made = pool.map(lambda p: _compiled(p[0], p[1], ".o", [*flags, "-c"], include), pieces)
        objects = [str(path) for path in made]
    entries = " ".join(f"ENTRY({v.dtype}, {v.op})" for v in variants)
    built = f"-DHCCC_BUILT(ENTRY)={entries}"
    return _compiled(dispatch, variants[0], ".so", [*FLAGS, built], include, objects)


def _compiled(
    source: Path,
    variant: Variant,
    suffix: str,
    flags: Sequence[str],
    include: Sequence[Path],
    linked: Sequence[str] = (),
) -> Path:
    """What the compiler makes of `source` with `flags`; `linked`: objects that go into it."""
    source = source.resolve()
    compiler = find_compiler()
    options = [*flags, *variant.defines()]
    searched = [source.parent, *(path.resolve() for path in include)]
    words = [source.name, *_compiler_words(), *options, *linked]
    name = stem_of(source, digest_of(searched, words), f"{variant.dtype}-{variant.op}")
    search = [f"-I{path}" for path in searched]
    return kept(source, name, suffix, [compiler, *options, *search, str(source), *linked])


def build_plain(pieces: Sequence[Piece], link: Sequence[str] = ()) -> Path:
    """The shared library of sources of hccc's own, which have no variants. Each is compiled by
    itself, a few at a time, unless it was already for whatever library. Kept in temporary
    directories: a package is no place for it. link: options of the linker.

    Raises UserError E412 to E414.
    """
    with ThreadPoolExecutor(max(1, min(len(pieces), os.cpu_count() or 1))) as pool:
        objects = [str(path) for path in pool.map(_object, pieces)]
    source = pieces[0].source.resolve()
    options = ["-shared", "-pthread", *link]
    words = [*_compiler_words(), *options, *objects]
    name = stem_of(source, digest_of((), words))
    return _kept_once(source, name, ".so", [find_compiler(), *objects, *options])


def _object(piece: Piece) -> Path:
    """What is linked of a piece."""
    source = piece.source.resolve()
    flags = [flag for flag in FLAGS if flag != "-shared"]
    options = [*flags, *piece.flags, "-c"]
    searched = [source.parent, *piece.include]
    name = stem_of(
        source,
        digest_of([*searched, *piece.reads], [source.name, *_compiler_words(), *options]),
    )
    search = [f"-I{path}" for path in searched]
    return _kept_once(source, name, ".o", [find_compiler(), *options, *search, str(source)])


def _compiler_words() -> list[str]:
    """What tells compilers and processors apart."""
    compiler = find_compiler()
    return [compiler, compiler_version(compiler), processor(compiler)]


def _kept_once(source: Path, name: str, suffix: str, command: Sequence[str]) -> Path:
    """As `kept`, in a temporary directory, by one process while others wait."""
    place = _temporary(source.parent)
    if found := _found(place, name, suffix):
        return found
    with _one_at_a_time(place):  # ranks that start at once
        return kept(source, name, suffix, command, place)


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Waits for other processes that are here, at most as long as a compiler may take."""
    opened = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + TIMEOUT_S
        while not _locks(opened) and time.monotonic() < until:
            time.sleep(0.05)
        yield
    finally:
        os.close(opened)


def _locks(opened: int) -> bool:
    """Whether it could be locked, or its disk has no locks: then nobody waits."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def kept(
    source: Path, name: str, suffix: str, command: Sequence[str], place: Path | None = None
) -> Path:
    """What `command` (without `-o`) makes of `source`, unless it is there already. place: the
    directory, by default `build_directory` of the source's.

    The file is `name`-HASH`suffix`, where HASH is that of its content: whatever else has such a
    name is damaged, and goes. Raises UserError E414.
    """
    place = place or build_directory(source.parent)
    if found := _found(place, name, suffix):
        return found
    remove_leftovers(place, age_s=2 * TIMEOUT_S)
    made = beside(place / name)
    try:
        run_compiler(source, [*command, "-o", str(made)])
        target = place / name_of(name, suffix, made.read_bytes())
        made.replace(target)  # at once: another process may be building the same
    finally:
        made.unlink(missing_ok=True)
    return target


def _found(place: Path, name: str, suffix: str) -> Path | None:
    """What `kept` keeps, if it is there. What is damaged goes."""
    for path in place.glob(f"{name}-*{suffix}"):
        with suppress(OSError):
            if path.name == name_of(name, suffix, path.read_bytes()):
                return path
            path.unlink()
    return None


def build_all(
    source: Path, variants: Sequence[Variant], *, include: Sequence[Path] = ()
) -> dict[Variant, Path]:
    """Builds several variants, a few at a time."""
    workers = max(1, min(len(variants), os.cpu_count() or 1))
    with ThreadPoolExecutor(workers) as pool:
        made = pool.map(lambda v: build_library(source, v, include=include), variants)
        return dict(zip(variants, made, strict=True))
