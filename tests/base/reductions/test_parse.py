"""Texts of reductions of one's own: what they are for, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.base.dtypes import named, reduces
from hccc.base.reductions.parse import (
    DEEPEST,
    LONGEST_TEXT,
    MOST,
    checked_names,
    definitions,
    own,
    parse,
)

ABSMAX = "absmax: abs(a) > abs(b) ? a : abs(b) > abs(a) ? b : max(a, b)"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (ABSMAX, "iuf"),
        ("gcd_like: min(a, b)", "iuf"),
        ("mask: a & b | ~a & b", "iu"),
        ("halves: a / 2 + b / 2", "f"),
        ("offset: a + b - 0.5", "f"),
        ("both: a > 0 && !(b <= 0) || a == b ? a : b", "iuf"),
    ],
)
def test_kinds_are_those_of_all_operations(text: str, kinds: str) -> None:
    assert own(text).kinds == kinds
    assert own(text).name == named(text)
    assert reduces("float16", text) is ("f" in kinds)
    assert reduces("int16", text) is ("i" in kinds)
    assert not reduces("complex64", text) and not reduces("bool", text)


def test_numbers_must_fit_the_dtype() -> None:
    fits = {d: reduces(d, "low: (a | b) & 200") for d in ("int8", "uint8", "int16", "float32")}
    assert fits == {"int8": False, "uint8": True, "int16": True, "float32": False}
    assert reduces("float16", "far: a + b + 70000") and not reduces("int16", "far: a + b + 70000")


def test_a_text_is_kept_in_one_line_without_its_comment() -> None:
    text = parse(Source("x", "\n  plus :  a+ b   # the sum"), 2).text
    assert text == "plus : a+ b" and own(text).text == text


@pytest.mark.parametrize(
    ("text", "code", "column", "told"),
    [
        ("plus a + b", "E330", 6, "`a` cannot be here"),
        ("plus: a +", "E330", 10, "ends too early"),
        ("plus: a $ b", "E330", 9, "'$'"),
        ("plus: a + 1x", "E330", 11, "'1'"),
        ("plus: a = b", "E330", 9, "'='"),
        ("plus: a + c", "E330", 11, "there is no `c`"),
        ("plus: a; b", "E330", 8, "';'"),
        ('plus: a + "b"', "E330", 11, "'\"'"),
        ("plus: exp(a)", "E330", 7, "no function `exp`"),
        ("plus: max(a)", "E330", 7, "takes 2 values, not 1"),
        ("plus: abs()", "E330", 7, "takes 1 values, not 0"),
        ("plus: a + 1e19", "E330", 11, "too large"),
        ("sum: a + b", "E330", 1, "there is already"),
        ("Plus: a + b", "E330", 1, "cannot be called Plus"),
        ("linux: a + b", "E330", 1, "cannot be called linux"),
        ("a__b: a + b", "E330", 1, "cannot be called a__b"),
        ("plus: a < b < a", "E331", 7, "this is a truth value"),
        ("plus: a > b", "E331", 7, "the result is a truth value"),
        ("plus: a ? a : b", "E331", 7, "this is a number"),
        ("plus: a & b == b ? a : b", "E331", 11, "this is a truth value"),
        ("plus: !a ? a : b", "E331", 8, "this is a number"),
        ("plus: a / b + (a & b)", "E331", 16, "this is for integers only"),
        ("plus: (a ^ b) + 0.5", "E331", 17, "this is for floats only"),
    ],
)
def test_a_mistake_has_its_place(text: str, code: str, column: int, told: str) -> None:
    with pytest.raises(UserError) as error:
        own(text)
    problem = error.value.problem
    assert problem.code == code and told in problem.message
    assert problem.span and problem.span.column == column
    assert f"\n    1 | {text}\n" in str(error.value)


def test_a_file_has_one_on_each_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.op"
    file.write_text(f"# mine\n\n{ABSMAX}  # of both\nplus: a + b\n")
    assert definitions(str(file)) == [ABSMAX, "plus: a + b"]
    file.write_text("plus: a + b\nless: a <\n")
    with pytest.raises(UserError, match="ends too early") as error:
        definitions(str(file))
    assert str(error.value).startswith(f"{file}:2:10: error[E330]")


def test_a_library_has_few_of_them_and_each_name_once() -> None:
    checked_names(("x: a + b", "y: a + b"))
    with pytest.raises(UserError, match="two reductions called x"):
        checked_names(("x: a + b", "y: a + b", "x: max(a, b)"))
    with pytest.raises(UserError, match=f"at most {MOST}"):
        checked_names(tuple(f"x{k}: a + b" for k in range(MOST + 1)))
    with pytest.raises(UserError, match="more than"):
        own(f"x: {'(' * LONGEST_TEXT}a")


def test_deep_texts_are_no_trouble() -> None:
    assert len(list(own(f"x: {'-' * DEEPEST}a").expression.each())) == DEEPEST + 1
    assert own(f"x: {'(' * 200}a{')' * 200}").expression.operation == "a"
    with pytest.raises(UserError, match="within each other"):
        own(f"x: {'-' * (LONGEST_TEXT - 4)}a")
