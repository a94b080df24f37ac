"""README's and the guide's commands print the output shown, in order, in one folder."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest

from hccc.base.diagnostics import UserError
from hccc.cli import main as cli
from tests.cli.commandline import environment
from tests.docs import chapters, rewriting
from tests.docs.chapters import Block, Command
from tests.test_architecture import ROOT

# Chapters that take less than some ten seconds; the others are of the slow suite.
QUICK = {"01-first-program"}
NEEDS = {"09-build-step": "cmake"}
SECONDS = 600
LONGEST_README = 120


CHAPTERS = [
    pytest.param(page, id=page.stem, marks=[] if page.stem in QUICK else [pytest.mark.slow])
    for page in chapters.PAGES
]


@dataclass
class Reader:
    """A reader who follows one page, in a folder with the examples; `update` has the page show what
    is printed, instead of comparing."""

    folder: Path
    update: bool = False
    names: dict[str, Any] = field(default_factory=dict)
    printed: str = ""

    def __post_init__(self) -> None:
        tools = self.folder / ".venv" / "bin"
        tools.mkdir(parents=True)
        (self.folder / "docs" / "pictures").mkdir(parents=True)
        shutil.copytree(ROOT / "examples", self.folder / "examples")
        for name, words in {"hccc": "-m hccc ", "python": "", "python3": ""}.items():
            (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
            (tools / name).chmod(0o755)

    def run(self, block: Block) -> None:
        """Runs a block, and compares its output."""
        name = block.note.removeprefix("file: ")
        if name != block.note:
            assert not Path(name).is_absolute() and ".." not in name
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(block.text, encoding="utf-8")
        elif block.note.startswith("in: "):
            whole = (ROOT / block.note.removeprefix("in: ")).read_text(encoding="utf-8")
            assert block.text in whole, f"{block.place} is not in that file"
        elif block.note == "output":
            self.show(block, self.compared(block, block.text, self.printed))
        elif block.kind == "python":
            self.printed = self.python(block)
        elif block.kind == "console":
            shown = [self.console(block, command) for command in chapters.commands(block)]
            self.show(block, chapters.showing(block, shown))

    def python(self, block: Block) -> str:
        """Runs Python; later blocks of the page have its names."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(self.folder):
            exec(compile(block.text, block.place, "exec"), self.names)
        return printed.getvalue()

    def show(self, block: Block, text: str) -> None:
        """Writes into the page what a block is to show, if that is something else."""
        if text != block.text:
            assert self.update, f"{block.place} is not read as it is written"
            chapters.write(block, text)

    def console(self, block: Block, command: Command) -> Command:
        """Runs one command with a shell. Returns it with what is to be shown."""
        text = chapters.without_installing(command.text)
        if not text:
            return command
        path = f"{self.folder / '.venv' / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.folder,
            env=environment(PATH=path, COLUMNS="200"),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        refused = re.search(r"error\[E\d+\]", command.printed) is not None
        what = f"{block.place}: {text}\nexit code {done.returncode}\n{done.stderr}\n{done.stdout}"
        assert done.returncode == int(refused), what
        if not command.printed:
            return command
        if self.update:
            told = rewriting.told_anew(done.stderr, command.printed, done.stdout)
        else:
            told = chapters.told(done.stderr, command.printed)
        return Command(command.text, self.compared(block, command.printed, told + done.stdout))

    def compared(self, block: Block, shown: str, printed: str) -> str:
        """Compares a text with what is printed. Returns the text to be shown."""
        measured = block.note == "measured"
        if self.update:
            return rewriting.shown_anew(shown, printed.replace(str(self.folder), "..."), measured)
        got = chapters.plain(printed)
        if not chapters.pattern(shown, measured).fullmatch(got):
            line = chapters.missing(shown, measured, got.splitlines())
            raise AssertionError(
                f"{block.place} shows\n{shown}\nbut this is printed:\n{printed}\n{line}"
            )
        return shown


def follow(page: Path, folder: Path, update: bool = False) -> None:
    """Runs all blocks of a page in a folder, in order: later ones read files of earlier ones."""
    reader = Reader(folder, update)
    for block in chapters.blocks(page):
        if block.reason is None:
            reader.run(block)


@pytest.mark.parametrize("page", CHAPTERS)
def test_what_a_page_shows_is_what_happens(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if (tool := NEEDS.get(page.stem)) and shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    update = bool(request.config.getoption("--update-golden"))
    follow(page, tmp_path, update)
    for picture in (tmp_path / "docs" / "pictures").iterdir():
        kept = ROOT / "docs" / "pictures" / picture.name
        if update and (not kept.exists() or _drawn(picture) != _drawn(kept)):
            shutil.copy(picture, kept)
        assert _drawn(picture) == _drawn(kept), f"{kept} is not what its command draws"


def _drawn(picture: Path) -> tuple[list[str], Counter[str]]:
    """Returns the words of a picture in order, and the number of each kind of element: versions of
    matplotlib write the same coordinates in other digits."""
    root = ElementTree.parse(picture).getroot()
    return (
        [
            "".join(text.itertext()).strip()
            for text in root.iter("{http://www.w3.org/2000/svg}text")
        ],
        Counter(element.tag for element in root.iter()),
    )


@pytest.mark.parametrize("page", chapters.PAGES, ids=lambda page: page.stem)
def test_blocks_are_what_this_test_knows(page: Path) -> None:
    """No block is passed over because its comment or its kind is unknown."""
    found = chapters.blocks(page)
    assert len(found) == page.read_text(encoding="utf-8").count("\n```") / 2
    for block in found:
        assert block.note in ("", "measured", "output") or re.match(
            r"file: \S+$|in: \S+$|not run: .", block.note
        ), block.place
        assert block.reason in (None, *chapters.REASONS), block.place
        assert block.note or block.kind in ("console", "python", "mermaid"), (
            f"{block.place}: nothing is done with a block of {block.kind}"
        )


@pytest.mark.parametrize(
    "page", sorted({*chapters.PAGES, *(ROOT / "docs").rglob("*.md")}), ids=lambda page: page.stem
)
def test_commands_exist(page: Path) -> None:
    """Each call of hccc on any page parses, even in blocks that are not run."""
    for block in chapters.blocks(page):
        if block.kind != "console":
            continue
        for line in chapters.hccc_commands(block):
            words = shlex.split(line)[1:]
            command: click.Command = cli.cli
            context = click.Context(cli.cli, **cli.cli.context_settings)
            words = words if words[0] in (*cli.cli.commands, "-h") else ["compile", *words]
            while isinstance(command, click.Group) and words[0] in command.commands:
                command = command.commands[words[0]]
                words = words[1:]
            with contextlib.suppress(
                UserError
            ):  # an option whose value the page shows to be refused
                command.make_context("hccc", words, context)


def test_readme_is_short() -> None:
    assert len(chapters.PAGES[0].read_text(encoding="utf-8").splitlines()) <= LONGEST_README


def test_chapters_are_numbered() -> None:
    numbers = [int(page.stem[:2]) for page in chapters.PAGES[1:]]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 5


def test_what_differs_is_seen() -> None:
    """`...` stands for any lines or any text, decimals for others where they are measured."""
    shown = "a  1.5\n...\nlast ... line\n"
    printed = chapters.plain("a 1.5\nb\nc\nlast long line\n")
    assert chapters.pattern(shown, False).fullmatch(printed)
    assert not chapters.pattern(shown, False).fullmatch(printed.replace("1.5", "2.5"))
    assert chapters.pattern(shown, True).fullmatch(printed.replace("1.5", "2,012.57"))
    assert not chapters.pattern(shown, True).fullmatch(printed.replace("a 1.5", "b 1.5"))
    assert not chapters.pattern(shown, True).fullmatch(printed + "more\n")
    assert chapters.missing(shown, False, ["b", "last line"]) == "a  1.5"
    stderr = "tuning, 3 s\nx.rccl:1:2: error[E205]: no\n    1 | a\nhelp: b\n"
    assert chapters.told(stderr, "    1 | a\n") == stderr.removeprefix("tuning, 3 s\n")
