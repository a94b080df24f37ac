"""build: compiles sources, and keeps the results under names that tell their origin.

A name has a hash of all sources, the compiler's flags and the processor it compiles for, so a
changed source never gets an old library, nor does a library from another machine run here. Then
comes one of the compiler: another compiler builds again, and where there is none, what any has
built is used. The last is a hash of the file's content: a truncated library is built again.
What a platform wheel brings has no part of the processor in its name (`prebuilt`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hccc.base.building.compiler import (
    TAG,
    TIMEOUT_S,
    compiler_tag,
    find_compiler,
    own_options,
    processor,
    run_compiler,
)
from hccc.base.building.places import user_directory
from hccc.base.building.prebuilt import MARCH, prebuilt, prebuilt_place
from hccc.base.files.libraries import FOLDER, name_of, stem_of
from hccc.base.files.lock import try_lock
from hccc.base.files.writing import beside, remove_leftovers
from hccc.base.interruptible import at_once
from hccc.base.progress import once

STANDARD = "-std=c++17"
FLAGS = (STANDARD, "-O3", "-march=native", "-shared", "-fPIC", "-pthread")
STRIPPED = "-s"  # an option of what is built for others
SUFFIXES = frozenset({".h", ".inc", ".cpp", ".cu", ".hip"})
BUILT = "built"  # of the user's cache; names tell what is built, so environments share it
_NATIVE = "native"
_KEPT_S = 90 * 86_400.0  # from when it was built, in the user's cache


@dataclass(frozen=True, slots=True)
class Piece:
    """A source of hccc's own. It includes files beside it and in `include`, and by relative paths
    files in `reads`. digests: macros that are texts, the digest of a directory of `include` each.
    """

    source: Path
    include: tuple[Path, ...] = ()
    reads: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ("-O2", "-fvisibility=hidden")
    digests: tuple[tuple[str, Path], ...] = ()


def flags_for(march: str) -> list[str]:
    """Returns FLAGS for other processors than this machine's."""
    return [f"-march={march}" if flag.startswith("-march=") else flag for flag in FLAGS]


def digest_of(directories: Sequence[Path], words: Sequence[str]) -> str:
    """Hashes `words` and all sources under the directories."""
    state = hashlib.sha256("\0".join(words).encode())
    for directory in directories:
        state.update(_sources(os.path.realpath(directory)))
    return state.hexdigest()


def _sources(top: str) -> bytes:
    """Returns the names and texts of all sources under a directory. Each start of a program asks,
    and paths that are objects would take most of its time."""
    names: list[str] = []
    for place, _, files in os.walk(top):
        names += (f"{place}/{name}" for name in files if os.path.splitext(name)[1] in SUFFIXES)
    texts: list[bytes] = []
    for name in sorted(names, key=lambda name: name.split("/")):
        with open(name, "rb", buffering=0) as file:
            texts += (b"\0", os.fsencode(name[len(top) + 1 :]), b"\0", file.read())
    return b"".join(texts)


def digest_of_folder(folder: Path) -> str:
    """Returns 16 digits that tell the content of a folder's files, as CMake's functions can."""
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=Path.as_posix)
    each = (hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
    return hashlib.sha256("".join(each).encode()).hexdigest()[:16]


def build_pieces(pieces: Sequence[Piece], link: Sequence[str] = ()) -> Path:
    """Builds a shared library from sources of hccc's own, which have no variants.

    Each source is compiled by itself, a few at a time, unless its object exists already, for
    whatever library, of whatever installation. The results are in the user's cache, since a package
    cannot be written to. A library that a wheel has brought goes before them.
    link: options of the linker.

    Raises:
        UserError: E412 to E414.
    """
    if prebuilt_place() and (known := prebuilt(_name(pieces, link, MARCH))):
        return known
    return _linked(pieces, link, _NATIVE)


def prebuild_pieces(place: Path, pieces: Sequence[Piece], link: Sequence[str] = ()) -> Path:
    """Builds as `build_pieces` for every processor of this kind, as a library of a wheel in
    `place`, and returns its file.

    Raises:
        UserError: E412 to E414.
    """
    made = _linked(pieces, [*link, STRIPPED], MARCH)
    target = place / name_of(_name(pieces, link, MARCH), ".so", made.read_bytes())
    return Path(shutil.copyfile(made, target))


def _linked(pieces: Sequence[Piece], link: Sequence[str], march: str) -> Path:
    """Builds the library of `build_pieces` in the user's cache."""
    source = pieces[0].source.resolve()

    def arguments() -> list[str]:
        objects = at_once(lambda piece: str(_object(piece, march)), pieces, counted=True)
        return [*objects, *_link_options(link)]

    return compile_once(source, _name(pieces, link, march), ".so", arguments, user_directory(BUILT))


def _name(pieces: Sequence[Piece], link: Sequence[str], march: str) -> str:
    """Returns the name of a library, without the hashes of compiler and content."""
    known: dict[str, str] = {}
    stems = [_stem(piece, march, known) for piece in pieces]
    words = [_processors(march), *_link_options(link), *stems]
    return stem_of(pieces[0].source.resolve(), digest_of((), words))


def _link_options(link: Sequence[str]) -> list[str]:
    return ["-shared", "-pthread", *link]


def _processors(march: str) -> str:
    """Returns what tells the processors in names that something is built for."""
    return processor() if march == _NATIVE else march


def build_alone(source: Path, flags: Sequence[str], headers: Sequence[Path] = ()) -> Path:
    """Builds a shared library from one source of hccc's own that includes standard headers only,
    and `headers` beside it.

    It runs on every processor of this kind and does not depend on the compiler, so an existing
    library is found without calling one.

    Raises:
        UserError: E412 to E414.
    """
    source = source.resolve()
    options = [STANDARD, *flags, "-shared", "-fPIC"]
    content = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (source, *headers)]
    words = [*content, platform.system(), platform.machine(), *options]
    name = stem_of(source, digest_of((), words))
    found = _existing(user_directory(BUILT), name, ".so")
    return found or _build_in_cache(source, name, ".so", [find_compiler(), *options, str(source)])


def _options(piece: Piece, march: str) -> list[str]:
    shared = [flag for flag in flags_for(march) if flag != "-shared"]
    return [*shared, *piece.flags, *own_options(), "-c"]


def _stem(piece: Piece, march: str, known: dict[str, str]) -> str:
    """Returns the name of a piece's object file, without the hashes of compiler and content. known:
    digests of directories, most of which the pieces of a library share; gets those of this one."""
    source = piece.source.resolve()
    words = [source.name, _processors(march), *_options(piece, march)]
    for directory in map(os.path.realpath, (source.parent, *piece.include, *piece.reads)):
        if directory not in known:
            known[directory] = hashlib.sha256(_sources(directory)).hexdigest()
        words.append(known[directory])
    return stem_of(source, digest_of((), words))


def _object(piece: Piece, march: str) -> Path:
    """Returns the object file of a piece."""
    source = piece.source.resolve()

    def arguments() -> list[str]:
        search = [f"-I{path}" for path in (source.parent, *piece.include)]
        # The name tells these files, so only a compilation needs their digest.
        macros = [f'-D{name}="{digest_of_folder(path)}"' for name, path in piece.digests]
        return [*_options(piece, march), *macros, *search, str(source)]

    return compile_once(source, _stem(piece, march, {}), ".o", arguments, user_directory(BUILT))


def _build_in_cache(source: Path, name: str, suffix: str, command: Sequence[str]) -> Path:
    """Builds as `build_once`, in the user's cache."""
    place = user_directory(BUILT)
    if found := _existing(place, name, suffix):
        return found
    _remove_old(place)
    return build_once(source, name, suffix, command, place)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keeps the file `path` locked against other threads and processes.

    Waits for them at most as long as a compiler may take. The lock of a process that is killed ends
    with it.
    """
    until = time.monotonic() + TIMEOUT_S
    while (lock := _try_lock(path)) is None and time.monotonic() < until:
        time.sleep(0.05)
    try:
        yield
    finally:
        if lock is not None:
            with suppress(OSError):
                path.unlink()
            os.close(lock)


def _try_lock(path: Path) -> int | None:
    """Returns a descriptor that holds the lock, or None while others hold it.

    Where the file system has no locks nobody waits: the descriptor is of another file then.
    """
    try:
        return try_lock(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    except FileNotFoundError:
        if path.parent.is_dir():  # the last holder has removed the file
            return None
    except OSError:
        pass
    return os.open(os.devnull, os.O_RDONLY)


def _remove_old(place: Path) -> None:
    """Removes files built long ago, whose sources have usually changed since."""
    for path in place.iterdir():
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _KEPT_S:
                path.unlink()


def build_directory(directory: Path) -> Path:
    """Returns the directory for libraries of `directory`, which hccc itself has written: `build/`
    in it, or one in the user's cache.

    Raises:
        UserError: E413 neither can be written.
    """
    beside_it = directory / FOLDER
    try:
        beside_it.mkdir(exist_ok=True)
        if os.access(beside_it, os.W_OK):
            return beside_it
    except OSError:
        pass
    return user_directory(BUILT)


def compile_once(
    source: Path,
    stem: str,
    suffix: str,
    arguments: Callable[[], Sequence[str]],
    place: Path | None = None,
) -> Path:
    """Returns the file that the host's C++ compiler makes with `arguments` (without `-o`), which
    are asked for where it is missing; as `build_once`.

    Where there is no compiler, any compiler's file is taken, the latest. Raises UserError E412,
    E414.
    """
    tag, in_cache = compiler_tag(), place is not None
    place = place or build_directory(source.parent)
    if not tag:
        known = _of_any_compiler(place, stem, suffix)
        return known or build_once(source, stem, suffix, [find_compiler()], place)
    name = f"{stem}-{tag}"
    if found := _existing(place, name, suffix):
        return found
    if in_cache:
        _remove_old(place)
    return build_once(source, name, suffix, [find_compiler(), *arguments()], place)


def _of_any_compiler(place: Path, stem: str, suffix: str) -> Path | None:
    """Finds the latest file of `compile_once`."""
    found = [
        path
        for path in place.glob(f"{stem}-{'?' * TAG}-*{suffix}")
        if path.name == name_of(path.name[: len(stem) + 1 + TAG], suffix, path.read_bytes())
    ]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def build_once(
    source: Path, name: str, suffix: str, command: Sequence[str], place: Path | None = None
) -> Path:
    """Returns the file that `command` (without `-o`) makes of `source`; runs it if the file is
    missing, in one process while others wait.

    place: the directory, by default `build_directory` of the source's. The file is
    `name`-HASH`suffix`, where HASH is that of its content: other files with such a name are
    damaged, and removed. Raises UserError E414.
    """
    place = place or build_directory(source.parent)
    if found := _existing(place, name, suffix):
        return found
    with _alone(place / f".{name}{suffix}.lock"):  # ranks may start at the same time
        return _existing(place, name, suffix) or _build(source, name, suffix, command, place)


def _build(source: Path, name: str, suffix: str, command: Sequence[str], place: Path) -> Path:
    """Runs the command of `build_once` and names the file. Raises UserError E414."""
    remove_leftovers(place, age_s=2 * TIMEOUT_S)
    made = beside(place / name)
    try:
        with once(f"Building {source.name}"):
            run_compiler(source, [*command, "-o", str(made)])
        target = place / name_of(name, suffix, made.read_bytes())
        made.replace(target)  # atomic: another process may have given up waiting
    finally:
        made.unlink(missing_ok=True)
    return target


def _existing(place: Path, name: str, suffix: str) -> Path | None:
    """Finds the file of `build_once`, if it exists. Damaged files are removed."""
    for path in place.glob(f"{name}-*{suffix}"):
        with suppress(OSError):
            if path.name == name_of(name, suffix, path.read_bytes()):
                return path
            path.unlink()
    return None
