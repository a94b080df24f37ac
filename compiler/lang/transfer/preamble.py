"""preamble: the constants and functions above a program's header.

The grammar cannot tell from one token whether `def` begins a function or the header, nor whether a
called function is defined; so the tokens fed to it carry this.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from lark import Token

from hccc.lang.mistakes import Mistake
from hccc.lang.tables import place
from hccc.lang.transfer.complaint import token_text
from hccc.lang.transfer.syntax import FunctionDef
from hccc.lang.transfer.tokens import Tokenizer

PROGRAM, JOB = "ResCCLAlgo", "HetCCLJob"
HEADERS = {
    PROGRAM: 'ResCCLAlgo(nRanks=8, OpType="Allreduce"):',
    JOB: 'HetCCLJob(OpType="Allreduce", nParts=nClusters):',
}


class NameToken(Token):
    """A NAME token. functions: those that the program has defined so far; defining: the name of the
    last one."""

    __slots__ = ("defining", "functions")
    functions: dict[str, FunctionDef]
    defining: str


def program_tokens(text: str, begin: str = PROGRAM) -> Iterator[Token]:
    """Yields the tokens of a program, or of a job; begin: the name of its header.

    From the first function on every name is a `NameToken`, and the `def` of a function is a
    _FUNCTION token.

    Raises:
        Mistake: text that is no token, bad indentation, anything else above the header.
    """
    return _named(_headed(Tokenizer(text).tokens(), begin))


def _headed(tokens: Iterator[Token], begin: str) -> Iterator[Token]:
    """Yields the tokens, and checks the first of each line up to the header."""
    token: Token | None = next(tokens, None)
    while token is not None:
        if token.type == "_DEF":
            define, token = token, next(tokens, token)
            if token.type == "NAME" and token != begin:
                yield from (Token.new_borrow_pos("_FUNCTION", define.value, define), token)
                token = yield from _definition(tokens)
                continue
            yield define
            if token != begin:
                raise _no_beginning(token, begin, "; functions, `def f(x):`, may stand above it")
        following = next(tokens, token)
        if token == begin:
            yield from (token, following)
            break
        if token.type != "NAME" or following.type not in ("_ASSIGN", "AUGMENT", "_COMMA"):
            raise _no_beginning(
                token, begin, "; only constants, `n = 8`, and functions may stand above"
            )
        yield from (token, following)
        for inner in tokens:
            yield inner
            if inner.type == "_NEWLINE":
                break
        token = next(tokens, None)
    yield from tokens


def _definition(tokens: Iterator[Token]) -> Generator[Token, None, Token | None]:
    """Yields the tokens of a function after its name: those of its line, and of its block. Returns
    the token after them."""
    for token in tokens:
        yield token
        if token.type == "_NEWLINE":
            break
    depth, following = 0, next(tokens, None)
    while following is not None and (depth or following.type == "_INDENT"):
        depth += (following.type == "_INDENT") - (following.type == "_DEDENT")
        yield following
        following = next(tokens, None)
    return following


def _named(tokens: Iterator[Token]) -> Iterator[Token]:
    """Yields the tokens; from the first function on, every name knows the functions defined so
    far."""
    functions: dict[str, FunctionDef] | None = None
    defining, before = "", ""
    for token in tokens:
        if token.type == "_FUNCTION" and functions is None:
            functions = {}
        if token.type == "NAME" and functions is not None:
            defining = str(token) if before == "_FUNCTION" else defining
            token = NameToken.new_borrow_pos(token.type, token.value, token)
            token.functions, token.defining = functions, defining
        before = token.type
        yield token


def _no_beginning(token: Token, begin: str, more: str) -> Mistake:
    noun = "job" if begin == JOB else "program"
    message = f"a {noun} begins with {begin}, not {token_text(token)}"
    return Mistake("E010", message, place(token), f"for example `{HEADERS[begin]}`{more}")
