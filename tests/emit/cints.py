"""An evaluator of C's integer expressions that traps where C leaves the result open.

It knows nothing of how hccc prints: it reads the text, with C's precedence, C's types (int has 32
bits, long long 64) and C's division, and refuses overflow, a negative operand of `/` or `%`, and
an index outside its table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

TOKEN = re.compile(r"\s*(static_cast<(?:int|long long)>|\d+(?:LL)?|[A-Za-z_]\w*|[-+*/%()\[\]])")
INT, LONG = 32, 64


class Trap(Exception):
    """Undefined behaviour, or a result that depends on the sign."""


class Typed(NamedTuple):
    """A value and the bits of its type."""

    value: int
    bits: int


def typed(value: int, bits: int) -> Typed:
    """Makes a typed value. Raises Trap if the type cannot hold it."""
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise Trap(f"{value} overflows {bits} bits")
    return Typed(value, bits)


def divided(a: int, b: int) -> int:
    """Divides non-negative numbers as C does."""
    if a < 0 or b <= 0:
        raise Trap(f"{a} divided by {b}")
    return a // b


OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": divided,
    "%": lambda a, b: a - divided(a, b) * b,
}


class ExpressionReader:
    """A recursive descent over the tokens of one expression."""

    def __init__(self, text: str, names: Mapping[str, Any]) -> None:
        self.tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            found = TOKEN.match(text, at)
            assert found, text[at:]
            self.tokens.append(found[1])
            at = found.end()
        self.names, self.at = names, 0

    def peek(self) -> str:
        """Returns the next token; empty at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        """Consumes the next token; it must be `wanted` if that is given."""
        token = self.peek()
        assert token and wanted in ("", token), (token, wanted, self.tokens)
        self.at += 1
        return token

    def level(self, operators: str, operand: Callable[[], Typed]) -> Typed:
        """Operands joined by operators of one precedence, from left to right."""
        left = operand()
        while self.peek() and self.peek() in operators:
            operator, right = self.take(), operand()
            bits = max(left.bits, right.bits)
            left = typed(OPERATORS[operator](left.value, right.value), bits)
        return left

    def sum(self) -> Typed:
        """Evaluates + and -."""
        return self.level("+-", lambda: self.level("*/%", self.unary))

    def unary(self) -> Typed:
        """Evaluates a minus, a cast, or an operand without either."""
        token = self.take()
        if token == "-":
            operand = self.unary()
            return typed(-operand.value, operand.bits)
        if token == "(" or token.startswith("static_cast"):
            if token != "(":
                self.take("(")
            inner = self.sum()
            self.take(")")
            if token == "(":
                return inner
            return typed(inner.value, INT if "<int>" in token else LONG)
        if token[0].isdigit():
            value = int(token.removesuffix("LL"))
            return typed(value, LONG if token.endswith("LL") or value >= 1 << 31 else INT)
        return self.named(self.names[token])

    def named(self, value: Any) -> Typed:
        """Evaluates a variable, or an entry of a table."""
        while self.peek() == "[":
            self.take("[")
            index = self.sum().value
            self.take("]")
            if not 0 <= index < len(value):
                raise Trap(f"index {index} of a table of {len(value)}")
            value = value[index]
        return typed(int(value), INT)


def evaluate(text: str, names: Mapping[str, int | Sequence[Any] | NDArray[np.integer[Any]]]) -> int:
    """Returns the int that C computes for `text`. Raises Trap."""
    reader = ExpressionReader(text, names)
    result = reader.sum()
    assert not reader.peek() and result.bits == INT, text
    return result.value
