"""directory: Plan or Catalogue → files → a directory that builds on its own.

Nothing is ever left half written: a new directory is made beside its place and renamed into it; in
an existing one, each file that differs is replaced by renaming, and the others keep their times, so
builds stay incremental. Files that an earlier compilation left and this one does not write are
removed. One process writes at a time. A directory with files of
another origin is refused.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files as resources
from importlib.resources.abc import Traversable
from pathlib import Path

from hccc.base.diagnostics import InternalError, UserError, fail
from hccc.base.files.lock import locked
from hccc.base.files.writing import Write, beside, named_errors, remove_leftovers, replace_all
from hccc.base.render import render
from hccc.emit.kernels.library_view import DispatchView, library
from hccc.emit.kernels.source import texts
from hccc.emit.targets import TARGETS, Target
from hccc.ir.catalogue import MOST_PLANS, Catalogue, plan_name
from hccc.ir.names import PLAN_FILE

README = "README.md"
HEADERS = "hccc"  # the folder of the headers that kernels include
_BEGINS = (b'{\n"hccc_plan"', b'{\n"hccc_catalogue"')  # see ir/plan_json.py, catalogue_json.py
_NAME = re.compile(rb'^"name": "([A-Za-z_][A-Za-z0-9_]*)"', re.MULTILINE)
_HEAD = 1 << 12  # bytes in which a plan says its name, and sources whose they are
_HELP = "give -o a directory that can be written"


def files(
    catalogue: Catalogue, targets: Sequence[Target] = TARGETS, plan_json: str = ""
) -> dict[str, str]:
    """Returns the text of each file in the directory by name (relative, `/`).

    plan_json: the text of `plan.json`, `catalogue_json.dumps(compiled)`.
    """
    view = library(catalogue, targets)
    made = {
        PLAN_FILE: plan_json,
        "CMakeLists.txt": render("cmake.jinja", view),
        README: render("readme.jinja", view),
    } | entries(catalogue, targets, targets)
    emitted = [texts(plan, targets) for plan in catalogue.plans]
    for one, sources in zip(view.entries, zip(*emitted, strict=True), strict=True):
        made |= zip(one.sources, sources, strict=True)
    return made | {f"{HEADERS}/{name}": body for name, body in headers()}


def names(catalogue: Catalogue) -> frozenset[str]:
    """Returns the names of all files that a directory of a library can have, for any targets."""
    name, plans = catalogue.name, catalogue.plans
    kernels = {f"{plan.name}{target.suffix}" for plan in plans for target in TARGETS}
    dispatchers = {f"{name}_{target.name}_dispatch.cpp" for target in TARGETS}
    copied = {f"{HEADERS}/{header.name}" for header in _headers()}
    return frozenset(
        {PLAN_FILE, "CMakeLists.txt", README, f"{name}.h"} | kernels | dispatchers | copied
    )


def entries(
    catalogue: Catalogue, targets: Sequence[Target], dispatched: Sequence[Target]
) -> dict[str, str]:
    """Returns the text, by file name, of the C header, for `targets`, and of the dispatchers for
    `dispatched`."""
    view = library(catalogue, targets)
    made = {f"{view.name}.h": render("header.jinja", view)}
    for one in view.entries:
        if one.target in dispatched:
            name = f"{view.name}_{one.target.name}_dispatch.cpp"
            made[name] = render("dispatch.jinja", DispatchView(view, one))
    return made


def headers() -> Iterator[tuple[str, str]]:
    """Yields name and text of each header that is copied into a directory."""
    for header in _headers():
        yield header.name, header.read_text(encoding="utf-8")


def _headers() -> list[Traversable]:
    found = resources("hccc.runtime") / "include" / "hccc"
    return sorted((f for f in found.iterdir() if f.name.endswith(".h")), key=lambda f: f.name)


def write(directory: Path | str, made: Mapping[str, str]) -> list[Path]:
    """Writes the files, whole or not at all; returns those that are new or changed.

    Another process that writes there at the same time comes before or after.

    Raises:
        UserError: E430 the place is taken by something else, E431 it cannot be written, E435 others
        write there all the time.
    """
    given = Path(directory)
    for name in made:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise InternalError(f"output file {name!r} is outside its directory")
    with named_errors(given, _HELP):
        if given.is_symlink() and not given.exists():
            raise _no_directory(given)
        place = Path(os.path.realpath(given))
        with locked(place.parent):
            remove_leftovers(place.parent, place.name)
            return [given / name for name in _put(place, made)]


def check(directory: Path | str) -> None:
    """Checks before any work that kernels can be written there; `write` looks again.

    Raises:
        UserError: E430, E431 as `write`.
    """
    given = Path(directory)
    with named_errors(given, _HELP):
        place = Path(os.path.realpath(given))
        if os.path.lexists(given) and not place.is_dir():
            raise _no_directory(given)
        there = next(path for path in (place, *place.parents) if path.exists())
        if not there.is_dir():
            raise NotADirectoryError(0, f"{there} is no directory")
        if not os.access(there, os.W_OK):
            raise PermissionError(0, "permission denied")
        if place.is_dir() and next(place.iterdir(), None) is not None:
            _check_ours(place, {})


def _put(place: Path, made: Mapping[str, str]) -> list[str]:
    """Writes the files into a directory that nobody else writes to; returns those new or
    changed."""
    if not os.path.lexists(place):
        return _create(place, made)
    if not place.is_dir():
        raise _no_directory(place)
    if next(place.iterdir(), None) is None:
        return _fill(place, made)
    _check_ours(place, made)
    for folder in {place, *(path.parent for path in map(place.joinpath, made))}:
        remove_leftovers(folder)
    return _update(place, made, _no_longer(place, made))


def _no_directory(place: Path) -> UserError:
    return fail("E430", f"{place}: exists and is not a directory", help="give -o another name")


def _check_ours(place: Path, made: Mapping[str, str]) -> None:
    """Raises E430 unless hccc made the directory and its files can be replaced."""
    plan = place / PLAN_FILE
    if not plan.is_file() or not _head(plan, _HEAD).startswith(_BEGINS):
        help = "give -o a new or empty directory, or one that hccc made"
        raise fail("E430", f"{place}: has files in it, but no {PLAN_FILE} of hccc's", help=help)
    for name in made:
        for path in (place / name, *list((place / name).parents)[: name.count("/")]):
            wanted = path.is_file() if path == place / name else path.is_dir()
            if os.path.lexists(path) and (not wanted or path.is_symlink()):
                raise fail("E430", f"{path}: is in the way", help="remove it, or give -o another")


def _create(place: Path, made: Mapping[str, str]) -> list[str]:
    """Makes a directory beside its place, and renames it into place when it is complete."""
    new = beside(place)
    try:
        new.mkdir()
        _update(new, made)
        os.rename(new, place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return list(made)


def _fill(place: Path, made: Mapping[str, str]) -> list[str]:
    """Writes the files into an empty directory, which stays: a shell or a container may be in it.

    The plan comes first: if the process is killed, it shows that the directory is hccc's.
    """
    try:
        _update(place, {name: body for name, body in made.items() if name == PLAN_FILE})
        _update(place, made)
    except BaseException:
        for name in made:
            (place / name).unlink(missing_ok=True)
        _remove_empty(place, made)
        raise
    return list(made)


def _update(place: Path, made: Mapping[str, str], gone: Sequence[Path] = ()) -> list[str]:
    """Writes changed files (the plan last), deletes `gone`, returns the names written."""
    changed = [name for name, body in made.items() if not _holds(place / name, body)]
    changed.sort(key=lambda name: name == PLAN_FILE)
    try:
        for name in changed:
            (place / name).parent.mkdir(exist_ok=True)
        replace_all({place / name: _writer(made[name]) for name in changed}, gone)
    except BaseException:
        _remove_empty(place, made)
        raise
    return changed


def _writer(body: str) -> Write:
    return lambda file: file.write(body)


def _remove_empty(place: Path, made: Mapping[str, str]) -> None:
    for folder in {name.rpartition("/")[0] for name in made} - {""}:
        with suppress(OSError):  # there is something in it
            (place / folder).rmdir()


def _holds(path: Path, body: str) -> bool:
    return path.is_file() and path.read_bytes() == body.encode("utf-8")


def _no_longer(place: Path, made: Mapping[str, str]) -> list[Path]:
    """Finds the files that the last compilation into `place` wrote and this one does not.

    The plan there names the sources; a source is hccc's if its first lines say so.
    """
    found = _NAME.search(_head(place / PLAN_FILE, _HEAD))
    if not found:
        return []
    name = found[1].decode()
    titles = {f"{name}.h": f"{name}.h"}  # file name → what its first line says that it is
    for target in TARGETS:
        for plan in (name, *(plan_name(name, k) for k in range(MOST_PLANS))):
            titles[f"{plan}{target.suffix}"] = plan
        titles[f"{name}_{target.name}_dispatch.cpp"] = f"{name}_{target.name}"
    left = {place / name: title for name, title in titles.items() if name not in made}
    return [path for path, title in left.items() if _says_ours(path, title)]


def _says_ours(path: Path, title: str) -> bool:
    """Tells whether the first lines of a file say that hccc generated it under this title."""
    if path.is_symlink() or not path.is_file():
        return False
    head = _head(path, _HEAD)
    return head[3:].startswith(f"{title}: ".encode()) and b"Generated by hccc " in head


def _head(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""
