"""parse: the text of a reduction of one's own, to its expression."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hccc.base.diagnostics import Source, Span, fail
from hccc.base.dtypes import OPS
from hccc.base.files.reading import read_text
from hccc.base.reductions.expression import (
    ALL_KINDS,
    FUNCTIONS,
    KINDS,
    TRUTH,
    Expression,
    OwnReduction,
)

if TYPE_CHECKING:
    from lark import Lark

LONGEST_TEXT = 500  # characters of a reduction
LONGEST_NAME = 24
DEEPEST = 50  # operations, one in the other
MOST = 8  # of a library
_FILE_BYTES = 1 << 16
# Macros that compilers predefine, which a name would become.
_MACROS = frozenset({"linux", "unix", "i386", "mips", "sparc", "sun", "arm", "vax"})


@lru_cache(maxsize=256)
def own(text: str) -> OwnReduction:
    """Returns the reduction of a text. Raises as `parse`."""
    return parse(Source("--op", text))


def parse(source: Source, line: int = 1) -> OwnReduction:
    """Parses line `line` of a source, a reduction, and checks what each operation is given.

    Raises:
        UserError: E330 it is none; E331 an operation is given what it does not take.
    """
    text = source.line(line)
    where = _Where(source, line)
    if len(text) > LONGEST_TEXT:
        where.refuse("E330", f"more than {LONGEST_TEXT} characters", (0, len(text)), None)
    name, top = _tree(text, where).children
    where.check_name(str(name), (name.start_pos, name.end_pos))
    expression = where.expression(top)
    if expression.makes is TRUTH:
        help = "choose a number by it: `... ? a : b`"
        where.refuse("E331", "the result is a truth value, not a number", expression.place, help)
    kinds = where.kinds(expression)
    words = " ".join(text.split("#", 1)[0].split())
    return OwnReduction(str(name), words, expression, kinds)


def _tree(text: str, where: _Where) -> Any:
    """Returns lark's tree of a text. Raises UserError E330."""
    from lark import UnexpectedCharacters, UnexpectedToken

    try:
        return _parser().parse(text)
    except UnexpectedCharacters as error:
        at = error.pos_in_stream or 0
        where.refuse("E330", f"there is no {text[at]!r} in reductions", (at, at + 1), _HELP)
    except UnexpectedToken as error:
        token: Any = error.token
        at = len(text) if token.type == "$END" else int(token.start_pos)
        what = "the text ends too early" if token.type == "$END" else f"`{token}` cannot be here"
        where.refuse("E330", what, (at, at + max(1, len(str(token)))), _HELP)


def definitions(given: str) -> list[str]:
    """Returns the texts of an option: of one reduction, or of a file with one on each line.

    Raises:
        UserError: as `parse` and `read_text`; E403 a file has none.
    """
    if ":" in given:
        return [parse(Source("--op", given)).text]
    source = Source(given, read_text(Path(given), _FILE_BYTES))
    lines = source.text.split("\n")
    found = [
        parse(source, k + 1).text for k, line in enumerate(lines) if line.split("#", 1)[0].strip()
    ]
    if not found:
        raise fail("E403", f"{given}: has no reduction", help=_HELP)
    return found


def checked_names(texts: tuple[str, ...]) -> None:
    """Raises UserError E330 for reductions of one name, or more of them than a library has."""
    names = [own(text).name for text in texts]
    if twice := [name for name in names if names.count(name) > 1]:
        help = "give each a name of its own"
        raise fail("E330", f"there are two reductions called {twice[0]}", help=help)
    if len(texts) > MOST:
        help = "make two libraries"
        raise fail("E330", f"{len(texts)} reductions; a library has at most {MOST}", help=help)


_HELP = "as in `absmax: abs(a) > abs(b) ? a : abs(b) > abs(a) ? b : max(a, b)`"


@cache
def _parser() -> Lark:
    from lark import Lark

    grammar = (files("hccc.base.reductions") / "reduction.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=True)


class _Where:
    """A line of a source, for errors in it."""

    def __init__(self, source: Source, line: int) -> None:
        self._source = source
        self._line = line

    def refuse(self, code: str, message: str, at: tuple[int, int], help: str | None) -> NoReturn:
        """Raises UserError with the place in the line."""
        span = Span(self._source, self._line, at[0] + 1, at[1] + 1)
        raise fail(code, message, span, help=help)

    def check_name(self, name: str, at: tuple[int, int]) -> None:
        """Refuses a name that kernels cannot have."""
        if name in OPS:
            self.refuse("E330", f"{name} is a reduction that there is already", at, "another name")
        lower = name == name.lower() and not name.startswith("_") and "__" not in name
        if not lower or len(name) > LONGEST_NAME or name in _MACROS or name == "all":
            help = f"small letters, digits and _, at most {LONGEST_NAME}"
            self.refuse("E330", f"a reduction cannot be called {name}", at, help)

    def expression(self, tree: Any, depth: int = 0) -> Expression:
        """Makes the expression of a tree of lark, `depth` operations below the top."""
        at = (tree.meta.start_pos, tree.meta.end_pos)
        if depth > DEEPEST:
            self.refuse("E330", f"more than {DEEPEST} operations within each other", at, None)
        if tree.data == "number":
            number = str(tree.children[0])
            if float(number) >= 2.0**63:
                self.refuse("E330", f"{number} is too large a number", at, "less than 2^63")
            return Expression("number", (), number, at)
        if tree.data == "name":
            name = str(tree.children[0])
            if name not in ("a", "b"):
                help = f"the two values are a and b; functions are {', '.join(FUNCTIONS)}"
                self.refuse("E330", f"there is no `{name}`", at, help)
            return Expression(name, (), "", at)
        given = [one for one in tree.children if one is not None]
        operation = str(tree.data)
        if operation == "call":
            operation = self._function(given.pop(0), len(given))
        made = Expression(
            operation, tuple(self.expression(one, depth + 1) for one in given), "", at
        )
        for k, part in enumerate(made.parts):
            if part.makes is not made.takes(k):
                what = f"this is {part.makes}, and {made.takes(k)} is needed here"
                self.refuse("E331", what, part.place, _REMEDY[part.makes is TRUTH])
        return made

    def _function(self, name: Any, given: int) -> str:
        """Returns the operation of a function."""
        at = (name.start_pos, name.end_pos)
        if str(name) not in FUNCTIONS:
            help = f"there are {', '.join(FUNCTIONS)}: they give the same bits on every target"
            self.refuse("E330", f"there is no function `{name}`", at, help)
        operation, takes = FUNCTIONS[str(name)]
        if takes != given:
            self.refuse("E330", f"{name} takes {takes} values, not {given}", at, None)
        return operation

    def kinds(self, expression: Expression) -> str:
        """Returns the kinds of dtypes that all operations and numbers are for."""
        left = ALL_KINDS
        for one in expression.each():
            decimal = bool(one.number) and not one.number.isdigit()
            mine = "f" if decimal else KINDS.get(one.operation, ALL_KINDS)
            common = "".join(kind for kind in left if kind in mine)
            if not common:
                what = "this is for floats only" if mine == "f" else "this is for integers only"
                other = "integers" if mine == "f" else "floats"
                help = f"the rest is for {other} only"
                self.refuse("E331", what, one.place, help)
            left = common
        return left


_REMEDY = {
    True: "`... ? x : y` makes a number of it; comparisons need brackets beside &, | and ^",
    False: "compare it, as in `a != 0`",
}
