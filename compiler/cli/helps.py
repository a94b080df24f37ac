"""helps: how `-h` shows a command: its own options, then those it shares, then examples.

The options of a compilation are shown whole by `compile`, and by name elsewhere.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import click

from hccc.cli.options import CALL
from hccc.driver.options import selectable

_COMPILATION = frozenset({*(one.name for one in selectable()), "print_after"})
GROUPS = {  # options by the heading under which they stand; all others are the command's own
    "Sizes": frozenset({"minbytes", "maxbytes", "stepfactor", "stepbytes"}),
    "The call": frozenset(CALL),
    "Processes and hosts": frozenset({"procs", "hosts", "rsh", "remote_python", "workers"}),
    "Faults of the cluster": frozenset({"failed", "degraded"}),
    "Compilation": _COMPILATION,
    "Output": frozenset({"as_json", "time_phases", "file"}),
}
_WHOLE = "compile"  # the command that shows all options of a compilation


class HelpfulCommand(click.Command):
    """A command whose options are shown in groups. examples: command lines."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options under their headings."""
        shown = [
            (one, record) for one in self.get_params(ctx) if (record := one.get_help_record(ctx))
        ]
        whole = {_COMPILATION} if self.name == _WHOLE else set()
        groups = {heading: names for heading, names in GROUPS.items() if names not in whole}
        if all(one.name != "launch" for one, _ in shown):  # no simulated call
            groups["The call"] -= {"protocol"}
        shared = frozenset[str]().union(*groups.values())
        with formatter.section("Options"):
            formatter.write_dl([record for one, record in shown if one.name not in shared])
        for heading, names in groups.items():
            found = [(one, record) for one, record in shown if one.name in names]
            if not found:
                continue
            with formatter.section(heading):
                if names is _COMPILATION:
                    flags = ", ".join(one.opts[0] for one, _ in found)
                    formatter.write_text(f"{flags}: as `hccc compile -h` describes them.")
                else:
                    formatter.write_dl([record for _, record in found])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples."""
        if self.examples:
            with formatter.section("Examples"):
                lines = textwrap.indent("\n".join(self.examples), " " * formatter.current_indent)
                formatter.write(f"{lines}\n")
