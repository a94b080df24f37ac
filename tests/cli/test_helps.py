"""`-h`: options in groups, examples that the command line takes, commands in order."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from hccc.cli import main as cli
from hccc.cli.helps import GROUPS
from hccc.driver.options import selectable
from tests.cli.commandline import Hccc, hccc

__all__ = ["hccc"]
COMMANDS = {name: one for name, one in cli.cli.commands.items() if not isinstance(one, click.Group)}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_shown_once(hccc: Hccc, name: str) -> None:
    code, text, _ = hccc(name, "-h")
    assert code == 0 and text.count("Examples:") == 1
    options = re.sub(r"-\s+", "-", text.partition("Options:")[2].partition("Examples:")[0])
    for one in COMMANDS[name].params:
        if isinstance(one, click.Option) and not one.hidden:
            assert re.search(rf"(?<![\w-]){one.opts[0]}(?![\w-])", options), one.name
    headings = set(re.findall(r"^(\w[\w ]*):$", text, re.M))
    assert {"Options", "Examples"} <= headings <= {"Options", "Examples", *GROUPS}
    assert len(text.splitlines()) < (115 if name == "compile" else 85)


def test_options_of_a_compilation_are_described_by_compile(hccc: Hccc) -> None:
    _, whole, _ = hccc("compile", "-h")
    _, short, _ = hccc("check", "-h")
    for option in selectable():
        assert option.metadata["help"].split()[0] in whole
    assert "as `hccc compile -h` describes them" in " ".join(short.split())
    assert "--max-sms" in short and len(short) < len(whole) / 2


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_command_lines(name: str) -> None:
    """Each is taken apart as the command would, with files that need not be there."""
    command = COMMANDS[name]
    for example in getattr(command, "examples"):  # noqa: B009
        words = shlex.split(re.sub(r".*\$\((.*)\).*", r"\1", example))
        named = words[1] in COMMANDS  # `compile` may be left out
        assert words[0] == "hccc" and (words[1] if named else "compile") == name
        context = click.Context(command, info_name=name)
        context.allow_interspersed_args = not command.context_settings
        options, _, _ = command.make_parser(context).parse_args(
            args=words[2:] if named else words[1:]
        )
        assert options.keys() <= {one.name for one in command.params}


def test_helps_say_how_to_have_words_completed_and_what_no_cluster_means(hccc: Hccc) -> None:
    _, text, _ = hccc("-h")
    assert "_HCCC_COMPLETE=bash_source hccc" in text
    for name in ("compile", "check", "show", "run", "sim", "explain", "diff"):
        _, text, _ = hccc(name, "-h")
        assert "Without it: nodes as the header says" in " ".join(text.split()), name


def test_no_line_of_a_list_of_commands_is_cut(hccc: Hccc) -> None:
    for argv in (("-h",), ("cluster", "-h")):
        _, text, _ = hccc(*argv)
        assert "..." not in text.partition("Options:")[2]


def test_commands_stand_in_the_order_of_a_days_work(hccc: Hccc) -> None:
    _, text, _ = hccc("-h")
    places = [
        text.index(f"\n  {name} ") for name in ("compile", "check", "run", "launch", "sim", "synth")
    ]
    assert places == sorted(places)
