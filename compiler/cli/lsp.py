"""`hccc lsp`: the language server that editors start."""

from __future__ import annotations

import sys

import click

from hccc.base.diagnostics import fail
from hccc.cli.helps import HelpfulCommand


@click.command(
    short_help="Serve an editor: errors as one types, and more.",
    cls=HelpfulCommand,
    examples=["hccc lsp"],
)
@click.option("--stdio", is_flag=True, help="Changes nothing; some editors add it.")
def lsp(stdio: bool) -> None:
    """Serve an editor on stdin and stdout, by the Language Server Protocol, which editors start.

    In programs, jobs and clusters it shows errors as one types, what a transfer brings and when,
    where its chunk is needed next, and the words that may stand at a place. docs/editors.md says
    how editors are told of it.
    """
    try:
        from hccc.editors.server import serve
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        help = "pip install 'hccc[lsp]'"
        raise fail(
            "E484", f"hccc lsp needs pygls: there is no {error.name} here", help=help
        ) from None
    if sys.stdin.isatty():
        click.echo("hccc lsp speaks with an editor, not with people: docs/editors.md", err=True)
    serve()
