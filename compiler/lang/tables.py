"""tables: lark's LALR tables for languages with their own tokens.

Making them takes longer than reading most programs, so they ship: `scripts/tables` writes them.
"""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from typing import Any, cast

import lark
from lark import Lark, Token, Transformer
from lark.grammar import Rule
from lark.lexer import Lexer, TerminalDef

from hccc.lang.mistakes import At


class _NoLexer(Lexer):
    """Replaces lark's lexers, since tokens are fed by hand."""

    def __init__(self, _conf: object) -> None: ...

    def lex(self, lexer_state: Any, parser_state: Any) -> Any:
        """Returns no tokens."""
        return iter(())


def tables(package: str, grammar: str, builder: Transformer[Token, Any]) -> Lark:
    """Makes the parser of a grammar file in `package`; `builder` makes the value of each rule.

    The tables are those that ship with the grammar, if this lark made them of it.
    """
    folder = files(package)
    text = (folder / grammar).read_text("utf-8")
    found = json.loads((folder / shipped_name(grammar)).read_text("utf-8"), object_hook=_numbered)
    if found["of"] != origin(text):
        return _made(text, builder)
    data, memo = found["data"], found["memo"]
    data["options"]["lexer"] = data["parser"]["lexer_conf"]["lexer_type"] = _NoLexer
    parser: Any = Lark.__new__(Lark)
    return cast(Lark, parser._load({"data": data, "memo": memo}, transformer=builder))


def shipped_name(grammar: str) -> str:
    """Returns the name of the file with the tables of a grammar."""
    return grammar.removesuffix(".lark") + ".tables.json"


def shipped_text(grammar: str) -> str:
    """Returns what that file holds, of the text of a grammar: data, of which nothing is run."""
    data, memo = _made(grammar, None).memo_serialize([TerminalDef, Rule])
    data["options"] |= {"lexer": None, "import_paths": [], "source_path": None}
    data["parser"]["lexer_conf"]["lexer_type"] = None
    found = {"of": origin(grammar), "data": data, "memo": memo}
    return json.dumps(found, separators=(",", ":"), sort_keys=True) + "\n"


def origin(grammar: str) -> list[str]:
    """Returns what tables depend on: the version of lark, and a digest of the grammar's text."""
    return [lark.__version__, hashlib.sha256(grammar.encode()).hexdigest()]


def _made(grammar: str, builder: Transformer[Token, Any] | None) -> Lark:
    return Lark(
        grammar, parser="lalr", lexer=_NoLexer, transformer=builder, maybe_placeholders=False
    )


def _numbered(item: dict[str, Any]) -> dict[Any, Any]:
    """Makes numbers of keys that were numbers before JSON made them text."""
    return {int(key) if key.isdigit() else key: value for key, value in item.items()}


def place(token: Token) -> At:
    """Returns the place of a token; an empty one, such as the end of a line, takes one column."""
    line, column = token.line or 1, token.column or 1
    return At(line, column, column + max(1, len(token)))
