"""types: what options may hold: sizes, durations, numbers in a range, lists of words."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_LARGEST_SIZE = 1 << 40


class File(click.Path):
    """A path; an empty one is a mistake, and not this directory."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """`value` as a Path."""
        if not str(value):
            self.fail("a path cannot be empty", param, ctx)
        return super().convert(value, param, ctx)


class Size(click.ParamType[int]):
    """Bytes: `8`, `1K`, `4M`, `1.5G` (powers of 1024, as in nccl-tests)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes of `value`."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)([KMGT]?)(?:i?B)?", str(value), re.I | re.A)
        if not match:
            self.fail(f"{value!r} is not a size; write 8, 1K, 4M or 1G", param, ctx)
        size = int(float(match[1]) * (1 << _UNITS[match[2].upper()]))
        if size > _LARGEST_SIZE:
            self.fail(f"{value!r} is more than {_LARGEST_SIZE >> 40}T", param, ctx)
        return size


class MicroBatch(Size):
    """Bytes, or `best` (None): whichever of several takes the least time."""

    def convert(  # type: ignore[override]
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Bytes of `value`; None where it is `best`."""
        return None if value == "best" else super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A number in a range: `nan` is in none."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """`value` as a float."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


class Duration(click.ParamType[float]):
    """Seconds: `30`, `30s`, `10m`, `1.5h`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds of `value`."""
        match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", str(value), re.A)
        if not match or float(match[1]) == 0:
            self.fail(f"{value!r} is not a duration; write 30s, 10m or 1h", param, ctx)
        return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


class Words(click.ParamType[tuple[str, ...]]):
    """A comma list of known words, or `all`; aliases are translated."""

    name = "list"

    def __init__(self, words: Sequence[str], aliases: dict[str, str] | None = None) -> None:
        self.words, self.aliases = tuple(words), aliases or {}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The words in the order given, each once."""
        if isinstance(value, tuple):
            return value
        found: dict[str, None] = {}
        for word in str(value).lower().split(","):
            name = self.aliases.get(word.strip(), word.strip())
            if name != "all" and name not in self.words:
                known = ", ".join((*self.words, *self.aliases))
                self.fail(f"{word!r} is not one of {known}, all", param, ctx)
            found.update(dict.fromkeys(self.words if name == "all" else (name,)))
        return tuple(found)
