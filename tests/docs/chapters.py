"""Blocks of README and the guide: commands with their output, Python, and files.

A comment on the line before a block says what it is, if the block alone does not:

    <!-- file: NAME -->    the block is written into NAME
    <!-- in: PATH -->      the block is part of that file of the repository
    <!-- output -->        what the Python block before it prints
    <!-- measured -->      decimals are of a measurement: each stands for any decimal
    <!-- not run: WHY -->  the block is not run, for one of REASONS

In what a command prints, a line `...` stands for any number of lines, and `...` within a line for
any text. Blanks count as one. Nothing is compared where nothing is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.test_architecture import ROOT

GUIDE = ROOT / "docs" / "guide"
PAGES = [ROOT / "README.md", *sorted(GUIDE.glob("[0-9]*.md"))]
REASONS = (
    *("needs a GPU", "needs nvcc", "needs clang", "needs other hosts", "needs PyTorch"),
    *("takes a minute", "takes ten minutes", "runs all tests"),
)
INSTALLS = (
    "python3 -m venv ",
    ". .venv/bin/activate",
    "pip install ",
    ".venv/bin/pip install ",
)
_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
_DIAGNOSTIC = re.compile(r"(.*: )?(error|warning)\[|(note|help): |internal error")
_DECIMAL = re.compile(r"\d[\d,]*\\\.\d+")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, the `number`-th from 0 on, and the comment before it."""

    page: Path
    number: int
    line: int
    kind: str
    note: str
    text: str

    @property
    def place(self) -> str:
        """`README.md:12`."""
        return f"{self.page.name}:{self.line}"

    @property
    def reason(self) -> str | None:
        """Why the block is not run; None for one that is."""
        return self.note.removeprefix("not run: ") if self.note.startswith("not run: ") else None


@dataclass(frozen=True)
class Command:
    """A line after `$ `, with continuation lines after `> `, and its output."""

    text: str
    printed: str


def blocks(page: Path) -> list[Block]:
    """Returns the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            number,
            text.count("\n", 0, match.start("kind")) + 1,
            match["kind"],
            match["note"] or "",
            match["text"],
        )
        for number, match in enumerate(_BLOCK.finditer(text))
    ]


def write(block: Block, text: str) -> None:
    """Replaces the text of a block in its page, where blocks before it may have been replaced."""
    page = block.page.read_text(encoding="utf-8")
    match = list(_BLOCK.finditer(page))[block.number]
    assert match["text"] == block.text, f"{block.place} has been changed meanwhile"
    whole = page[: match.start("text")] + text + page[match.end("text") :]
    texts = [found["text"] for found in _BLOCK.finditer(whole)]
    assert texts[block.number : block.number + 1] == [text], f"{block.place} cannot show\n{text}"
    block.page.write_text(whole, encoding="utf-8")


def commands(block: Block) -> list[Command]:
    """Returns the commands of a console block."""
    texts: list[list[str]] = []
    printed: list[list[str]] = []
    for line in block.text.splitlines(keepends=True):
        if line.startswith("$ "):
            texts.append([line[2:]])
            printed.append([])
        elif line.startswith("> ") and not printed[-1]:
            texts[-1].append(line[2:])
        else:
            assert texts, f"{block.place}: the block does not begin with `$ `"
            printed[-1].append(line)
    return [Command("".join(c), "".join(p)) for c, p in zip(texts, printed, strict=True)]


def showing(block: Block, shown: Sequence[Command]) -> str:
    """Returns the text of a console block that has these commands."""
    text = "".join("$ " + "> ".join(c.text.splitlines(keepends=True)) + c.printed for c in shown)
    assert commands(replace(block, text=text)) == shown, f"{block.place} cannot show\n{text}"
    return text


def without_installing(command: str) -> str:
    """Returns the parts of `a && b && c` that install nothing."""
    parts = command.strip().split(" && ")
    return " && ".join(part for part in parts if not part.startswith(INSTALLS))


UNQUOTED = r"(?=(?:[^']*'[^']*')*[^']*$)"  # what follows closes all quotes that it opens


def hccc_commands(block: Block) -> Iterator[str]:
    """Yields each call of `hccc` in a console block, without its redirections."""
    for command in commands(block):
        text = re.sub(r"\\\n", " ", command.text)
        for part in re.split(rf"(?:&&|\||;|\n|\bdo\b){UNQUOTED}", text):
            words = re.sub(rf"(\s[#>]|\d?>){UNQUOTED}.*|&\s*$", "", part).strip()
            if re.match(r"(\.venv/bin/)?hccc\s", words):
                yield words


def plain(text: str) -> str:
    """Replaces runs of blanks by one, and removes those at the ends of lines."""
    return "".join(re.sub(r"\s+", " ", line).strip() + "\n" for line in text.splitlines())


def pattern(shown: str, measured: bool) -> re.Pattern[str]:
    """Returns the pattern that `plain` of a command's whole output must match."""
    parts = []
    for line in plain(shown).splitlines():
        if line == "...":
            parts.append(r"(?:.*\n)*?")
            continue
        part = re.escape(line)
        if measured:
            part = _DECIMAL.sub(r"\\d[\\d,.e+]*", part)
        parts.append(part.replace(r"\.\.\.", ".*?") + r"\n")
    return re.compile("".join(parts))


def told(stderr: str, shown: str) -> str:
    """Returns a command's errors and warnings, and the shown ones of its other lines on stderr:
    progress, which depends on the machine's speed."""
    wanted = [pattern(line, False) for line in shown.splitlines() if line.strip() != "..."]
    kept = [
        line
        for line in stderr.splitlines()
        if _DIAGNOSTIC.match(line) or any(one.fullmatch(plain(line)) for one in wanted)
    ]
    return "".join(f"{line}\n" for line in kept)


def missing(shown: str, measured: bool, lines: Sequence[str]) -> str:
    """Returns the first line shown that was not printed, for a message."""
    for line in shown.splitlines():
        one = pattern(line, measured)
        if line != "..." and not any(one.fullmatch(printed + "\n") for printed in lines):
            return line
    return "(the order, or lines that are not shown)"
