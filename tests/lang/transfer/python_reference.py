"""An independent interpreter of the transfer language: Python's own, one iteration at a time.

Python's `ast` is rewritten so that every operator goes through a checked function, then executed.
It shares nothing with hccc.lang but the meaning.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

LOW, HIGH = -(2**63), 2**63 - 1
RANGES = ("E105", 0), ("E105", 1), ("E108", 2), ("E106", 3)
MAX_ITERATIONS = 4000


class Wrong(Exception):
    """The program fails: which error, and the loop values at that point."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class TooLong(Exception):
    """The program runs longer than a test wants to wait."""


def _exact(a: int, b: int) -> int:
    if a % b:
        raise Wrong("E102")
    return a // b


def _power(a: int, b: int) -> int:
    if b < 0:
        raise Wrong("E111")
    if abs(a) > 1 and b > 64:
        raise Wrong("E103")
    return int(a**b)


def _shift(shift: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def checked(a: int, b: int) -> int:
        if not 0 <= b <= 63:
            raise Wrong("E111")
        return shift(a, b)

    return checked


# `operator` says nothing of the type that its functions give for integers: `_checked` makes int.
OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": _exact,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "Pow": _power,
    "LShift": _shift(operator.lshift),
    "RShift": _shift(operator.rshift),
    "BitAnd": operator.and_,
    "BitOr": operator.or_,
    "BitXor": operator.xor,
    "USub": operator.neg,
    "UAdd": operator.pos,
    "Invert": operator.invert,
    "Not": operator.not_,
}


def _checked(name: str, *operands: int) -> int:
    try:
        result = int(OPERATORS[name](*operands))
    except ZeroDivisionError:
        raise Wrong("E110") from None
    if not LOW <= result <= HIGH:
        raise Wrong("E103")
    return result


class _Rewrite(ast.NodeTransformer):
    def _call(self, name: str, *args: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(name, ast.Load()), list(args), [])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("_checked", ast.Constant(type(node.op).__name__), node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("_checked", ast.Constant(type(node.op).__name__), node.operand)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("int", self._call("bool", node))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        return self._call("int", node)

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        assert isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Call)
        node.iter = self._call("_loop", ast.Constant(node.target.id), *node.iter.args)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "transfer":
            return self._call("transfer", ast.Constant(node.lineno), *node.args)
        return node


@dataclass
class Reference:
    """One run. `rows`: (src, dst, step, chunk, line, op); `where`: the loop values of each."""

    n_ranks: int
    n_chunks: int
    reduces: bool
    rows: list[tuple[int, ...]] = field(default_factory=list)
    where: list[dict[str, int]] = field(default_factory=list)
    error: str | None = None
    error_line: int | None = None
    error_loops: list[tuple[str, int]] = field(default_factory=list)
    _loops: list[tuple[str, int]] = field(default_factory=list)
    _iterations: int = 0

    def run(self, body: str, first_line: int, header: dict[str, int]) -> Reference:
        """Runs `body` (unindented text), whose first line is `first_line` of the program."""
        tree = ast.increment_lineno(ast.parse(body), first_line - 1)
        code = compile(ast.fix_missing_locations(_Rewrite().visit(tree)), "<program>", "exec")
        names: dict[str, Any] = {"_checked": _checked, "_loop": self._loop}
        names |= {"transfer": self._transfer, "recv": 0, "rrc": 1, **header}
        try:
            exec(code, names)
        except (Wrong, NameError) as error:
            self.error = error.code if isinstance(error, Wrong) else "E101"
            self.error_loops = self._loops[:]
            trace = error.__traceback__
            while trace:
                if trace.tb_frame.f_code is code:
                    self.error_line = trace.tb_lineno
                trace = trace.tb_next
        return self

    def _loop(self, name: str, *limits: int) -> Iterator[int]:
        if len(limits) == 3 and limits[2] == 0:
            raise Wrong("E115")
        over = range(*limits)
        if (over.stop - over.start) // over.step > 2**28:
            raise Wrong("E104")
        for value in over:
            self._iterations += 1
            if self._iterations > MAX_ITERATIONS:
                raise TooLong
            self._loops.append((name, value))
            yield value
            self._loops.pop()

    def _transfer(self, line: int, *values: int) -> None:
        *row, op = values
        if op and not self.reduces:
            raise Wrong("E109")
        ends = self.n_ranks, self.n_ranks, 2**31, self.n_chunks
        for (code, i), end in zip(RANGES, ends, strict=True):
            if not 0 <= row[i] < end:
                raise Wrong(code)
        if row[0] == row[1]:
            raise Wrong("E107")
        self.rows.append((*row, line, op))
        self.where.append(dict(self._loops))
