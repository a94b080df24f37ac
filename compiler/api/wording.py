"""wording: errors in Python's words: `cluster=FILE` where the command line has `--cluster FILE`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from hccc.base.diagnostics import UserError, of_command_line
from hccc.driver.options import Options

P = ParamSpec("P")
R = TypeVar("R")
_SHORT = {"-b": "`smallest`", "-e": "`largest`", "-f": "`factor`"}  # of `Sizes`
_SHORT_OPTION = re.compile(r"(?<![\w-])-[bef](?![\w-])")


def python_words(function: Callable[P, R]) -> Callable[P, R]:
    """Makes the errors of a function name arguments and fields instead of options, but for the
    command line."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            if of_command_line.get():
                raise
            problem = error.problem
            help = problem.help and in_python(problem.help)
            raise UserError(
                replace(problem, message=in_python(problem.message), help=help)
            ) from error.__cause__

    return call


def in_python(text: str) -> str:
    """Returns a message with options as Python has them: `without --tune off` becomes `without
    tune="off"`. What is in backticks stays."""
    parts = text.split("`")
    parts[::2] = [
        _SHORT_OPTION.sub(lambda m: _SHORT[m[0]], _option().sub(_named, part))
        for part in parts[::2]
    ]
    return "`".join(parts)


def _named(match: re.Match[str]) -> str:
    name, value = match[1], match[2]
    if name.startswith("no-"):
        return f"{name[3:].replace('-', '_')}=False"
    name = name.replace("-", "_")
    if value is None:
        return name
    return f"{name}={value}" if value[0].isupper() or value[0].isdigit() else f'{name}="{value}"'


@cache
def _option() -> re.Pattern[str]:
    """Returns the pattern of an option, with its value where that is one: a number, a word in
    capitals, or a choice of `Options`."""
    choices = {str(c) for f in fields(Options) for c in f.metadata.get("choices", ())}
    words = "|".join(sorted(choices, key=len, reverse=True))
    value = rf"[A-Z]{{2,}}\b|\d+(?:\.\d+)?[KMGT]?\b|(?:{words})(?![\w-])"
    return re.compile(rf"(?<![\w-])--([a-z][a-z-]*[a-z])(?:[= ]({value}))?")
