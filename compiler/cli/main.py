"""The group of all commands, and the entry point `hccc`: `hccc x.rccl -o DIR` compiles."""

from __future__ import annotations

import gc
import io
import sys
from typing import NoReturn

import click

from hccc.base.interruptible import left_running
from hccc.base.version import __version__
from hccc.cli.bound import bound
from hccc.cli.builtin import builtin
from hccc.cli.check import check
from hccc.cli.cluster import cluster
from hccc.cli.compile import compile_command
from hccc.cli.config import config
from hccc.cli.diff import diff
from hccc.cli.execute import EXIT_INTERRUPTED, DefaultGroup, execute, leave, open_streams
from hccc.cli.explain import explain
from hccc.cli.fuzz import fuzz
from hccc.cli.launch import launch
from hccc.cli.lsp import lsp
from hccc.cli.nccl import nccl
from hccc.cli.options import HELP
from hccc.cli.profile import profile
from hccc.cli.run import run
from hccc.cli.show import show
from hccc.cli.sim import sim
from hccc.cli.standard import standard
from hccc.cli.synth import synth

# What is imported stays: going through it for cycles, as often as Python does unasked, took a tenth
# of a short command's time.
RARELY = (100_000, 20, 100)

SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Algorithms": (compile_command, check, show, fuzz),
    "Running": (run, launch, standard, nccl),
    "Times": (sim, explain, diff, bound),
    "Clusters": (cluster, profile),
    "Making algorithms": (synth, builtin),
    "Builds and editors": (config, lsp),
}


class Commands(DefaultGroup):
    """The commands under headings, in the order of a day's work."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in order."""
        return [*self.commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes each heading with its commands."""
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(one.name or "", one.get_short_help_str(100)) for one in commands]
                )


@click.group(cls=Commands, context_settings=HELP, no_args_is_help=True)
@click.version_option(__version__, prog_name="hccc", message="%(prog)s %(version)s")
def cli() -> None:
    """Compiles collective-communication algorithms into proved CUDA, HIP and CPU kernels.

    `hccc ALGO -o DIR` is short for `hccc compile ALGO -o DIR`. After `eval
    "$(_HCCC_COMPLETE=bash_source hccc)"` bash completes words (zsh_source, fish_source: others).
    """


for _commands in SECTIONS.values():
    for _command in _commands:
        cli.add_command(_command)


def main() -> NoReturn:
    """Runs the command line: the entry point `hccc`."""
    gc.set_threshold(*RARELY)
    open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = execute(cli, sys.argv[1:])
    if code == EXIT_INTERRUPTED or left_running():
        leave(code)  # a computation that is left to itself may not let the interpreter end
    sys.exit(code)
