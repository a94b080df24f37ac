"""tokens: text to tokens: indentation as in Python, and printed transfers a thousand at a time.

A printed Program has a line per transfer, millions of them. Runs of such lines (`ROW`) become one
TABLE token holding a NumPy array, read at some 60 ns a number; everything else is one token each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from lark import Token

from hccc.lang.mistakes import At, Mistake
from hccc.lang.tables import place
from hccc.lang.transfer.syntax import TransferTable

MAX_TOKENS = 1 << 18
MAX_BRACKETS = 200
MAX_BLOCKS = 64
TABLE_ROWS = 4  # shorter runs of literal transfers are ordinary statements

TOKEN = re.compile(
    r"""(?P<skip>[ \t\f]+|\#[^\n]*)
      | (?P<newline>\r?\n)
      | (?P<number>[0-9][0-9A-Za-z_]*(?:\.[0-9A-Za-z_]*)?|\.[0-9][0-9A-Za-z_]*)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<string>"[^"\n]*"|'[^'\n]*')
      | (?P<op>(?:\*\*|//|<<|>>|[-+*/%&|^])=?|<=|>=|==|!=|[~<>=(),:\[\]])""",
    re.VERBOSE,
)
INDENT = re.compile(r"[ \t\f]*")
_LITERAL = r"[ \t]*(0|[1-9][0-9]{0,17})[ \t]*,"
ROW = re.compile(
    rf"([ \t]*)transfer[ \t]*\({_LITERAL * 4}[ \t]*(recv|rrc)[ \t]*\)[ \t]*(?:\r?\n|\Z)"
)
INTEGER = re.compile(r"0[xX](_?[0-9a-fA-F])+|0(_?0)*|[1-9](_?[0-9])*")
MAX_DIGITS = 64

OPERATORS = {
    **dict.fromkeys(["<", "<=", ">", ">=", "==", "!="], "COMPARE"),
    **dict.fromkeys(["+", "-"], "SIGN"),
    **dict.fromkeys(["*", "/", "//", "%"], "MUL"),
    **dict.fromkeys(["<<", ">>"], "SHIFT"),
    **{"**": "POWER", "&": "AMP", "|": "BAR", "^": "CARET", "~": "TILDE"},
    **{"=": "_ASSIGN", "(": "LPAR", ")": "RPAR", ",": "_COMMA", ":": "_COLON"},
    **{"[": "LSQB", "]": "RSQB"},
    **{
        f"{op}=": "AUGMENT"
        for op in ["+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^"]
    },
}
OPENS = {")": "(", "]": "["}
KEYWORDS = {
    **{word: f"_{word.upper()}" for word in ("def", "return", "for", "in", "if", "elif", "else")},
    **{word: word.upper() for word in ("and", "or", "not")},
}
_STATEMENTS = "the language has assignments, `for ... in range(...)`, `if` and `transfer(...)`"
_ALONE = "a program stands alone; for a script of Python's: `hccc launch -n RANKS SCRIPT`"
NOT_OURS = {
    "while": "a program always terminates; use `for i in range(...):`",
    "break": "a loop runs to its end; guard its body with `if`",
    "continue": "guard the rest of the loop's body with `if`",
    "import": _ALONE,
    "from": _ALONE,
    "pass": "leave the block out",
    "is": "compare with `==`",
    "None": "everything is an integer or a list",
    **dict.fromkeys(["as", "assert", "async", "await", "class", "del", "global"], _STATEMENTS),
    **dict.fromkeys(["except", "finally", "nonlocal", "raise", "try", "with"], _STATEMENTS),
    **dict.fromkeys(["lambda", "yield"], _STATEMENTS),
}


class TableToken(Token):
    """A TABLE token; `table` has the rows."""

    __slots__ = ("table",)
    table: TransferTable


@dataclass(slots=True)
class Tokenizer:
    """The position in a text. One use: `Tokenizer(text).tokens()`."""

    text: str
    pos: int = 0
    line: int = 1
    line_start: int = 0
    brackets: list[tuple[str, At]] = field(default_factory=list)  # the open ones
    # (column with tabs to 8, column with tabs to 1): Python's two rulers, which must agree.
    indents: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    def tokens(self) -> Iterator[Token]:
        """Yields all tokens. Raises `Mistake` at text that is no token, or bad indentation."""
        if self.text.startswith("\ufeff"):
            self.pos = 1
        for count, token in enumerate(self._all()):
            if count == MAX_TOKENS:
                raise Mistake(
                    "E007",
                    f"this program is too long: more than {MAX_TOKENS:,} words",
                    place(token),
                    "write transfers in loops, or one per line as `transfer(0, 1, 0, 0, recv)`",
                )
            yield token

    def _all(self) -> Iterator[Token]:
        fresh, headed = True, False
        while self.pos < len(self.text):
            if fresh:
                if self._skip_blank_line():
                    continue
                yield from self._indentation()
                fresh = False
                if headed and (table := self._table()):
                    yield table
                    fresh = True
                    continue
            token = self._next()
            if token is None:
                continue
            fresh = token.type == "_NEWLINE"
            headed |= fresh
            yield token
        yield from self._end(fresh)

    def _end(self, fresh: bool) -> Iterator[Token]:
        if self.brackets:
            opened, at = self.brackets[-1]
            raise Mistake("E001", f"this `{opened}` is never closed", at)
        if not fresh:
            yield self._token("_NEWLINE", "", self.pos)
        for _ in self.indents[1:]:
            yield self._token("_DEDENT", "", self.pos)

    def _token(self, kind: str, value: str, start: int) -> Token:
        column = start - self.line_start + 1
        return Token(kind, value, start, self.line, column, self.line, column + len(value))

    def _here(self, start: int, length: int = 1) -> At:
        column = start - self.line_start + 1
        return At(self.line, column, column + length)

    def _newline(self, end: int) -> None:
        self.line, self.line_start, self.pos = self.line + 1, end, end

    def _skip_blank_line(self) -> bool:
        match = INDENT.match(self.text, self.pos)
        end = match.end() if match else self.pos
        rest = self.text[end : end + 2]
        if rest and rest[0] not in "#\n" and rest != "\r\n":
            return False
        newline = self.text.find("\n", end)
        self._newline(len(self.text) if newline < 0 else newline + 1)
        return True

    def _indentation(self) -> Iterator[Token]:
        match = INDENT.match(self.text, self.pos)
        blank = match.group() if match else ""
        start, self.pos = self.pos, self.pos + len(blank)
        wide = len(blank.expandtabs(8)), len(blank)
        at = self._here(start, max(1, len(blank)))
        if wide[0] > self.indents[-1][0]:
            self._check_tabs(wide[1] > self.indents[-1][1], at)
            if len(self.indents) > MAX_BLOCKS:
                raise Mistake("E006", f"blocks nest more than {MAX_BLOCKS} deep", at)
            self.indents.append(wide)
            yield self._token("_INDENT", "", self.pos)
        while wide[0] < self.indents[-1][0]:
            self.indents.pop()
            yield self._token("_DEDENT", "", self.pos)
        if wide[0] != self.indents[-1][0]:
            raise Mistake(
                "E004",
                "this line's indentation matches no block above it",
                at,
                "indent it exactly like the line it belongs with",
            )
        self._check_tabs(wide[1] == self.indents[-1][1], at)

    def _check_tabs(self, consistent: bool, at: At) -> None:
        if not consistent:
            raise Mistake(
                "E005",
                "tabs and spaces are mixed so that the indentation is ambiguous",
                at,
                "indent with spaces only",
            )

    def _next(self) -> Token | None:
        start = self.pos
        match = TOKEN.match(self.text, start)
        if match is None:
            raise self._stray()
        self.pos, value = match.end(), match.group()
        match match.lastgroup:
            case "skip":
                return None
            case "newline":
                token = None if self.brackets else self._token("_NEWLINE", "", start)
                self._newline(self.pos)
                return token
            case "number":
                self._check_number(value, self._here(start, len(value)))
                return self._token("NUMBER", value, start)
            case "string":
                return self._token("STRING", value, start)
            case "name":
                if value in NOT_OURS:
                    at = self._here(start, len(value))
                    raise Mistake("E008", f"`{value}` is not in the language", at, NOT_OURS[value])
                return self._token(KEYWORDS.get(value, "NAME"), value, start)
            case _:
                self._count_brackets(value, self._here(start))
                return self._token(OPERATORS[value], value, start)

    def _count_brackets(self, value: str, at: At) -> None:
        if value in OPENS.values():
            self.brackets.append((value, at))
            if len(self.brackets) > MAX_BRACKETS:
                raise Mistake("E006", f"brackets nest more than {MAX_BRACKETS} deep", at)
        elif value in OPENS:
            if not self.brackets:
                raise Mistake("E001", f"this `{value}` closes nothing", at)
            opened, place = self.brackets.pop()
            if opened != OPENS[value]:
                help = f"the `{opened}` in line {place.line}, column {place.column} is still open"
                raise Mistake("E001", f"this `{value}` closes another kind of bracket", at, help)

    def _check_number(self, value: str, at: At) -> None:
        if "." in value or re.fullmatch(r"[0-9_]+[eE][0-9]*", value):
            help = "numbers are integers; `/` is exact division and `//` rounds down"
            raise Mistake("E003", f"{value[:40]} is not an integer", at, help)
        if len(value) > MAX_DIGITS:
            raise Mistake("E103", "this number does not fit in 64 bits", at)
        if not INTEGER.fullmatch(value):
            help = "write it in decimal without leading zeros, or as 0x..."
            raise Mistake("E003", f"`{value}` is neither a number nor a name", at, help)

    def _stray(self) -> Mistake:
        char, at = self.text[self.pos], self._here(self.pos)
        if char in "\"'":
            return Mistake("E003", "this string does not end on its line", at)
        helps = {
            "\\": "a line continues by itself inside parentheses",
            ";": "write one statement per line",
            "!": "write `not x`, or `a != b`",
            "{": "there are lists `[...]`, no sets or dictionaries",
            "}": "there are lists `[...]`, no sets or dictionaries",
        }
        shown = char if char.isprintable() else f"U+{ord(char):04X}"
        return Mistake("E003", f"`{shown}` is not in the language", at, helps.get(char))

    def _table(self) -> TableToken | None:
        begin = self.line_start
        match, rows, end, indent = ROW.match(self.text, begin), 0, begin, None
        while match and indent in (None, match.group(1)):
            indent, rows, end = match.group(1), rows + 1, match.end()
            match = ROW.match(self.text, end) if end < len(self.text) else None
        if rows < TABLE_ROWS:
            return None
        token = TableToken("TABLE", "transfer", self.pos, self.line, self.pos - begin + 1)
        at = self._here(self.pos, len("transfer"))
        line = np.arange(self.line, self.line + rows, dtype=np.int32)
        places = partial(_places, self.text, begin, self.line)
        rows_of = TransferTable(_columns(self.text[begin:end], rows), line, at, places)
        token.table = rows_of  # pyright: ignore[reportAttributeAccessIssue]
        self.pos, self.line, self.line_start = end, self.line + rows, end
        return token


_TO_BLANKS = bytes(c if chr(c).isdigit() and c < 128 else 32 for c in range(256))


def _columns(text: str, rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    digits = text.replace("recv", "0").replace("rrc", "1").encode("ascii").translate(_TO_BLANKS)
    return np.fromstring(digits.decode("ascii"), np.int64, sep=" ").reshape(rows, 5)


def _places(text: str, begin: int, line: int, row: int) -> list[At]:
    """Returns the places of the five values of row `row`, of a table that begins at `begin` in
    `line`."""
    for _ in range(row):
        begin = text.index("\n", begin) + 1
    match = ROW.match(text, begin)
    spans = [match.span(group) for group in range(2, 7)] if match else []
    return [At(line + row, a - begin + 1, b - begin + 1) for a, b in spans]
