"""directory: Plan → files → a directory that builds on its own.

Nothing is ever left half written: a new directory is made beside its place and renamed into it; in
one that is there, each file that differs is replaced by renaming, the others keep their times, so
builds stay incremental. One process writes at a time. A directory with anybody else's files is
refused.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files as resources
from pathlib import Path
from secrets import token_hex

from hccc.diagnostics import InternalError, UserError, fail
from hccc.emit.kernels.library import DispatchView, library
from hccc.emit.kernels.source import text
from hccc.emit.targets import TARGETS, Target
from hccc.files.lock import locked
from hccc.ir.plan import Plan
from hccc.render import render

PLAN = "plan.json"
README = "README.md"
_PLAN_BEGINS = b'{\n"hccc_plan"'  # see ir/plan_json.py


def files(plan: Plan, targets: Sequence[Target] = TARGETS, plan_json: str = "") -> dict[str, str]:
    """File name (relative, `/`) → text, for everything in the directory of `plan`.

    plan_json: what `plan.json` holds, `plan_json.dumps(plan)`.
    """
    view = library(plan, targets)
    made = {
        PLAN: plan_json,
        "CMakeLists.txt": render("cmake.jinja", view),
        README: render("readme.jinja", view),
        f"{view.name}.h": render("header.jinja", view),
    }
    for entries in view.entries:
        target = entries.target
        made[f"{view.name}{target.suffix}"] = text(plan, target)
        dispatch = render("dispatch.jinja", DispatchView(view, entries))
        made[f"{view.name}_{target.name}_dispatch.cpp"] = dispatch
    return made | {f"hccc/{name}": body for name, body in headers()}


def headers() -> Iterator[tuple[str, str]]:
    """Name and text of each device header, which every directory gets a copy of."""
    found = resources("hccc.runtime") / "include" / "hccc"
    for header in sorted(found.iterdir(), key=lambda f: f.name):
        if header.name.endswith(".h"):
            yield header.name, header.read_text(encoding="utf-8")


def write(directory: Path | str, made: Mapping[str, str]) -> list[Path]:
    """Writes the files, whole or not at all; returns those that are new or changed.

    Whoever writes there at the same time comes before or after.

    Raises:
        UserError: E430 the place is taken by something else, E431 it cannot be written, E435
        others write there all the time.
    """
    given = Path(directory)
    for name in made:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise InternalError(f"output file {name!r} is outside its directory")
    with _named_errors(given):
        if given.is_symlink() and not given.exists():
            raise _no_directory(given)
        place = Path(os.path.realpath(given))
        with locked(place.parent):
            return [given / name for name in _put(place, made)]


def _put(place: Path, made: Mapping[str, str]) -> list[str]:
    """Writes the files into a directory that nobody else writes to; those new or changed."""
    if not os.path.lexists(place):
        return _create(place, made)
    if not place.is_dir():
        raise _no_directory(place)
    if next(place.iterdir(), None) is None:
        return _fill(place, made)
    _check_ours(place, made)
    return _update(place, made)


@contextmanager
def _named_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a null byte in a path
        reason = getattr(error, "strerror", None) or str(error)
        help = "give -o a directory that can be written"
        raise fail("E431", f"{place}: cannot be written: {reason}", help=help) from None


def _no_directory(place: Path) -> UserError:
    return fail("E430", f"{place}: exists and is not a directory", help="give -o another name")


def _check_ours(place: Path, made: Mapping[str, str]) -> None:
    """Raises unless hccc made the directory and its files can be replaced."""
    plan = place / PLAN
    ours = plan.is_file()
    if ours:
        with plan.open("rb") as f:
            ours = f.read(len(_PLAN_BEGINS)) == _PLAN_BEGINS
    if not ours:
        help = "give -o a new or empty directory, or one that hccc made"
        raise fail("E430", f"{place}: has files in it, but no {PLAN} of hccc's", help=help)
    for name in made:
        for path in (place / name, *list((place / name).parents)[: name.count("/")]):
            wanted = path.is_file() if path == place / name else path.is_dir()
            if os.path.lexists(path) and (not wanted or path.is_symlink()):
                raise fail("E430", f"{path}: is in the way", help="remove it, or give -o another")


def _create(place: Path, made: Mapping[str, str]) -> list[str]:
    """A directory of its own, renamed into place when it is complete."""
    beside = place.parent / f".{place.name[:64]}.{token_hex(8)}"
    try:
        beside.mkdir()
        for name, body in made.items():
            _write_text(beside / name, body)
        os.rename(beside, place)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return list(made)


def _fill(place: Path, made: Mapping[str, str]) -> list[str]:
    """An empty directory stays what it is: a shell or a container may be in it.

    The plan comes first: should the process be killed, it tells whose the directory is.
    """
    try:
        _update(place, {name: body for name, body in made.items() if name == PLAN})
        _update(place, made)
    except BaseException:
        for name in made:
            (place / name).unlink(missing_ok=True)
        for folder in {name.rpartition("/")[0] for name in made} - {""}:
            with suppress(OSError):
                (place / folder).rmdir()
        raise
    return list(made)


def _update(place: Path, made: Mapping[str, str]) -> list[str]:
    """All changed files written beside their places first, then renamed, the plan last."""
    changed = [name for name, body in made.items() if not _holds(place / name, body)]
    changed.sort(key=lambda name: name == PLAN)
    waiting = {place / n: (place / n).with_name(f".{Path(n).name}.{token_hex(8)}") for n in changed}
    try:
        for name, (path, new) in zip(changed, waiting.items(), strict=True):
            path.parent.mkdir(exist_ok=True)
            _write_text(new, made[name])
        for path, new in waiting.items():
            os.replace(new, path)
    except BaseException:
        for new in waiting.values():
            new.unlink(missing_ok=True)
        raise
    return changed


def _write_text(path: Path, body: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(body.encode("utf-8"))


def _holds(path: Path, body: str) -> bool:
    return path.is_file() and path.read_bytes() == body.encode("utf-8")
