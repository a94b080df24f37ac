"""generate: makes the device layer's header, tables and dispatcher, and the tables of its page,
from `description`.

The results are committed; a test compares them, and `pytest --update-golden` writes them anew.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from hccc.base.render import render
from hccc.runtime.device.description import (
    GPUS,
    PREFIX,
    Binding,
    CallGroup,
    Description,
    DeviceCall,
    Enum,
    EnumValue,
    Handle,
    Parameter,
    Platform,
    Struct,
    description,
)

WIDTH = 100
PLATFORM_NAMES = {"cuda": "CUDA", "hip": "HIP"}
# Calls that join what a platform and the dispatcher say; dispatcher.cpp has them.
BY_HAND = ("GetLastError", "PeekAtLastError")


@dataclass(frozen=True, slots=True)
class View:
    """The input of every template."""

    of: Description

    @property
    def enums(self) -> tuple[Enum, ...]:
        """All enums, in order."""
        return self.of.enums

    @property
    def handles(self) -> tuple[Handle, ...]:
        """All handles."""
        return self.of.handles

    @property
    def structs(self) -> tuple[Struct, ...]:
        """All structures."""
        return self.of.structs

    @property
    def groups(self) -> tuple[CallGroup, ...]:
        """All calls, by group."""
        return self.of.groups

    @property
    def dispatched(self) -> list[DeviceCall]:
        """The calls that platforms implement, in the order of the table."""
        return [call for call in self.of.calls if call.dispatched]

    @property
    def by_hand(self) -> tuple[str, ...]:
        """The dispatched calls that are not generated."""
        return BY_HAND

    @property
    def errors(self) -> tuple[EnumValue, ...]:
        """Every error and what it means."""
        return self.of.enum("Error").rows

    def comment(self, text: str, *, inside: bool = False) -> str:
        """Formats a comment of C; inside: the lines of a comment that has begun."""
        lines = textwrap.wrap(text, WIDTH - 7)
        if inside:
            return "\n".join(f" * {line}" for line in lines)
        return f"/* {f'{chr(10)} * '.join(lines)} */"

    def number(self, enum: Enum, row: EnumValue) -> str:
        """Formats the value of a row in C."""
        return f"{row.value:#x}" if enum.bits and row.value > 8 else f"{row.value}"

    def list(self, call: DeviceCall) -> str:
        """Formats the parameters as C declares them."""
        return ", ".join(map(str, call.parameters)) or "void"

    def names(self, call: DeviceCall) -> str:
        """Formats the parameters as arguments."""
        return ", ".join(p.name for p in call.parameters)

    def declaration(self, call: DeviceCall) -> str:
        """Formats the declaration of a call in C, in lines of at most WIDTH."""
        space = "" if call.result.endswith("*") else " "
        head = f"{call.result}{space}{PREFIX}{call.name}("
        whole = f"{head}{self.list(call)})"
        if len(whole) + len("HCCCRT_API ;") <= WIDTH:
            return whole
        lines = [""]
        for word in self.list(call).split(", "):
            if len(lines[-1]) + len(word) + 2 > WIDTH - 6:
                lines.append("")
            lines[-1] += f"{word}, "
        return head + "\n    " + "\n    ".join(line.rstrip() for line in lines).rstrip(",") + ")"

    def pointer(self, call: DeviceCall) -> str:
        """Formats the entry of a call in the table."""
        types = ", ".join(p.type for p in call.parameters) or "void"
        return f"{call.result} (*{call.name})({types})"


@dataclass(frozen=True, slots=True)
class BindView(View):
    """The input of the template of a GPU platform's binding."""

    platform: Platform

    @property
    def name(self) -> str:
        """`cuda` or `hip`."""
        return self.platform.name

    def binding(self, call: DeviceCall) -> Binding:
        """Returns this platform's binding of the call."""
        return call.bindings[self.name]

    def call_symbols(self, call: DeviceCall) -> tuple[str, ...]:
        """Lists the functions of the runtime for a call; the first that exists is called."""
        return self.binding(call).symbols

    @property
    def symbols(self) -> list[str]:
        """Every function of the runtime that is looked up."""
        every = [s for call in self.of.calls for s in self.call_symbols(call)]
        return list(dict.fromkeys([*every, f"{self.platform.prefix}RuntimeGetVersion"]))

    @property
    def translated(self) -> Iterator[Enum]:
        """The enums whose values are translated."""
        used = {p.enum.name for call in self.direct for p in call.parameters if p.enum}
        return (enum for enum in self.enums if enum.name in used | {"Error"})

    @property
    def direct(self) -> Iterator[DeviceCall]:
        """The calls whose functions are generated."""
        return (call for call in self.dispatched if self.binding(call).kind == "direct")

    def has(self, row: EnumValue) -> bool:
        """Returns whether the platform has a value."""
        return self.name in row.natives

    def native(self, row: EnumValue) -> str:
        """Returns the platform's value, 0 where it has none."""
        value = row.natives.get(self.name, ("", 0))[1]
        return f"static_cast<int>({value:#x}u)" if value >= 1 << 31 else str(value)

    def native_types(self, call: DeviceCall) -> str:
        """Returns the types of the runtime's function."""
        return ", ".join("int" if p.enum else p.type for p in call.parameters)

    def native_arguments(self, call: DeviceCall) -> str:
        """Returns the arguments of the runtime's function."""
        return ", ".join(_native_argument(p) for p in call.parameters)

    def entry(self, call: DeviceCall) -> str:
        """Returns the call's entry in the platform's table."""
        return "nullptr" if self.binding(call).kind == "none" else call.name


def _native_argument(parameter: Parameter) -> str:
    return f"native_{parameter.name}" if parameter.enum else parameter.name


def sources() -> dict[str, str]:
    """Makes every generated file under `runtime/device/`, by its path there."""
    found = description()
    view = View(found)
    made = {
        "include/hcccrt.h": render("device/header.jinja", view),
        "generated/cpu_calls.h": render("device/cpu_calls.jinja", view),
        "generated/table.h": render("device/table.jinja", view),
        "generated/dispatch.inc": render("device/dispatch.jinja", view),
        "generated/meanings.inc": render("device/meanings.jinja", view),
    }
    for gpu in GPUS:
        bind = BindView(found, found.platforms[gpu])
        made[f"generated/bind_{gpu}.inc"] = render("device/bind.jinja", bind)
    return made


def calls_table(group: CallGroup) -> list[list[str]]:
    """Makes the rows of the page's table of one group: call, CUDA, HIP, meaning."""
    return [
        [
            f"`{PREFIX}{call.name}({View(description()).list(call)})`"
            + (" *(not of Fig. 10)*" if call.extra else ""),
            *(_bound(call.bindings[gpu]) for gpu in GPUS),
            call.doc,
        ]
        for call in group.calls
    ]


def _bound(binding: Binding) -> str:
    if binding.kind == "none":
        return f"none: {binding.why}"
    if not binding.symbols:
        return "hccc"
    return ", ".join(f"`{symbol}`" for symbol in binding.symbols)


def values_table(enum: Enum) -> list[list[str]]:
    """Makes the rows of the page's table of one enum: name, value, CUDA, HIP, meaning."""
    view = View(description())
    return [
        [
            f"`{PREFIX}{row.name}`",
            view.number(enum, row),
            *(f"`{row.natives[gpu][0]}`" if gpu in row.natives else "" for gpu in GPUS),
            row.doc,
        ]
        for row in enum.rows
    ]
