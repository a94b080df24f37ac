"""`hccc nccl`: the libraries by which programs that call NCCL or RCCL run hccc."""

from __future__ import annotations

import click

from hccc.cli.helps import HelpfulCommand


@click.command(
    short_help="Build libnccl.so.2, for programs that call NCCL.",
    cls=HelpfulCommand,
    examples=["LD_PRELOAD=$(hccc nccl --preload) ./a_program_of_nccl"],
)
@click.option("--path", is_flag=True, help="Print the folder, for LD_LIBRARY_PATH.")
@click.option("--preload", is_flag=True, help="Print the file, for LD_PRELOAD.")
def nccl(path: bool, preload: bool) -> None:
    """Build libnccl.so.2 and RCCL's librccl.so.1 over hccc's communicators, once, and say where
    they are.

    Programs of NCCL's then call hccc: `LD_PRELOAD=$(hccc nccl --preload) python train.py`.
    docs/nccl.md says what is there.
    """
    from hccc.cli.progress import progress
    from hccc.runtime.nccl.library import NAMES, folder

    if not path and not preload:
        raise click.UsageError("Say what is asked: --path or --preload")
    with progress(f"Building {NAMES[0]}"):
        made = folder()
    if path:
        click.echo(made)
    if preload:
        click.echo(made / NAMES[0])
