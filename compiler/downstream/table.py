"""table: the libraries that `[tool.hccc]` of a project's pyproject.toml asks for.

    [tool.hccc.collectives.allreduce]
    algorithm = "ring.rccl"
    package = "demo"

Paths are relative to that file. A mistake raises a `TableError` with its place and a remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from hccc.ir.names import IDENTIFIER, objection


class TableError(Exception):
    """Something in `[tool.hccc]` is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveLibrary:
    """One library: the arguments of `hccc_add_collective`, and the package to put it into.

    algorithm: one or more algorithms. A field that is empty has CMake's default.
    """

    name: str
    algorithm: tuple[str, ...]
    package: str
    cluster: str = ""
    targets: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    native: bool = False
    one_device: bool = False


def collectives(project: Mapping[str, Any]) -> tuple[CollectiveLibrary, ...]:
    """Reads the wanted libraries from a parsed pyproject.toml.

    Raises:
        TableError: an entry is wrong.
    """
    tool = _table(project.get("tool", {}), "tool")
    ours = _table(tool.get("hccc", {}), "tool.hccc")
    _no_other(ours, {"collectives"}, "tool.hccc")
    wanted = _table(ours.get("collectives", {}), "tool.hccc.collectives")
    return tuple(_collective(name, entry) for name, entry in wanted.items())


def _collective(name: str, entry: object) -> CollectiveLibrary:
    where = f"tool.hccc.collectives.{name}"
    why = "C functions cannot have it" if not IDENTIFIER.fullmatch(name) else objection(name)
    if why:
        raise TableError(f"[{where}]: {name!r} is no name for a library: {why}")
    given = _table(entry, where)
    kinds = {
        field.name: str(field.type) for field in fields(CollectiveLibrary) if field.name != "name"
    }
    _no_other(given, set(kinds), where)
    for needed in ("algorithm", "package"):
        if not given.get(needed):
            raise TableError(f"[{where}]: {needed} is missing")
    values: dict[str, Any] = {
        key: _value(kinds[key], value, f"{key} of [{where}]") for key, value in given.items()
    }
    return CollectiveLibrary(name=name, **values)


def _value(kind: str, value: object, what: str) -> str | bool | tuple[str, ...]:
    if kind == "bool":
        if isinstance(value, bool):
            return value
        raise TableError(f"{what} is true or false, not {value!r}")
    if kind == "str":
        return _text(value, what)
    if isinstance(value, list):
        return tuple(_text(one, what) for one in value)
    return (_text(value, what),)


def _text(value: object, what: str) -> str:
    if isinstance(value, str) and value and value.isprintable():
        return value
    raise TableError(f"{what}: {value!r} is not a text of one line")


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TableError(f"[{where}] is not a table")
    return value


def _no_other(given: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in sorted(set(given) - known):
        raise TableError(f"[{where}]: there is no {key!r}; there are {', '.join(sorted(known))}")
