"""Text to `syntax.Algorithm`: lark's LALR tables fed token by token, the tree built on the way.

Nothing here recurses, so depth is limited by decision (`MAX_DEPTH`), not by the interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedToken
from lark.lexer import Lexer

from hccc.lang.complaint import clip, complaint, did_you_mean, found
from hccc.lang.transfer.syntax import (
    MAX_DEPTH,
    Algorithm,
    Assign,
    At,
    Call,
    Chain,
    Expr,
    For,
    If,
    Link,
    Logic,
    Mistake,
    Name,
    Number,
    Pair,
    Prefix,
    Stmt,
    Table,
    Text,
    Transfer,
    names_in,
)
from hccc.lang.transfer.tokens import TableToken, Tokenizer


def parse_text(text: str) -> Algorithm:
    """The tree of a whole program. Raises `Mistake`. Linear in the text."""
    parser = _parser().parse_interactive("")
    before: Token | None = None
    try:
        for token in Tokenizer(text).tokens():
            if before is None or before.type == "_DEF":
                _check_beginning(token)
            parser.feed_token(token)
            before = token
        algorithm: Algorithm = parser.feed_eof(before)  # type: ignore[no-untyped-call]
    except UnexpectedToken as error:
        accepts: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
        raise complaint(error.token, before, accepts) from None
    return algorithm


def _check_beginning(token: Token) -> None:
    if token.type != "_DEF" and token != "ResCCLAlgo":
        message = f"a program begins with ResCCLAlgo, not {found(token)}"
        raise Mistake("E010", message, _at(token), f"for example `{HEADER}`")


class _NoLexer(Lexer):
    """Tokens are fed by hand; lark's own lexers would want patterns for them."""

    def __init__(self, _conf: object) -> None: ...

    def lex(self, lexer_state: Any, parser_state: Any) -> Any:
        """No tokens of its own."""
        return iter(())


@cache
def _parser() -> Lark:
    return Lark.open_from_package(
        "hccc.lang.transfer",
        "transfer.lark",
        parser="lalr",
        lexer=_NoLexer,
        transformer=_Builder(),
        maybe_placeholders=False,
    )


class _Builder(Transformer[Token, Any]):
    """What each rule of transfer.lark becomes; a method per alias."""

    def number(self, items: list[Token]) -> Number:
        return Number(int(items[0], 0), _at(items[0]))

    def string(self, items: list[Token]) -> Text:
        return Text(items[0][1:-1], _at(items[0]))

    def name(self, items: list[Token]) -> Expr:
        word, at = str(items[0]), _at(items[0])
        return Number(int(word == "True"), at) if word in ("True", "False") else Name(word, at)

    def group(self, items: list[Any]) -> Expr:
        expr: Expr = replace(_value(items[1]), at=_at(items[0]).to(_at(items[2])))
        return expr

    def prefix(self, items: list[Any]) -> Expr:
        op, operand = str(items[0]), _value(items[1])
        at = _at(items[0]).to(operand.at)
        if op == "-" and isinstance(operand, Number):
            return Number(-operand.value, at)
        return Prefix(op, operand, at, _deeper([operand], at))

    def chain(self, items: list[Any]) -> Chain:
        first, links = _value(items[0]), []
        at = first.at
        for op, operand in zip(items[1::2], items[2::2], strict=True):
            end = _value(operand).at
            at = at.to(end) if at.line == end.line else end
            links.append(Link(str(op), operand, at))
        return Chain(first, tuple(links), first.at.to(at), _deeper(items[::2], first.at))

    def compare(self, items: list[Any]) -> Chain:
        if len(items) > 3:
            help = "write `a < b and b < c`"
            raise Mistake("E001", "comparisons cannot be chained", _at(items[3]), help)
        return self.chain(items)

    def logic(self, items: list[Any]) -> Logic:
        operands = [_value(item) for item in items[::2]]
        at = operands[0].at.to(operands[-1].at)
        reads = frozenset[str]().union(*map(names_in, operands[1:]))
        return Logic(str(items[1]), operands, reads, at, _deeper(operands, at))

    def call(self, items: list[Any]) -> Call:
        function, args = str(items[0]), items[2:-1]
        at = _at(items[0]).to(_at(items[-1]))
        if function not in ("range", "transfer", "min", "max"):
            raise _unknown_function(items[0])
        if function in ("min", "max"):
            if len(args) < 2:
                raise Mistake("E013", f"{function}() needs at least two values", at)
            args = [_value(arg) for arg in args]
        return Call(function, args, at, _deeper(args, at))

    def assign(self, items: list[Any]) -> Assign:
        if str(items[0]) in RESERVED:
            message = f"`{items[0]}` is a word of the language and cannot be a variable"
            raise Mistake("E008", message, _at(items[0]))
        return Assign(str(items[0]), _value(items[1]))

    def expression(self, items: list[Any]) -> Transfer:
        match items[0]:
            case Call("transfer", args, at):
                return _transfer(args, at)
            case Name("transfer", at):
                raise Mistake("E013", f"transfer needs its values: `{TRANSFER}`", at)
        help = f"a statement is `name = value`, `for`, `if`, or `{TRANSFER}`"
        raise Mistake("E001", "this line does nothing", items[0].at, help)

    def table(self, items: list[TableToken]) -> Table:
        return items[0].table

    def block(self, items: list[Stmt]) -> Sequence[Stmt]:
        return tuple(items)

    def body(self, items: list[Sequence[Stmt]]) -> Sequence[Stmt]:
        return items[0] if items else ()

    def loop(self, items: list[Any]) -> For:
        target, over, body = items
        if str(target) in RESERVED:
            message = f"`{target}` is a word of the language and cannot be a variable"
            raise Mistake("E008", message, _at(target))
        if not (isinstance(over, Call) and over.function == "range"):
            help = "`for i in range(n):`, or range(first, end) or range(first, end, stride)"
            raise Mistake("E013", "a loop runs over range(...)", over.at, help)
        return For(str(target), *_bounds(over), body, over.at)

    def choice(self, items: list[Any]) -> If:
        pairs = [(_value(c), b) for c, b in zip(items[0::2], items[1::2], strict=False)]
        return If(tuple(pairs), items[-1] if len(items) % 2 else ())

    def pair(self, items: list[Any]) -> Pair:
        return Pair(str(items[0]), _at(items[0]), items[1])

    def start(self, items: list[Any]) -> Algorithm:
        pairs = tuple(item for item in items if isinstance(item, Pair))
        return Algorithm(pairs, items[-1], _at(items[0]))


HEADER = 'ResCCLAlgo(nRanks=8, OpType="Allreduce"):'
TRANSFER = "transfer(srcRank, dstRank, step, chunkId, recv)"
RESERVED = frozenset({"range", "transfer", "min", "max", "recv", "rrc", "True", "False"})


def _at(token: Token) -> At:
    line, column = token.line or 1, token.column or 1
    return At(line, column, column + len(token))


def _value(expr: Expr) -> Expr:
    """`expr`, where a number is needed."""
    match expr:
        case Text(_, at):
            raise Mistake("E014", "a string cannot be used as a number", at)
        case Call("range" as function, _, at) | Call("transfer" as function, _, at):
            use = "after `for ... in`" if function == "range" else "as a statement of its own"
            raise Mistake("E013", f"{function}(...) can only stand {use}", at)
        case Name("recv" as word, at) | Name("rrc" as word, at):
            raise Mistake("E014", f"`{word}` can only be the last value of a transfer", at)
    return expr


def _deeper(operands: Sequence[Expr], at: At) -> int:
    depth = 1 + max((operand.depth for operand in operands), default=0)
    if depth > MAX_DEPTH:
        help = "give parts of it a name, on lines before"
        raise Mistake("E006", f"this expression nests more than {MAX_DEPTH} deep", at, help)
    return depth


def _transfer(args: Sequence[Expr], at: At) -> Transfer:
    if len(args) != 5:
        message = f"transfer takes 5 values, this has {len(args)}"
        raise Mistake("E013", message, at, f"write `{TRANSFER}`, with `recv` or `rrc` at the end")
    op = args[4]
    if isinstance(op, Name) and op.id in ("recv", "rrc"):
        return Transfer([_value(arg) for arg in args[:4]], op.id == "rrc", op.at, at)
    if isinstance(op, Text) and op.value in ("recv", "rrc"):
        raise Mistake("E014", f"write {op.value} without quotes", op.at)
    help = "recv copies the chunk, rrc reduces it into the destination's"
    raise Mistake("E014", "the last value of a transfer is `recv` or `rrc`", op.at, help)


def _bounds(call: Call) -> tuple[Expr, Expr, Expr]:
    args = [_value(arg) for arg in call.args]
    match args:
        case [stop]:
            return Number(0, call.at), stop, Number(1, call.at)
        case [start, stop]:
            return start, stop, Number(1, call.at)
        case [start, stop, step]:
            return start, stop, step
    raise Mistake("E013", f"range takes 1 to 3 values, this has {len(args)}", call.at)


def _unknown_function(token: Token) -> Mistake:
    known = {"range", "transfer", "min", "max"}
    near = [name for name in known if name == token.lower()] or did_you_mean(str(token), known)
    help = f"did you mean `{near[0]}`?" if near else "there are transfer, range, min and max"
    return Mistake("E013", f"there is no function `{clip(token)}`", _at(token), help)
