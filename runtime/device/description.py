"""description: `calls.toml`, the one description of the device layer, as values.

Names are as in C, without the prefix `hcccrt`: call `Malloc`, enum `MemcpyKind`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

PREFIX = "hcccrt"
GPUS = ("cuda", "hip")


@dataclass(frozen=True, slots=True)
class EnumValue:
    """One value of an enum; natives: (name, value) on each GPU platform that has it."""

    name: str
    value: int
    natives: Mapping[str, tuple[str, int]]
    doc: str


@dataclass(frozen=True, slots=True)
class Enum:
    """A type of named values. bits: values are or-ed together, and passed as `unsigned`."""

    name: str
    doc: str
    bits: bool
    rows: tuple[EnumValue, ...]


@dataclass(frozen=True, slots=True)
class Struct:
    """A structure; fields: (C type, declarator, doc)."""

    name: str
    doc: str
    fields: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Handle:
    """An opaque pointer."""

    name: str
    doc: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. enum: the enum whose values are translated, if any."""

    type: str
    name: str
    enum: Enum | None = None

    def __str__(self) -> str:
        return f"{self.type}{'' if self.type.endswith('*') else ' '}{self.name}"


@dataclass(frozen=True, slots=True)
class Binding:
    """How a GPU platform implements a call: by one of several functions of its runtime, by a
    function written by hand over `symbols`, not at all (`why`), or by the dispatcher."""

    kind: Literal["direct", "hand", "none", "dispatcher"]
    symbols: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class DeviceCall:
    """One call. extra: not of Fig. 10 of HetCCL-SNU."""

    name: str
    doc: str
    result: str
    parameters: tuple[Parameter, ...]
    bindings: Mapping[str, Binding]
    extra: bool

    @property
    def dispatched(self) -> bool:
        """Whether platforms implement the call, not the dispatcher."""
        return all(b.kind != "dispatcher" for b in self.bindings.values())


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Calls of one kind, with a text about them."""

    name: str
    title: str
    doc: str
    calls: tuple[DeviceCall, ...]


@dataclass(frozen=True, slots=True)
class Platform:
    """A GPU platform. libraries: looked for by these names, in `folder` too; path: the variable
    that names one; native_errors: the offset of codes without a name here."""

    name: str
    prefix: str
    libraries: tuple[str, ...]
    folder: str
    path: str
    native_errors: int


@dataclass(frozen=True, slots=True)
class Description:
    """The whole device layer."""

    platforms: Mapping[str, Platform]
    enums: tuple[Enum, ...]
    handles: tuple[Handle, ...]
    structs: tuple[Struct, ...]
    groups: tuple[CallGroup, ...]

    @property
    def calls(self) -> tuple[DeviceCall, ...]:
        """Returns every call, in order."""
        return tuple(call for group in self.groups for call in group.calls)

    def enum(self, name: str) -> Enum:
        """Returns the enum of a name."""
        return next(enum for enum in self.enums if enum.name == name)


def _row(
    name: str, value: int, cuda: str, cuda_value: int, hip: str, hip_value: int, doc: str
) -> EnumValue:
    natives = {"cuda": (cuda, cuda_value), "hip": (hip, hip_value)}
    return EnumValue(name, value, {k: native for k, native in natives.items() if native[0]}, doc)


def _enum(entry: Mapping[str, Any]) -> Enum:
    rows = tuple(_row(*row) for row in entry["rows"])
    return Enum(entry["name"], entry["doc"], entry.get("bits", False), rows)


def _parameter(text: str, enums: Mapping[str, Enum], flags: str | None) -> Parameter:
    match = re.fullmatch(r"(.*?[\s*])(\w+)", text.strip())
    assert match, text
    of, name = match[1].strip(), match[2]
    by_value = re.fullmatch(rf"{PREFIX}(\w+)_t", of)
    enum = enums.get(by_value[1]) if by_value else None
    return Parameter(of, name, enums[flags] if flags and name == "flags" else enum)


def _binding(text: str) -> Binding:
    if text.startswith("="):
        return Binding("dispatcher", tuple(text[1:].split()))
    if text.startswith("-"):
        return Binding("none", why=text[1:])
    if text.startswith("+"):
        return Binding("hand", tuple(text[1:].split()))
    return Binding("direct", tuple(text.split("|")))


def _call(entry: Mapping[str, Any], enums: Mapping[str, Enum]) -> DeviceCall:
    words = [word for word in entry["parameters"].split(",") if word.strip()]
    return DeviceCall(
        name=entry["name"],
        doc=entry["doc"],
        result=entry.get("result", f"{PREFIX}Error_t"),
        parameters=tuple(_parameter(word, enums, entry.get("flags")) for word in words),
        bindings={gpu: _binding(entry[gpu]) for gpu in GPUS},
        extra=entry.get("extra", False),
    )


@cache
def description() -> Description:
    """Reads the description of this package, once."""
    text = (files("hccc.runtime") / "device" / "calls.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)
    enums = {entry["name"]: _enum(entry) for entry in found["enum"]}
    return Description(
        platforms={
            name: Platform(name=name, **{**e, "libraries": tuple(e["libraries"])})
            for name, e in found["platform"].items()
        },
        enums=tuple(enums.values()),
        handles=tuple(Handle(e["name"], e["doc"]) for e in found["handle"]),
        structs=tuple(
            Struct(e["name"], e["doc"], tuple((t, n, d) for t, n, d in e["fields"]))
            for e in found["struct"]
        ),
        groups=tuple(
            CallGroup(e["name"], e["title"], e["doc"], tuple(_call(c, enums) for c in e["call"]))
            for e in found["group"]
        ),
    )
