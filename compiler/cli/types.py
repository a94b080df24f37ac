"""types: types of options: files, sizes, durations, numbers in a range, lists of words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, ClassVar

import click
from click.shell_completion import CompletionItem

from hccc.base.diagnostics import Source
from hccc.base.sizes import size_of


class File(click.Path):
    """A path; an empty one is a mistake, and not this directory."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns `value` as a Path."""
        if not str(value):
            self.fail("a path cannot be empty", param, ctx)
        return super().convert(value, param, ctx)


class Size(click.ParamType[int]):
    """Bytes: `8`, `1K`, `4M`, `1.5G` (powers of 1024, as in nccl-tests)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the bytes of `value`."""
        if isinstance(value, int):
            return value
        try:
            return size_of(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class MicroBatch(Size):
    """Bytes, or `best` (None): whichever of several takes the least time."""

    def convert(  # type: ignore[override]
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Returns the bytes of `value`; None for `best`."""
        return None if value == "best" else super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A number in a range: `nan` is in none."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Returns `value` as a float."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


class Speed(click.ParamType[tuple[float, float]]):
    """How fast a network is, in GB/s and µs: `12.5GB/s,5us`, `100Gbps`, `2us`."""

    name = "speed"
    _UNITS: ClassVar[dict[str, tuple[int, float]]] = {  # which of the two, and how many of it
        "tb/s": (0, 1e3),
        "gb/s": (0, 1.0),
        "mb/s": (0, 1e-3),
        "kb/s": (0, 1e-6),
        "tbps": (0, 125.0),
        "gbps": (0, 0.125),
        "mbps": (0, 0.125e-3),
        "ms": (1, 1e3),
        "us": (1, 1.0),
        "µs": (1, 1.0),
        "μs": (1, 1.0),
        "ns": (1, 1e-3),
    }

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Returns (GB/s, µs) of `value`; 0 for no limit and no latency."""
        found: dict[int, float] = {}
        for word in str(value).split(","):
            match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([^\d\s]+)", word.strip(), re.A)
            unit = self._UNITS.get(match[2].lower()) if match else None
            if not match or not unit or unit[0] in found:
                self.fail(f"{value!r} is not a speed; write 12.5GB/s,5us", param, ctx)
            found[unit[0]] = float(match[1]) * unit[1]
        if found.get(0, 1.0) <= 0:
            self.fail(f"{value!r}: a bandwidth of 0 moves nothing", param, ctx)
        return found.get(0, 0.0), found.get(1, 0.0)


class Duration(click.ParamType[float]):
    """Seconds: `30`, `30s`, `10m`, `1.5h`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Returns the seconds of `value`."""
        match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", str(value), re.A)
        if not match or float(match[1]) == 0:
            self.fail(f"{value!r} is not a duration; write 30s, 10m or 1h", param, ctx)
        return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


class HostRanks(click.ParamType[tuple[tuple[int, ...], ...]]):
    """Ranks of a host, or of each of several: how many, `8` or `2+2`, or which, `0,2+1,3`."""

    name = "ranks"
    _MOST = 1024  # of all hosts

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, ...], ...]:
        """Returns the ranks of each host."""
        words = str(value).split("+")
        counts = "," not in str(value)
        form = r"[1-9]\d{0,3}" if counts else r"\d{1,4}(,\d{1,4})*"
        if not all(re.fullmatch(form, word, re.A) for word in words):
            text = f"{value!r} are not numbers of ranks; write 8, or 2+2, or which: 0,2+1,3"
            self.fail(text, param, ctx)
        found = [[int(rank) for rank in word.split(",")] for word in words]
        sizes = [ranks[0] if counts else len(ranks) for ranks in found]
        if sum(sizes) > self._MOST:
            self.fail(f"{value!r} are more than {self._MOST} ranks", param, ctx)
        if counts:
            found = [[*range(a, b)] for a, b in pairwise(accumulate(sizes, initial=0))]
        if sorted(chain(*found)) != [*range(sum(sizes))]:
            self.fail(f"{value!r} are not ranks 0, 1, ..., each once", param, ctx)
        return tuple(map(tuple, found))


class Words(click.ParamType[tuple[str, ...]]):
    """A comma list of known words, or `all`; aliases are translated."""

    name = "list"

    def __init__(self, words: Sequence[str], aliases: dict[str, str] | None = None) -> None:
        self.words, self.aliases = tuple(words), aliases or {}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Returns the words in the order given, each once."""
        if isinstance(value, tuple):
            return value
        found: dict[str, None] = {}
        for word in str(value).lower().split(","):
            name = self.aliases.get(word.strip(), word.strip())
            if name != "all" and name not in self.words:
                known = ", ".join(map(repr, (*self.words, *self.aliases, "all")))
                self.fail(f"{word!r} is not one of {known}", param, ctx)
            found.update(dict.fromkeys(self.words if name == "all" else (name,)))
        return tuple(found)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns the whole list, with each word that its last one may become."""
        before, comma, last = incomplete.rpartition(",")
        there = before.lower().split(",")
        words = [w for w in (*self.words, *self.aliases) if self.aliases.get(w, w) not in there]
        if not comma:
            words.append("all")
        found = [word for word in words if word.startswith(last.lower())]
        return [CompletionItem(before + comma + word) for word in found]


def one_of(
    words: Callable[[], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes a word of a list, which is only made where somebody asks."""

    def completed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return [word for word in words() if word.startswith(incomplete.lower())]

    return completed


class ReductionText(click.ParamType[tuple[str, ...]]):
    """Reductions of one's own: the text of one, `absmax: ...`, or a file of them."""

    name = "text|file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Returns the texts, checked. Raises UserError E330 to E332, E401."""
        if isinstance(value, tuple):
            return value
        from hccc.base.reductions.laws import checked
        from hccc.base.reductions.parse import definitions

        return tuple(checked(text).text for text in definitions(str(value)))


class Operations(Words):
    """Reductions to run: a comma list of names, or all; or such as `ReductionText` takes.

    A name that is not known here may be one that a directory of kernels has.
    """

    name = "list|text|file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Returns names, and the texts of one's own."""
        if isinstance(value, tuple):
            return value
        if ":" in str(value) or Path(str(value)).is_file():
            return ReductionText().convert(value, param, ctx)
        words = [word.strip() for word in str(value).lower().split(",")]
        known = [word for word in words if word == "all" or word in self.words]
        if len(known) < len(words) and all(map(str.isidentifier, words)):
            return tuple(dict.fromkeys(words))
        return super().convert(value, param, ctx)


class RanksOfVendors(click.ParamType[tuple[tuple[str, str, int], ...]]):
    """A comma list of vendors' libraries, each with its number of ranks: `mpich:4,own:2`, or with
    its file: `mpich=/opt/lib/libmpi_abi.so.1:4`."""

    name = "list"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[str, str, int], ...]:
        """Returns (vendor, file or "", ranks) in the order given."""
        if isinstance(value, tuple):
            return value
        from hccc.launch.job_runs import vendors_of

        try:
            return tuple(vendors_of(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ShippedFile(File):
    """A file, or the name of a shipped file. kinds: names of `library.shipped.ShippedKind`."""

    kinds: ClassVar[tuple[str, ...]]

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns the names that ship and the files here; the shell's own files where no name fits.

        bash takes its own files only where nothing else is offered, so these are listed.
        """
        from hccc.shipped import find as shipped

        every = [name for kind in self.kinds for name in shipped.names(shipped.ShippedKind[kind])]
        names = [name for name in every if name.startswith(incomplete)]
        if not names:
            return super().shell_complete(ctx, param, incomplete)
        return [CompletionItem(word) for word in dict.fromkeys((*_files_here(incomplete), *names))]


class AlgorithmFile(ShippedFile):
    """A program or MSCCL XML, by path or by name."""

    kinds = ("ALGORITHM", "XML")
    _SMALL = 1 << 16  # bytes of a text that is parsed in some milliseconds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns `value` as a Path. Raises UserError for a program whose syntax is wrong, before
        the rest of the command is imported: that takes longer than parsing."""
        path = super().convert(value, param, ctx)
        if path.suffix == ".rccl" and path.is_file() and path.stat().st_size < self._SMALL:
            from hccc.base.files.reading import read_text
            from hccc.lang.mistakes import Mistake
            from hccc.lang.transfer.parse import parse_text
            from hccc.lang.transfer.preamble import PROGRAM

            source = Source(str(path), read_text(path, self._SMALL))
            try:
                if re.search(rf"^\s*(def\s+)?{PROGRAM}\b", source.text, re.MULTILINE):
                    parse_text(source.text)
            except Mistake as mistake:
                raise mistake.in_source(source) from None
        return path


class ClusterFile(ShippedFile):
    """A `.cluster`, by path or by name."""

    kinds = ("CLUSTER",)


class AnyFile(ShippedFile):
    """Whatever can be drawn, by path or by name."""

    kinds = ("ALGORITHM", "XML", "CLUSTER")


def _files_here(begin: str) -> Iterator[str]:
    """Yields files and folders of this directory whose names begin so; hidden ones only if asked
    for."""
    with suppress(OSError):
        for path in sorted(Path().iterdir()):
            if path.name.startswith(begin) and (begin or not path.name.startswith(".")):
                yield f"{path.name}/" if path.is_dir() else path.name
