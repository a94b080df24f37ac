"""diagnosis: what `hccc check` would say of a text, as plain values with their places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from hccc.api.functions import check
from hccc.base.diagnostics import Problem, Source, Span, UserError, fail
from hccc.driver.inputs import ProgramInput
from hccc.editors.subject import Text, read

NO_VENDORS = "only the syntax is checked: a job's steps are proved on the vendor clusters of one"
NAME_ONE = "name it in a comment, `# cluster: FILE`, or in the editor's settings"


class Place(TypedDict):
    """A place in a text: line and columns from 1, `end` exclusive."""

    line: int
    column: int
    end: int


class NoteFound(TypedDict):
    """A note of a problem; place: None where it is in no text, or in another."""

    text: str
    place: Place | None


class Found(TypedDict):
    """A problem as an editor shows it. severity: `error`, `warning` or `information`."""

    code: str
    severity: str
    message: str
    place: Place
    notes: list[NoteFound]


def mistakes(text: Text) -> list[Found]:
    """Finds what is wrong before anything is proved."""
    try:
        subject = read(text)
    except UserError as error:
        return _found(text, [error.problem])
    if text.kind == "job" and subject.job is None:
        problem = fail("E482", NO_VENDORS, help=NAME_ONE).problem
        return [{**one, "severity": "information"} for one in _found(text, [problem])]
    return []


def proofs(text: Text) -> list[Found]:
    """Finds the first proof of a readable program that fails, and its warnings. The steps of a job
    are proved by reading it."""
    subject = read(text)
    if subject.job is not None or subject.program is None:
        return []
    try:
        return _found(text, check(ProgramInput(subject.program)).warnings)
    except UserError as error:
        return _found(text, [error.problem])


def unproved(text: Text, seconds: float) -> list[Found]:
    """Says that the proofs of a program took too long to go on."""
    message = f"not proved as you type: that takes more than {seconds:g} s; `hccc check` proves it"
    first = _first_line(text.source)
    return [_one(first, "", "information", message, [])]


def _found(text: Text, problems: Iterable[Problem]) -> list[Found]:
    source = text.source
    return [_of(source, problem) for problem in problems]


def _of(source: Source, problem: Problem) -> Found:
    notes: list[NoteFound] = []
    for note in problem.notes:
        here = note.span is not None and note.span.source.text == source.text
        far = f"{note.span}: " if note.span and not here else ""
        notes.append({"text": far + note.text, "place": _place(note.span) if here else None})
    here = problem.span is None or problem.span.source.text == source.text
    message = problem.message if here else f"{problem.span}: {problem.message}"
    message += f"\nhelp: {problem.help}" if problem.help else ""
    place = _place(problem.span) if here else None
    return _one(place or _first_line(source), problem.code, problem.severity, message, notes)


def _one(place: Place, code: str, severity: str, message: str, notes: list[NoteFound]) -> Found:
    return {
        "code": code,
        "severity": severity,
        "message": message,
        "place": place,
        "notes": notes,
    }


def _place(span: Span | None) -> Place | None:
    return {"line": span.line, "column": span.column, "end": span.end} if span else None


def _first_line(source: Source) -> Place:
    """Returns the first line that is neither empty nor a comment."""
    lines = source.text.split("\n")
    of_code = (n for n, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#")
    number = next(of_code, 1)
    return {"line": number, "column": 1, "end": len(source.line(number)) + 1}
