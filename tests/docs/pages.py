"""Tables in the pages of docs/ about the code, taken from the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from hccc.cli import main
from tests.test_architecture import ALLOWED, PACKAGE, ROOT

DOCS = ROOT / "docs"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table as GitHub shows it."""
    lines = [head, ["-" * len(cell) for cell in head], *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


def holds(path: Path) -> str:
    """Returns the first sentence of a module's docstring, without the name before it."""
    whole = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = re.sub(r"\s+", " ", whole.split("\n\n")[0]).split(". ")[0].rstrip(".:")
    return re.sub(r"^\w+: ", "", first)


def modules(folder: str) -> Iterator[Path]:
    """Yields the modules of a folder of the package and of the folders in it, by path."""
    return (p for p in sorted((PACKAGE / folder).rglob("*.py")) if p.stem != "__init__")


def folders() -> str:
    """Returns the table of folders and modules of the package: content, allowed imports."""
    rows = []
    for room, allowed in ALLOWED.items():
        folder = PACKAGE / room
        source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        name = f"{room}/" if folder.is_dir() else f"{room}.py"
        rows.append([f"`{name}`", holds(source), ", ".join(sorted(allowed)) or "nothing"])
    return table(["in `compiler/`", "holds", "may import"], rows)


def files(folder: str) -> str:
    """Returns the table of files of a folder and their content."""
    root = PACKAGE / folder
    rows = [[f"`{p.relative_to(root).as_posix()}`", holds(p)] for p in modules(folder)]
    return table(["file", "holds"], rows)


def commands() -> list[tuple[str, click.Command]]:
    """Returns every command, a group's as `cluster list`."""

    def inside(group: click.Group, before: str) -> Iterator[tuple[str, click.Command]]:
        for name, command in group.commands.items():
            yield before + name, command
            if isinstance(command, click.Group):
                yield from inside(command, f"{before}{name} ")

    return list(inside(main.cli, ""))


def where(command: click.Command) -> str:
    """Returns the file of a command."""
    assert command.callback is not None
    return command.callback.__module__.removeprefix("hccc.").replace(".", "/") + ".py"


def options(name: str, command: click.Command) -> str:
    """Describes a command: usage, purpose, arguments and options."""
    context = click.Context(command, info_name=f"hccc {name}", **main.cli.context_settings)
    usage = " ".join(command.collect_usage_pieces(context))
    about = re.sub(r"\s*\n\s*", " ", (command.help or "").strip())
    rows = []
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None:
            rows.append([f"`{record[0]}`", re.sub(r"\s+", " ", record[1])])
    head = f"### {name}\n\n`hccc {name} {usage}`\n\n{about}\n"
    return head + ("\n" + table(["option", "meaning"], rows) if rows else "")
