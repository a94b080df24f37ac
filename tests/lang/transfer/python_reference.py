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
PARAMETERS = ("srcRank", "dstRank", "step", "chunkId", "op")
MAX_ITERATIONS = 4000


class Wrong(Exception):
    """A failure of the program: its error, and the loop values at that point."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class TooLong(Exception):
    """A program that runs longer than a test may take."""


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
    "abs": abs,
    "min": min,
    "max": max,
}


def _number(value: Any) -> int:
    if isinstance(value, list):
        raise Wrong("E117")
    return int(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Wrong("E118")
    return value


def _element(of: Any, position: Any) -> Any:
    found, where = _list(of), _number(position)
    try:
        return found[where]
    except IndexError:
        raise Wrong("E116") from None


def _checked(name: str, *operands: int) -> int:
    operands = tuple(map(_number, operands))
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
        node.values = [self._call("_number", value) for value in node.values]
        return self._call("int", self._call("bool", node))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        node.left = self._call("_number", node.left)
        node.comparators = [self._call("_number", value) for value in node.comparators]
        return self._call("int", node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        node.test = self._call("_number", node.test)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.test = self._call("_number", node.test)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        return self._call("_element", node.value, node.slice)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        assert isinstance(node.target, ast.Name)
        name = ast.Name(node.target.id, ast.Load())
        plain = ast.Assign([node.target], ast.BinOp(name, node.op, node.value))
        seen: ast.AST = self.visit(ast.copy_location(plain, node))
        return seen

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        assert isinstance(node.target, ast.Name)
        name = ast.Constant(node.target.id)
        if isinstance(node.iter, ast.Call) and getattr(node.iter.func, "id", "") == "range":
            node.iter = self._call("_loop", name, *node.iter.args)
        else:
            node.iter = self._call("_over", name, node.iter)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        assert isinstance(node.func, ast.Name)
        match node.func.id:
            case "transfer":
                call = self._call("transfer", ast.Constant(node.lineno), *node.args)
                call.keywords = node.keywords
                return call
            case "len":
                return self._call("len", self._call("_list", *node.args))
            case "min" | "max" | "abs" as name:
                return self._call("_checked", ast.Constant(name), *node.args)
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
        names |= {"_number": _number, "_list": _list, "_element": _element, "_over": self._over}
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
        if len(over) > MAX_ITERATIONS:
            raise TooLong
        yield from self._over(name, list(over))

    def _over(self, name: str, over: Any) -> Iterator[int]:
        for value in _list(over):
            if isinstance(value, list):
                raise Wrong("E117")
            self._iterations += 1
            if self._iterations > MAX_ITERATIONS:
                raise TooLong
            self._loops.append((name, value))
            yield value
            self._loops.pop()

    def _transfer(self, line: int, *values: int, **named: int) -> None:
        named |= dict(zip(PARAMETERS, values, strict=False))
        *row, op = (_number(named[name]) for name in PARAMETERS)
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
