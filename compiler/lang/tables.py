"""tables: lark's LALR tables for languages with their own tokens."""

from __future__ import annotations

from typing import Any

from lark import Lark, Token, Transformer
from lark.lexer import Lexer

from hccc.lang.mistakes import At


class _NoLexer(Lexer):
    """Replaces lark's lexers, since tokens are fed by hand."""

    def __init__(self, _conf: object) -> None: ...

    def lex(self, lexer_state: Any, parser_state: Any) -> Any:
        """Returns no tokens."""
        return iter(())


def tables(package: str, grammar: str, builder: Transformer[Token, Any]) -> Lark:
    """Makes the parser of a grammar file in `package`; `builder` makes the value of each rule."""
    return Lark.open_from_package(
        package,
        grammar,
        parser="lalr",
        lexer=_NoLexer,
        transformer=builder,
        maybe_placeholders=False,
    )


def place(token: Token) -> At:
    """Returns the place of a token; an empty one, such as the end of a line, takes one column."""
    line, column = token.line or 1, token.column or 1
    return At(line, column, column + max(1, len(token)))
