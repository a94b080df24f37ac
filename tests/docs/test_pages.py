"""The generated parts of docs/architecture.md and docs/command-line.md match the code."""

from __future__ import annotations

import re
from collections.abc import Callable

import click
import pytest

from hccc.cli import execute
from tests.docs import pages
from tests.test_architecture import ALLOWED, PACKAGE

Generated = Callable[[str, str, str], None]
ARCHITECTURE = "architecture.md"
COMMAND_LINE = "command-line.md"
MEANING = {
    "EXIT_USER": "what was given is wrong; nothing has been written",
    "EXIT_USAGE": "the command line is wrong",
    "EXIT_BUG": "a bug in hccc",
    "EXIT_INTERRUPTED": "interrupted",
}


def test_architecture(generated: Generated) -> None:
    generated(ARCHITECTURE, "folders", pages.folders())
    rows = [[f"`hccc {n}`", f"`{pages.where(c)}`"] for n, c in pages.commands()]
    generated(ARCHITECTURE, "commands", pages.table(["command", "in `compiler/`"], rows))
    generated(ARCHITECTURE, "passes", pages.files("passes"))
    generated(ARCHITECTURE, "proofs", pages.files("proofs"))
    generated(ARCHITECTURE, "analyses", pages.files("analysis"))


def test_command_line(generated: Generated) -> None:
    found = pages.commands()
    rows = [[f"[`{n}`](#{n.replace(' ', '-')})", c.get_short_help_str(200)] for n, c in found]
    generated(COMMAND_LINE, "commands", pages.table(["command", "what it does"], rows))
    codes = {"0": "all is well"} | {
        str(getattr(execute, name)): text
        for name, text in MEANING.items()
        if hasattr(execute, name)
    }
    generated(
        COMMAND_LINE, "exit codes", pages.table(["code", "meaning"], [*map(list, codes.items())])
    )
    generated(COMMAND_LINE, "options", "\n".join(pages.options(n, c) for n, c in found))


def test_every_exit_code_is_described() -> None:
    assert {name for name in vars(execute) if name.startswith("EXIT_")} <= set(MEANING)


@pytest.mark.parametrize(("name", "command"), pages.commands())
def test_every_option_is_on_the_page(name: str, command: click.Command) -> None:
    page = (pages.DOCS / COMMAND_LINE).read_text(encoding="utf-8")
    section = page.split(f"\n### {name}\n")[1].split("\n### ")[0]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert all(f"{option}" in section for option in parameter.opts)


def test_the_picture_shows_every_folder_and_nothing_else() -> None:
    page = (pages.DOCS / ARCHITECTURE).read_text(encoding="utf-8")
    picture = page.split("```mermaid\n")[1].split("```")[0]
    paths = set(re.findall(r"\b[a-z_]+/(?:[a-z_]+/)?(?:[a-z_]+\.py)?", picture))
    assert [p for p in sorted(paths) if not (PACKAGE / p).exists()] == []
    wanted = {f"{room}/" for room in ALLOWED if (PACKAGE / room).is_dir()}
    shown = {f"{path.split('/')[0]}/" for path in paths}
    assert wanted <= shown | {"ir/"}
