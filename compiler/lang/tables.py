"""lark's LALR tables for tokens that a language makes itself; shared by all languages."""

from __future__ import annotations

from typing import Any

from lark import Lark, Token, Transformer
from lark.lexer import Lexer

from hccc.lang.mistakes import At


class _NoLexer(Lexer):
    """Tokens are fed by hand; lark's own lexers would want patterns for them."""

    def __init__(self, _conf: object) -> None: ...

    def lex(self, lexer_state: Any, parser_state: Any) -> Any:
        """No tokens of its own."""
        return iter(())


def tables(package: str, grammar: str, builder: Transformer[Token, Any]) -> Lark:
    """The parser of a grammar file in `package`; `builder` makes a value of each rule."""
    return Lark.open_from_package(
        package,
        grammar,
        parser="lalr",
        lexer=_NoLexer,
        transformer=builder,
        maybe_placeholders=False,
    )


def place(token: Token) -> At:
    """Where a token stands; one that is empty, as the end of a line is, takes one column."""
    line, column = token.line or 1, token.column or 1
    return At(line, column, column + max(1, len(token)))
