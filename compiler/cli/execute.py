"""execute: runs a command line: where results and errors go, and the exit code.

- `hccc x.rccl ...` means `hccc compile x.rccl ...`.
- Results go to stdout, everything else to stderr; with `--json` an error is also a JSON object
  on stdout.
- Exit codes: 0; 1 for anything the user can mend in what hccc reads or writes; 2 for a command line
  that is none; 70 for a bug in hccc; 130 when interrupted.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TextIO

import click

from hccc.base.diagnostics import Problem, UserError, of_command_line
from hccc.base.version import __version__

EXIT_USER, EXIT_USAGE, EXIT_BUG, EXIT_INTERRUPTED = 1, 2, 70, 130
# What is wrong is the command line itself.
_USAGE = {"E400", "E410", "E415", "E416", "E418", "E424", "E433", "E434"}
_EXTRA = re.compile(r"unexpected extra arguments? \((\S+)\)")
_NO_COMMAND = re.compile(r"No such command '(\S+)'")
_NO_CHOICE = re.compile(r"'([^']*)' is not one of (.*)")
_QUOTED = re.compile(r"'([^']*)'")
_CLOSE = 0.75  # how alike an option has to be to be suggested


class DefaultGroup(click.Group):
    """A group whose command `default` may be left out."""

    default = "compile"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the default command in front of arguments that name none."""
        if args and args[0] == "help" and not Path("help").exists():
            if args[1:] and args[1] not in self.commands:
                self._mistyped(ctx, args[1])
                raise click.UsageError(f"no command {args[1]!r}", ctx)
            args = [*args[1:3], "--help"]
        known = {*self.commands, "-h", "--help", "--version"}
        if args and args[0] not in known:
            self._mistyped(ctx, args[0])
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _mistyped(self, ctx: click.Context, word: str) -> None:
        close = difflib.get_close_matches(word, self.commands, 1, 0.7)
        if close and not Path(word).exists():
            raise click.UsageError(f"no file and no command {word!r}; is it {close[0]!r}?", ctx)


def open_streams() -> None:
    """Makes streams of those that were closed: writing to stdout then fails, stderr takes all.

    What is opened later must not get their numbers, or results would be written into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # the lowest number that is free is this one
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def execute(group: click.Group, argv: Sequence[str]) -> int:
    """Runs the command line `argv`; returns the exit code and never raises."""
    before = of_command_line.set(True)
    try:
        options = argv[: argv.index("--")] if "--" in argv else argv
        return _outcome(group, argv, "--json" in options)
    except OSError:  # stdout can be written no more, and neither can what was to tell why
        return EXIT_USER
    finally:
        of_command_line.reset(before)
        for stream in (sys.stdout, sys.stderr):
            if not _flushed(stream):  # or the interpreter would try again, and exit with 120
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


def _outcome(group: click.Group, argv: Sequence[str], as_json: bool) -> int:
    try:
        code = group.main(list(argv), prog_name="hccc", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UserError as error:
        return _refuse(error.problem, as_json)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _refuse(_usage(error), as_json)
    except click.Abort as error:
        if isinstance(error.__cause__, EOFError):  # click takes it for the end of a prompt's input
            return _bug(error.__cause__, as_json)
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except MemoryError:
        help = "a smaller program, message or number of ranks needs less"
        return _refuse(Problem("E441", "out of memory", help=help), as_json)
    except BrokenPipeError:
        return EXIT_USER
    except OSError as error:
        return _refuse(_system(error), as_json)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else EXIT_USER
    except Exception as error:
        return _bug(error, as_json)


def leave(code: int) -> NoReturn:
    """Ends the process at once, whatever other threads are doing."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            if stream:
                stream.flush()
    os._exit(code)


def _usage(error: click.ClickException) -> Problem:
    context = getattr(error, "ctx", None)
    text = " ".join(_usage_text(error).split())
    help = f"`{context.command_path} --help` lists what there is" if context else None
    return Problem("E400", text, help=_meant(text) or help)


def _meant(text: str) -> str | None:
    """Returns what click's message of a wrong word may want: a choice much like it, --cluster for a
    file that is left over, or the command that prints a cluster."""
    if (missing := _NO_COMMAND.search(text)) and _is_cluster(missing[1]):
        return f"`hccc cluster show {missing[1]}` prints a cluster"
    if (extra := _EXTRA.search(text)) and extra[1].endswith(".cluster"):
        return f"is it --cluster {extra[1]}?"
    if not (wrong := _NO_CHOICE.search(text)):
        return None
    choices = {_letters(word): word for word in _QUOTED.findall(wrong[2])}
    close = difflib.get_close_matches(_letters(wrong[1]), choices, 1, _CLOSE)
    return f"is it {choices[close[0]]}?" if close else None


def _is_cluster(word: str) -> bool:
    from hccc.shipped.find import ShippedKind, names

    return word.endswith(".cluster") or word in names(ShippedKind.CLUSTER)


def _letters(word: str) -> str:
    return "".join(filter(str.isalnum, word.lower()))


def _usage_text(error: click.ClickException) -> str:
    """Returns click's message; of an unknown option, with only those suggestions that are much
    alike."""
    if not isinstance(error, click.NoSuchOption):
        return error.format_message()
    close = difflib.get_close_matches(error.option_name, error.possibilities or (), 1, _CLOSE)
    return f"no such option: {error.option_name}" + (f"; is it {close[0]}?" if close else "")


def _system(error: OSError) -> Problem:
    place = f"{error.filename}: " if error.filename else ""
    if not place and not _flushed(sys.stdout):
        place = "standard output: "
    return Problem("E440", f"{place}{error.strerror or error}")


def _refuse(problem: Problem, as_json: bool) -> int:
    _print_error(problem.render())
    if as_json:
        _report({"error": problem.as_json()})
    return EXIT_USAGE if problem.code in _USAGE else EXIT_USER


def _bug(error: Exception, as_json: bool) -> int:
    if os.environ.get("HCCC_DEBUG"):
        traceback.print_exc()
    summary = f"{type(error).__name__}: {error}"
    _print_error(
        f"internal error: this is a bug in hccc {__version__}: {summary}\n"
        "help: please report it with the command and its input; HCCC_DEBUG=1 prints a traceback"
    )
    if as_json:
        _report({"error": {"code": "internal", "message": summary}})
    return EXIT_BUG


def _print_error(text: str) -> None:
    """Prints to stderr, in characters that the terminal can show; to nobody where that is full."""
    encoding = sys.stderr.encoding or "utf-8"
    with suppress(OSError):
        print(text.encode(encoding, "replace").decode(encoding), file=sys.stderr)


def _flushed(stream: TextIO) -> bool:
    """Tells whether all that was written to `stream` got there."""
    try:
        stream.flush()
    except (OSError, ValueError):
        return False
    return True


def _report(value: dict[str, object]) -> None:
    print(json.dumps(value, indent=2))
