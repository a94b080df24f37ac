"""The registry of codes: every code raised is in it, every code in it is raised and in
docs/errors.md.

Codes are found in the source as they are written there: every string constant that is one.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hccc.base.codes import CODES, TABLE, page
from hccc.base.diagnostics import InternalError, Problem, fail
from tests.test_architecture import PACKAGE, ROOT, SOURCES

CODE = re.compile(r"[EW]\d{3}")
BUILDERS = {"fail", "Problem", "Mistake", "EvaluationFault", "TooMuch", "_require", "_wrong"}
PAGE = ROOT / "docs" / "errors.md"


@cache
def _written() -> dict[str, set[str]]:
    """Returns the files (of compiler/ and runtime/) that have each code as a string."""
    found = defaultdict(set)
    for path in SOURCES:
        if path == PACKAGE / "codes.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            value = node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and CODE.fullmatch(value):
                found[value].add(path.name)
    return found


def _built() -> Iterator[tuple[Path, int, str]]:
    """Yields (file, line, first string) of every call that builds an error."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", None))
            strings = [a.value for a in node.args if isinstance(a, ast.Constant)]
            words = [x for x in strings if isinstance(x, str) and re.match(r"[EW]\d", x)]
            if name in BUILDERS and words:
                yield path, node.lineno, words[0]


def test_each_code_is_there_once_and_in_order() -> None:
    names = [code.name for code in TABLE]
    assert len(set(names)) == len(names) == len(CODES)
    for letter in "EW":
        assert (of := [name for name in names if name[0] == letter]) == sorted(of)
    assert all(CODE.fullmatch(name) for name in names)


def test_each_meaning_is_one_sentence_and_no_other_code_has_it() -> None:
    meanings = [code.meaning for code in TABLE]
    assert len(set(meanings)) == len(meanings)
    for code in TABLE:
        assert code.meaning.endswith(".") and code.meaning.count(". ") == 0, code
        assert not code.remedy or code.remedy.endswith("."), code


def test_what_is_raised_is_in_the_registry() -> None:
    assert set(_written()) <= set(CODES)
    for path, line, code in _built():
        assert code in CODES, f"{path}:{line}"


def test_what_is_in_the_registry_is_raised() -> None:
    assert set(CODES) <= set(_written())


def test_the_search_finds_calls_of_every_builder() -> None:
    """Were a builder renamed, nothing would look at its calls any more."""
    text = "".join(path.read_text() for path in SOURCES)
    assert len(list(_built())) > 250
    assert all(re.search(rf"\b{name}\(", text) for name in BUILDERS)


@pytest.mark.parametrize("code", ["E000", "E999", "X101", "", "E1010"])
def test_an_unknown_code_is_a_bug_wherever_it_is_used(code: str) -> None:
    with pytest.raises(InternalError, match="no code"):
        fail(code, "something")
    with pytest.raises(InternalError, match="no code"):
        Problem(code, "something")


def test_the_page_has_every_code(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page(), encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "docs/errors.md is not the registry's: --update-golden"
    rows = [
        line.split(" | ")[0].strip("| ") for line in text.splitlines() if line[:3] in ("| E", "| W")
    ]
    assert sorted(rows) == sorted(CODES)
