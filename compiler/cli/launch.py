"""`hccc launch`: any command, in one process per rank."""

from __future__ import annotations

import os

import click

from hccc.base.diagnostics import fail
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import hosts_options


@click.command(
    short_help="Start a command in one process per rank.",
    cls=HelpfulCommand,
    examples=[
        "hccc launch -n 4 job.py --epochs 2",
        "hccc launch --hosts a:4,b:4 job.py",
        "hccc launch -n 2 --label -- ./a.out",
    ],
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "-n", "--ranks", type=click.IntRange(1, 4096), help="How many; with --hosts, of all slots."
)
@click.option("-m", "module", is_flag=True, help="COMMAND is a Python module.")
@hosts_options
@click.option("--label", is_flag=True, help="Begin each line of output with its rank.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def launch(
    command: tuple[str, ...],
    ranks: int | None,
    module: bool,
    hosts: str,
    rsh: str | None,
    remote_python: str | None,
    label: bool,
) -> None:
    """Start COMMAND (a Python script, or any other) in one process per rank, and wait.

    Ranks find each other by their environment, as under torchrun: `init_process_group` of
    torch.distributed, `Communicator.from_environment()` and `hcccCommInitRank` need no more. When
    a rank fails, the others are stopped after five seconds, and the exit code is 1.
    """
    from hccc.launch.hosts import hosts_of
    from hccc.launch.launch import launch as run
    from hccc.launch.rank_commands import RankCommand
    from hccc.launch.remote import Shell

    if ranks is None and not hosts:
        raise fail("E400", "how many ranks? say -n 4, or --hosts a:4,b:4")
    placed = hosts_of(hosts, ranks) if hosts else []
    n = placed[-1].ranks.stop if placed else ranks or 1
    shell = Shell.of(rsh, remote_python) if placed else None
    run(RankCommand(command, module, n, os.getcwd()), placed, shell, label=label)
