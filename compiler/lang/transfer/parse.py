"""parse: text to `syntax.ProgramSyntax`: lark's LALR tables fed token by token, building the tree.

Nothing here recurses, so depth is limited by `MAX_DEPTH`, not by the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedToken

from hccc.lang.mistakes import At, Mistake, clip
from hccc.lang.tables import place, tables
from hccc.lang.transfer.calls import (
    OPS,
    RESERVED,
    TRANSFER,
    arguments,
    check_call,
    steps,
    transfer,
    value,
)
from hccc.lang.transfer.complaint import complaint
from hccc.lang.transfer.preamble import NameToken, program_tokens
from hccc.lang.transfer.syntax import (
    MAX_DEPTH,
    Assign,
    CallExpr,
    Chain,
    ChainLink,
    Conditional,
    Expr,
    For,
    FunctionDef,
    If,
    Index,
    Items,
    Keyword,
    Logic,
    Name,
    NumberExpr,
    Pair,
    Prefix,
    ProgramSyntax,
    Stmt,
    StringExpr,
    TransferStmt,
    TransferTable,
    names_in,
    varying_elements,
)
from hccc.lang.transfer.tokens import TableToken


def parse_text(text: str) -> ProgramSyntax:
    """Parses a whole program. Raises `Mistake`. Linear in the text."""
    return parsed(_parser(), program_tokens(text))


def parsed(parser: Lark, tokens: Iterable[Token]) -> ProgramSyntax:
    """Parses the tokens of a whole text. Raises `Mistake`. Linear in them."""
    state = parser.parse_interactive("")
    before: Token | None = None
    try:
        for token in tokens:
            state.feed_token(token)
            before = token
        syntax: ProgramSyntax = state.feed_eof(before)  # type: ignore[no-untyped-call]
    except UnexpectedToken as error:
        accepts: set[str] = state.accepts()  # type: ignore[no-untyped-call]
        raise complaint(error.token, before, accepts) from None
    return syntax


@cache
def _parser() -> Lark:
    return tables("hccc.lang.transfer", "transfer.lark", SyntaxBuilder())


class SyntaxBuilder(Transformer[Token, Any]):
    """Makes the value of each rule of transfer.lark; a method per alias."""

    def number(self, items: list[Token]) -> NumberExpr:
        return NumberExpr(int(items[0], 0), place(items[0]))

    def string(self, items: list[Token]) -> StringExpr:
        return StringExpr(items[0][1:-1], place(items[0]))

    def name(self, items: list[Token]) -> Expr:
        word, at = str(items[0]), place(items[0])
        return NumberExpr(int(word == "True"), at) if word in ("True", "False") else Name(word, at)

    def group(self, items: list[Any]) -> Expr:
        expr: Expr = replace(value(items[1]), at=place(items[0]).to(place(items[2])))
        return expr

    def prefix(self, items: list[Any]) -> Expr:
        op, operand = str(items[0]), value(items[1])
        at = place(items[0]).to(operand.at)
        if op == "-" and isinstance(operand, NumberExpr):
            return NumberExpr(-operand.value, at)
        return Prefix(op, operand, at, _deeper([operand], at))

    def chain(self, items: list[Any]) -> Chain:
        first, links = value(items[0]), []
        at = first.at
        for op, operand in zip(items[1::2], items[2::2], strict=True):
            end = value(operand).at
            at = at.to(end) if at.line == end.line else end
            links.append(ChainLink(str(op), operand, at))
        return Chain(first, tuple(links), first.at.to(at), _deeper(items[::2], first.at))

    def compare(self, items: list[Any]) -> Chain:
        if len(items) > 3:
            help = "write `a < b and b < c`"
            raise Mistake("E001", "comparisons cannot be chained", place(items[3]), help)
        return self.chain(items)

    def logic(self, items: list[Any]) -> Logic:
        operands = [value(item) for item in items[::2]]
        at = operands[0].at.to(operands[-1].at)
        reads = frozenset[str]().union(*map(names_in, operands[1:]))
        return Logic(str(items[1]), operands, reads, at, _deeper(operands, at))

    def conditional(self, items: list[Any]) -> Conditional:
        for branch in (items[0], items[2]):
            if isinstance(branch, Name) and branch.id in OPS:
                message = f"`{branch.id}` cannot be chosen by a conditional expression"
                help = "write an `if` with a transfer in each branch"
                raise Mistake("E014", message, branch.at, help)
        then, condition, otherwise = map(value, items)
        at = then.at.to(otherwise.at)
        reads = names_in(then) | names_in(otherwise)
        return Conditional(condition, then, otherwise, reads, at, _deeper(items, at))

    def items(self, items: list[Any]) -> Items:
        found, at = [value(item) for item in items[1:-1]], place(items[0]).to(place(items[-1]))
        return Items(found, at, _deeper(found, at))

    def index(self, items: list[Any]) -> Index:
        base, position = value(items[0]), value(items[2])
        at = base.at.to(place(items[3]))
        return Index(base, position, at, _deeper([base, position], at))

    def keyword(self, items: list[Any]) -> Keyword:
        return Keyword(str(items[0]), place(items[0]), items[1])

    def call(self, items: list[Any]) -> CallExpr:
        given, at = items[2:-1], place(items[0]).to(place(items[-1]))
        args = [arg for arg in given if not isinstance(arg, Keyword)]
        call = CallExpr(str(items[0]), args, at, _deeper(args, at), given[len(args) :])
        own: dict[str, FunctionDef] = {}
        if isinstance(items[0], NameToken):
            own = items[0].functions
            if call.function == items[0].defining and call.function not in own:
                help = "every program ends: a function calls those above it"
                raise Mistake("E015", f"`{clip(call.function)}` calls itself", at, help)
        check_call(call, place(items[0]), own)
        function = own.get(call.function)
        if function is None:
            return call
        args = arguments(call, function)
        depth = 1 + max([function.depth, *(arg.depth for arg in args)])
        if depth > MAX_DEPTH:
            raise Mistake("E006", f"this call nests more than {MAX_DEPTH} deep", at)
        return CallExpr(call.function, args, at, depth, own=function)

    def function(self, items: list[Any]) -> None:
        name, parameters, (body, result) = items[0], items[2], items[4]
        functions, written = name.functions, _variable(name, "function")
        if written in functions:
            raise Mistake("E015", f"there is a function `{clip(written)}` already", place(name))
        exprs = [*(value for stmt in body for value in stmt.values), result]
        functions[written] = FunctionDef(
            written,
            parameters,
            body,
            result,
            frozenset[str]().union(*map(names_in, exprs)),
            frozenset(name for stmt in body for name in stmt.targets),
            max(expr.depth for expr in exprs),
            sum(map(varying_elements, exprs)),
        )

    def parameters(self, items: list[Token]) -> Sequence[str]:
        names: list[str] = []
        for item in items:
            if (name := _variable(item)) in names:
                raise Mistake("E015", f"there is a parameter `{clip(name)}` already", place(item))
            names.append(name)
        return names

    def computed(self, items: list[Any]) -> tuple[Sequence[Assign], Expr]:
        return items[:-1], value(items[-1])

    def assign(self, items: list[Any]) -> Assign:
        return Assign([_variable(items[0])], [value(items[1])], place(items[0]))

    def augment(self, items: list[Any]) -> Assign:
        target, operand = _variable(items[0]), value(items[2])
        name = Name(target, place(items[0]))
        at = name.at.to(operand.at)
        sum = Chain(name, (ChainLink(items[1][:-1], operand, at),), at, _deeper([operand], at))
        return Assign([target], [sum], name.at)

    def assign_all(self, items: list[Any]) -> Assign:
        targets = [_variable(item) for item in items if isinstance(item, Token)]
        values = [value(item) for item in items[len(targets) :]]
        at = place(items[0])
        if len(targets) != len(values):
            count = f"{len(values)} value{'s' if values[1:] else ''}"
            help = "for example `a, b = b, a`; a list is taken apart with `x[0]`, `x[1]`"
            message = f"this gives {count} to {len(targets)} variables"
            raise Mistake("E016", message, at.to(values[-1].at), help)
        return Assign(targets, values, at)

    def expression(self, items: list[Any]) -> TransferStmt:
        match items[0]:
            case CallExpr("transfer"):
                return transfer(items[0])
            case Name("transfer", at):
                raise Mistake("E013", f"transfer needs its values: `{TRANSFER}`", at)
            case CallExpr(own=FunctionDef(name), at=at):
                message = f"{clip(name)}(...) computes a value, and nothing is done with it"
                raise Mistake("E001", message, at, "a function makes no transfers")
        help = f"a statement is `name = value`, `for`, `if`, or `{TRANSFER}`"
        raise Mistake("E001", "this line does nothing", items[0].at, help)

    def table(self, items: list[TableToken]) -> TransferTable:
        return items[0].table

    def block(self, items: list[Stmt]) -> Sequence[Stmt]:
        return tuple(items)

    def body(self, items: list[Sequence[Stmt]]) -> Sequence[Stmt]:
        return items[0] if items else ()

    def loop(self, items: list[Any]) -> For:
        target, over, body = items
        name = _variable(target)
        if isinstance(over, CallExpr) and over.function == "range":
            return For(name, steps(over), body, over.at)
        return For(name, value(over), body, over.at)

    def choice(self, items: list[Any]) -> If:
        pairs = [(value(c), b) for c, b in zip(items[0::2], items[1::2], strict=False)]
        return If(tuple(pairs), items[-1] if len(items) % 2 else ())

    def pair(self, items: list[Any]) -> Pair:
        return Pair(str(items[0]), place(items[0]), items[1])

    def start(self, items: list[Any]) -> ProgramSyntax:
        constants = [item for item in items if isinstance(item, Assign)]
        pairs = tuple(item for item in items if isinstance(item, Pair))
        header = next(item for item in items if isinstance(item, Token))
        functions = header.functions if isinstance(header, NameToken) else {}
        for stmt in constants:
            if both := functions.keys() & set(stmt.targets):
                message = f"`{clip(min(both))}` is a function, too"
                raise Mistake("E015", message, stmt.at, "give it another name")
        return ProgramSyntax(constants, pairs, items[-1], place(header))


def _variable(token: Token, noun: str = "variable") -> str:
    if isinstance(token, NameToken) and str(token) in token.functions and noun == "variable":
        raise Mistake(
            "E015", f"`{token}` is a function already", place(token), "give it another name"
        )
    if str(token) in RESERVED:
        message = f"`{token}` is a word of the language and cannot be a {noun}"
        raise Mistake("E008", message, place(token))
    return str(token)


def _deeper(operands: Sequence[Expr], at: At) -> int:
    depth = 1 + max((operand.depth for operand in operands), default=0)
    if depth > MAX_DEPTH:
        help = "give parts of it a name, on lines before"
        raise Mistake("E006", f"this expression nests more than {MAX_DEPTH} deep", at, help)
    return depth
