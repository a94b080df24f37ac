"""synth_sizes: `hccc synth --sizes`: several algorithms, as a directory of kernels or of programs,
and the table of candidates."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from hccc.driver.compiled import Compiled, CompiledProgram

if TYPE_CHECKING:
    from hccc.synth.synthesis import SizeResult, SizesSynthesis

PROGRAMS = "*.rccl"  # the last part of `-o DIR/*.rccl`
_NAME = re.compile(r"[a-z]+-[a-z0-9-]+-\d+[KMG]?(-(and-)?\d+[KMG]?)*\.rccl")
_LINE = 4096  # characters: a line of ours is shorter
_HELP = "give -o a directory that can be written"
WIDTH = 1000  # columns take what their rows need: a terminal wraps, and no name is cut


def check_directory(directory: Path) -> None:
    """Refuses a directory that programs cannot be written to, before any work. Raises UserError
    E431."""
    from hccc.base.files.writing import named_errors

    with named_errors(directory, _HELP):
        if directory.exists() and not directory.is_dir():
            raise NotADirectoryError(0, "it is no directory")
        if not directory.exists() and not directory.parent.is_dir():
            raise FileNotFoundError(0, "there is no such directory to make it in")
        if not os.access(directory if directory.is_dir() else directory.parent, os.W_OK):
            raise PermissionError(0, "permission denied")


def write_programs(texts: dict[str, str], directory: Path) -> None:
    """Writes programs into a directory: all, or where anything fails, none.

    texts: by file name. What an earlier call wrote there of the same collective, and this one does
    not, is removed: who gives `DIR/*.rccl` to `hccc` gets these programs only.

    Raises:
        UserError: E431 it cannot be written.
    """
    from hccc.base.files.writing import named_errors, replace_all

    with named_errors(directory, _HELP):
        new = not directory.exists()
        directory.mkdir(exist_ok=True)
        op = next(iter(texts)).split("-")[0]
        gone = [p for p in directory.glob(f"{op}-*.rccl") if p.name not in texts and _ours(p)]
        try:
            replace_all(
                {directory / name: partial(_put, text) for name, text in texts.items()}, gone
            )
        except BaseException:
            if new:
                directory.rmdir()
            raise


def _ours(path: Path) -> bool:
    """Tells whether hccc wrote a program: its second line says by which method."""
    if not path.is_file() or not _NAME.fullmatch(path.name):
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return [file.readline(_LINE) for _ in range(2)][1].startswith("# Method: ")


def _put(text: str, file: TextIO) -> None:
    file.write(text)


def print_sizes(made: SizesSynthesis, compiled: Compiled | None, jobs: str = "") -> None:
    """Prints the candidates of each size, the programs chosen, and their sizes.

    compiled: the library made of the choice, whose ranges are finer; jobs: lines that follow, each
    after a new line.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    on = f" on {made.topology.name}" if made.topology.name else ""
    op = made.programs[0].collective.op.value
    each = f"{len(made.sizes)} sizes, each program compiled for several"
    print(f"{op} over {len(made.topology)} ranks{on}, {each}")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("size", "weighed", "simulated", "estimate", "of bound", "bound (us)"):
        left = name in ("weighed", "bound (us)")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for k in range(len(made.at)):
        for row in _rows(made, k):
            table.add_row(*row)
        table.add_section()
    console = Console(markup=False, highlight=False, emoji=False, width=WIDTH, color_system=None)
    with console.capture() as text:
        console.print(table)
    print("\n".join(line.rstrip() for line in text.get().strip("\n").splitlines()))
    for line in _chosen(made):
        print(line)
    if jobs:
        print(jobs[1:])
    if compiled is not None:
        _print_library(compiled)
    print(f"  {'seconds':<14} {made.seconds:.2f}")


def _rows(made: SizesSynthesis, k: int) -> Iterator[tuple[str, ...]]:
    """Yields the candidates of one size that were compiled, the chosen one marked; and the number
    of others."""
    from hccc.ir.text import microseconds as us
    from hccc.ir.text import size as size_text

    at, size, bound = made.at[k], size_text(made.at[k].size), ""
    name = made.chosen_at(k).name
    limit = f"{us(at.bound.time)}  {at.bound.binding}"
    for said, one in at.rows(name):
        if one.time is not None:
            bound = f"{at.bound.time / one.time:.1%}" if one.time else ""
            mark = "* " if one.name == name else "  "
            yield size, mark + said, us(one.time), us(one.estimate), bound, limit
            size, limit = "", ""
    if others := _others(at):
        yield size, f"  {others}", "", "", "", limit


def _others(at: SizeResult) -> str:
    """Returns `6 more, by estimate 300.59 or more`."""
    left = [one for one in at.weighed if one.time is None]
    if not left:
        return ""
    from hccc.ir.text import microseconds as us

    guesses = [one.estimate for one in left if one.program is not None]
    least = f", by estimate {us(min(guesses))} or more" if guesses else ", refused"
    return f"{len(left)} more{least}"


def _chosen(made: SizesSynthesis) -> Iterator[str]:
    named = "chosen (*)"
    for one in made.chosen:
        yield f"  {named:<14} {one.name}: for {one.serves()}"
        named = ""


def library_facts(compiled: Compiled | None) -> dict[str, object]:
    """Returns the ranges of a library of the programs, for JSON."""
    if not isinstance(compiled, CompiledProgram) or compiled.tuned is None:
        return {}
    from hccc.driver.tune.report import facts

    return {"ranges": facts(compiled.tuned)["ranges"]}


def _print_library(compiled: Compiled) -> None:
    from hccc.driver.tune.report import range_lines, what_blocks_take

    if isinstance(compiled, CompiledProgram) and compiled.tuned is not None:
        named, taken = "compiled for", what_blocks_take(compiled.topology)
        for line in range_lines(compiled.tuned, compiled.plan_names(), taken):
            print(f"  {named:<14} {line}")
            named = ""
