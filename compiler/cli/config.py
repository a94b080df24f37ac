"""`hccc config`: where an installed hccc has what other projects' builds look for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click

from hccc.base.version import __version__
from hccc.cli.helps import HelpfulCommand
from hccc.downstream import places

_ANSWERS: Mapping[str, tuple[str, Callable[[], object]]] = {
    "version": ("The version of hccc.", lambda: __version__),
    "prefix": ("Folder of the Python package.", lambda: places.PREFIX),
    "includedir": ("Folder of `hccc/hccc.h`.", lambda: places.INCLUDE),
    "includes": ("The same as an option of compilers.", places.includes),
    "cflags": ("Options to compile what calls a generated library.", places.cflags),
    "libs": ("Options to link a generated static library, besides itself.", places.libs),
    "cmakedir": ("Folder of hcccConfig.cmake: `cmake -Dhccc_DIR=...`.", lambda: places.CMAKE),
    "pkgconfigdir": ("Folder of hccc.pc: `PKG_CONFIG_PATH=...`.", lambda: places.PKGCONFIG),
    "editordir": ("Folder of the extension of VS Code, and grammars.", lambda: places.EDITORS),
}


def _questions(command: Callable[..., None]) -> Callable[..., None]:
    for name, (help, _) in reversed(list(_ANSWERS.items())):
        command = click.option(f"--{name}", is_flag=True, help=help)(command)
    return command


@click.command(
    short_help="Say where builds of other projects, and editors, find hccc.",
    cls=HelpfulCommand,
    examples=["hccc config --cmakedir"],
)
@_questions
def config(**asked: bool) -> None:
    """Print where hccc is installed, and options for compilers, a line for each option given.

    docs/downstream.md says how projects are built with them.
    """
    if not any(asked.values()):
        raise click.UsageError("Say what is asked: one of --" + ", --".join(_ANSWERS))
    for name, (_, answer) in _ANSWERS.items():
        if asked[name]:
            click.echo(answer())
