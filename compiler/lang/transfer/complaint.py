"""complaint: a friendly `Mistake` for a token that the grammar does not accept."""

from __future__ import annotations

from collections.abc import Collection

from lark import Token

from hccc.lang.mistakes import At, Mistake, clip, either
from hccc.lang.tables import place

WORDS = {
    "_NEWLINE": "the end of the line",
    "_INDENT": "an indented block",
    "_DEDENT": "the end of the block",
    "$END": "the end of the program",
    "_ASSIGN": "`=`",
    "_COLON": "`:`",
    "_COMMA": "`,`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "RSQB": "`]`",
    "NAME": "a name",
    "NUMBER": "a number",
    "TABLE": "a transfer",
    "_IN": "`in`",
}
STATEMENTS = {"_FOR", "_IF", "TABLE"}
VALUE = {"NAME", "NUMBER", "STRING", "LPAR", "LSQB"}
OPERATOR = {"COMPARE", "SIGN", "MUL", "SHIFT", "POWER", "AMP", "BAR", "CARET", "AND", "OR"}


def complaint(token: Token, before: Token | None, accepts: Collection[str]) -> Mistake:
    """Describes the mistake of `token` after `before`, when only `accepts` could follow."""
    at = place(token)
    special = _special(token, before, set(accepts))
    if special:
        code, message, help = special
        late = code == "E002" or token.type == "_DEDENT"  # the error is in the line before
        at = _end(before) if late and before is not None else at
        return Mistake(code, message, at, help)
    opened = before is not None and "RPAR" in accepts and token.line != before.line
    help = "a `)` may be missing on a line above" if opened else None
    return Mistake(
        "E001", f"expected {_expected(set(accepts))}, found {token_text(token)}", at, help
    )


def _special(
    token: Token, before: Token | None, accepts: set[str]
) -> tuple[str, str, str | None] | None:
    """Recognizes common mistakes: (code, message, help)."""
    kind, last = token.type, before.type if before is not None else ""
    if before is None:
        return "E010", "a program begins with `ResCCLAlgo(nRanks=..., ...):`", None
    if kind == "_INDENT":
        return "E004", "this line is indented, but no block begins here", None
    if accepts == {"_INDENT"} or ("_INDENT" in accepts and "$END" not in accepts):
        return "E004", "expected an indented block after the line that ends with `:`", None
    if named := _of_lists(kind, last, accepts) or _of_functions(kind, accepts):
        return named
    if kind == "AUGMENT":
        return "E001", f"`{token}` cannot stand here", "it changes one variable: `x += 1`"
    if kind == "_ASSIGN" and "COMPARE" in accepts:
        return "E001", "`=` assigns; it cannot stand here", "compare with `==`"
    if kind == "$END" and "_DEF" in accepts:
        return "E010", "a program begins with `ResCCLAlgo(nRanks=..., ...):`", None
    if "_ELSE" in accepts and "_FOR" not in accepts:
        return "E001", "this `if` has no `else`", "write `a if c else b`"
    if kind in ("_ELIF", "_ELSE"):
        return "E001", f"this `{token}` belongs to no `if`", "align it with its `if`"
    if token == "ResCCLAlgo":
        return "E001", "a file holds one program", None
    if last == "_DEDENT" and "$END" in accepts and "NAME" not in accepts:
        return "E004", "this line is outside the program", "indent it like the lines above"
    if "_COLON" in accepts and kind == "_NEWLINE":
        return "E002", "missing `:` at the end of this line", None
    if "_COMMA" in accepts and accepts & {"RPAR", "RSQB"} and kind in VALUE:
        above = before.line != token.line
        closing = "a `)` or `]` may be missing on a line above" if above else None
        return "E009", f"missing `,` before {token_text(token)}", closing
    return None


def _of_lists(kind: str, last: str, accepts: set[str]) -> tuple[str, str, str | None] | None:
    """Recognizes uses of lists that Python has and the language does not."""
    if kind in ("_ASSIGN", "AUGMENT") and last == "RSQB" and "_NEWLINE" in accepts:
        help = "write a new list with the other value, or use a variable for it"
        return "E001", "a list never changes: its elements cannot be assigned", help
    if kind == "_COLON" and "RSQB" in accepts:
        return "E008", "slices are not in the language", "write the list's elements, `[x[1], x[2]]`"
    if kind == "_FOR" and "RSQB" in accepts:
        return "E008", "list comprehensions are not in the language", "compute it where it is used"
    if kind == "_IN":
        return "E008", "`in` is only for loops", "loop over the list, or compare"
    return None


def _of_functions(kind: str, accepts: set[str]) -> tuple[str, str, str | None] | None:
    """Recognizes uses of functions that Python has and the language does not."""
    if (kind == "_DEDENT" or kind in STATEMENTS) and "_RETURN" in accepts:
        return _unreturned(kind)
    if kind == "LPAR" and accepts == {"_ASSIGN", "AUGMENT", "_COMMA"}:
        return _unreturned("NAME")
    if kind == "_ASSIGN" and accepts == {"_COMMA", "RPAR"}:
        return "E008", "a parameter has no default", "give the value in every call"
    if kind == "_RETURN":
        return "E008", "`return` is only in functions, which stand above the header", None
    if kind == "_DEF":
        return (
            "E001",
            "functions stand above the header",
            "one program is one `def ResCCLAlgo(...)`",
        )
    return None


def _unreturned(kind: str) -> tuple[str, str, str | None]:
    """Describes the mistake in a function that goes on with `kind` where it must return."""
    help = "a function is assignments, and a `return` at its end"
    if kind == "_DEDENT":
        return "E015", "this function returns nothing", help
    if kind in ("_FOR", "_IF"):
        help += "; `return a if c else b` chooses"
        return "E015", "there are no loops and no `if` in a function", help
    return "E015", "there are no transfers and no calls alone in a function", help


def _expected(accepts: set[str]) -> str:
    words = []
    if accepts >= VALUE:
        words.append("a value")
        accepts = accepts - VALUE - {"SIGN", "TILDE", "NOT"}
    if accepts & OPERATOR:
        words.append("an operator")
    if "_FOR" in accepts:
        words.append("a statement")
        accepts = accepts - {"TABLE"}
    words += [WORDS[kind] for kind in WORDS if kind in accepts]
    return either(words) or "nothing"


def token_text(token: Token) -> str:
    """Writes a token as messages call it."""
    return WORDS[token.type] if not len(token) else f"`{clip(token)}`"


def _end(token: Token) -> At:
    line, column = token.line or 1, (token.column or 1) + len(token)
    return At(line, column, column + 1)
