"""moves: the transfers that a line of a text makes: what each brings, when, who needs it next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hccc.analysis.contributions import carried
from hccc.editors.subject import ReadText, Text, read
from hccc.editors.times import TransferTimes, times
from hccc.ir import text as words
from hccc.ir.arrays import I8
from hccc.ir.program import Op, Program

SHOWN = 8  # transfers of a line that are told one by one
LOOKED_AT = 256  # transfers of a line whose next uses are looked for


def hover(text: Text, line: int, timed: bool) -> str | None:
    """Describes the transfers of a line, as Markdown; None where there are none.

    timed: whether the program may be simulated for it. Raises UserError for a wrong text.
    """
    subject = read(text)
    rows = _rows(subject, line)
    if subject.program is None or not len(rows):
        return None
    when = times(subject) if timed else None
    return "\n".join(_described(subject.program, rows, when, job=subject.job is not None))


def next_uses(text: Text, line: int) -> list[int]:
    """Returns the lines of the transfers that next read the chunks of a line, or add to them."""
    subject = read(text)
    if subject.program is None:
        return []
    program, rows = subject.program, _rows(subject, line)[:LOOKED_AT]
    uses = {_next_use(program, row) for row in rows.tolist()} - {None}
    lines = {int(program.transfers["line"][use]) for use in uses if use is not None}
    return sorted(lines)


def same_chunks(text: Text, line: int) -> list[int]:
    """Returns the lines of all transfers that move a chunk which those of a line move."""
    subject = read(text)
    if subject.program is None:
        return []
    table = subject.program.transfers
    chunks = np.unique(table["chunk"][_rows(subject, line)])
    found: list[int] = np.unique(table["line"][np.isin(table["chunk"], chunks)]).tolist()
    return found


def _rows(subject: ReadText, line: int) -> I8:
    """Returns the rows of the transfers that a line makes. A statement may have several lines: it
    is that of its first, as far as its brackets go."""
    if subject.program is None:
        return np.zeros(0, np.int64)
    of = subject.program.transfers["line"]
    before = of[of <= line]
    if not len(before):
        return np.zeros(0, np.int64)
    first = int(before.max())
    lines = subject.text.text.split("\n")[first - 1 : line - 1]
    opened = sum(one.count("(") - one.count(")") for one in lines)
    if first != line and opened <= 0:
        return np.zeros(0, np.int64)
    rows: I8 = np.flatnonzero(of == first)
    return rows


def _next_use(program: Program, row: int) -> int | None:
    """Returns the first transfer after `row` that reads its chunk where it arrives, or adds to
    it."""
    table = program.transfers
    later = table[row + 1 :]
    at = table["dst"][row]
    adds = (later["dst"] == at) & (later["op"] == Op.RRC)
    uses = (later["chunk"] == table["chunk"][row]) & ((later["src"] == at) | adds)
    uses &= later["step"] > table["step"][row]
    return row + 1 + int(uses.argmax()) if uses.any() else None


def _described(
    program: Program, rows: I8, when: TransferTimes | None, *, job: bool
) -> Sequence[str]:
    table = program.transfers
    steps = np.unique(table["step"][rows]).tolist()
    noun = "step of the job" if job else "step"
    found = [f"**{words.count(len(rows), 'transfer')}**, in {words.named(noun, steps)}"]
    if when is not None:
        found[0] += f"; times on {when.cluster}, {when.size}"
    head = ["from → to", "step", "chunk", "brings", *(["µs"] if when else []), "needed next"]
    found += ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows[:SHOWN].tolist():
        src, dst, step, chunk, _, op = table[row].tolist()
        brings = _content(program, carried(program, row))
        cells = [f"{src} → {dst}", str(step), str(chunk), brings + (", added" if op else "")]
        if when is not None:
            cells.append(when.text(row))
        cells.append(_use(program, _next_use(program, row)))
        found.append(f"| {' | '.join(cells)} |")
    if len(rows) > SHOWN:
        found += ["", f"and {len(rows) - SHOWN:,} more"]
    return found


def _content(program: Program, ranks: list[int]) -> str:
    if not program.collective.reduces:
        return "the block as it was sent"
    if len(ranks) == program.collective.n_ranks:
        return "the whole sum"
    return (
        f"the value of {words.named('rank', ranks)}"
        if len(ranks) == 1
        else (f"the sum of {words.named('rank', ranks)}")
    )


def _use(program: Program, row: int | None) -> str:
    if row is None:
        return "as the result"
    src, dst, step, _, line, _ = program.transfers[row].tolist()
    return f"line {line}: step {step}, {src} → {dst}"
