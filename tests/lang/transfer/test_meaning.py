"""Random programs mean what Python's own interpreter makes of them."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from hccc.diagnostics import Source, UserError
from hccc.ir.program import TRANSFER, Origin
from hccc.lang.transfer import evaluate
from hccc.lang.transfer.load import parse
from tests.lang.transfer.python_reference import Reference, TooLong

HEADER = 'ResCCLAlgo(nRanks=8, OpType="Allreduce", nChunks=16):'
VARIABLES = {
    "nRanks": 8,
    "nChannels": 1,
    "nWarps": 16,
    "GPUPerNode": 8,
    "NICPerNode": 8,
    "nChunks": 16,
}
NAMES = ["a", "b", "c", "i", "j", "k"]


OPERATORS = ["+", "-", "*", "+", "-", "//", "%", "&", "|", "^"]
RISKY = ["/", "%", "//", "**", "<<", ">>", "*"]


def _rarely(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 29)) == 17


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> str:
    """An integer expression as text; mostly one that succeeds."""
    kind = draw(st.integers(0, 9)) if depth else draw(st.integers(0, 3))
    if kind == 0:
        return str(draw(st.integers(0, 9)))
    if kind <= 3:
        return draw(st.sampled_from([*NAMES, "nRanks"]))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    if kind == 4:
        op = draw(st.sampled_from(["-", "~", "+", "not "]))
        return f"({op}{left})" if op == "not " else f"{op}{left}"
    if kind == 5:
        return f"{draw(st.sampled_from(['min', 'max']))}({left}, {right})"
    if kind == 6:
        return f"({left} {draw(st.sampled_from(['<', '<=', '>', '>=', '==', '!=']))} {right})"
    if kind == 7:
        return f"({left} {draw(st.sampled_from(['and', 'or']))} {right})"
    if _rarely(draw):
        return f"{left} {draw(st.sampled_from(RISKY))} {right}"
    op = draw(st.sampled_from(OPERATORS))
    if op in ("//", "%"):
        right = f"({right} | 1)"
    text = f"{left} {op} {right}"
    return f"({text})" if draw(st.booleans()) else text


def _number(draw: st.DrawFn, end: int) -> str:
    e = draw(expressions())
    return e if _rarely(draw) else f"({e}) % {end}"


@st.composite
def statements(draw: st.DrawFn, depth: int) -> list[str]:
    """Lines of one statement, with its block indented."""
    kind = draw(st.integers(0, 9 if depth else 4))
    if kind <= 1:
        return [f"{draw(st.sampled_from(NAMES))} = {draw(expressions())}"]
    if kind <= 4:
        op = draw(st.sampled_from(["recv", "rrc"]))
        src, dst = _number(draw, 4), _number(draw, 4)
        return [f"transfer({src}, 4 + {dst}, {_number(draw, 3)}, {_number(draw, 16)}, {op})"]
    block = st.lists(statements(depth - 1), min_size=1, max_size=3).map(_joined)
    if kind <= 8:
        limits = draw(st.sampled_from(["{}", "{}, {}", "{}, {}, -1", "{}, {}, 2"]))
        bound = st.integers(2, 6).map(str) | expressions(1).map("({}) % 5".format)
        over = limits.format(*[draw(bound) for _ in range(limits.count("{"))])
        head = f"for {draw(st.sampled_from(NAMES))} in range({over}):"
        return [head, *_indented(draw(block))]
    lines = [f"if {draw(expressions())}:", *_indented(draw(block))]
    if draw(st.booleans()):
        lines += [f"elif {draw(expressions())}:", *_indented(draw(block))]
    if draw(st.booleans()):
        lines += ["else:", *_indented(draw(block))]
    return lines


def _joined(blocks: list[list[str]]) -> list[str]:
    return [line for block in blocks for line in block]


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


@st.composite
def programs(draw: st.DrawFn) -> str:
    """The body of a program; most variables have a value from the start."""
    lines = [f"{name} = {draw(st.integers(-2, 9))}" for name in NAMES if not _rarely(draw)]
    return "\n".join([*lines, *_joined(draw(st.lists(statements(3), min_size=1, max_size=5)))])


def _text(body: str) -> str:
    return HEADER + "\n" + "\n".join(_indented(body.split("\n"))) + "\n"


def _compare(body: str) -> None:
    try:
        expected = Reference(8, 16, True).run(body, 2, VARIABLES)
    except TooLong:
        assume(False)
    source = Source("random.rccl", _text(body))
    try:
        program = parse(source)
    except UserError as error:
        problem = error.problem
        assert (problem.code, problem.span and problem.span.line) == (
            expected.error,
            expected.error_line,
        ), problem.render()
        for name, value in expected.error_loops[-8:]:
            assert f"{name}={value}" in problem.message
        return
    assert expected.error is None
    order = sorted(range(len(expected.rows)), key=lambda i: expected.rows[i][2])
    assert program.transfers.tolist() == [expected.rows[i] for i in order]
    assert program.transfers.dtype == TRANSFER
    for row in range(0, len(order), max(1, len(order) // 3)):
        _compare_place(program.origin, row, expected, order[row])


def _compare_place(origin: Origin | None, row: int, expected: Reference, i: int) -> None:
    assert origin is not None
    span, loops = origin.place(row)
    assert span is not None and span.line == expected.rows[i][4]
    assert loops == expected.where[i]


@pytest.mark.parametrize("lanes", [1, 3, 1 << 16])
@settings(max_examples=100, deadline=None)
@given(programs())
@example("a = 0\nfor i in range(5):\n    a = a + i\n    transfer(0, 1, a, i, recv)")
@example("for i in range(4):\n    if i % 2:\n        a = i\n    transfer(0, 1, 0, i, rrc)\nb = a")
@example("for i in range(3):\n    for j in range(i):\n        transfer(i, j, 0, j, rrc)\nk = i + j")
@example("for i in range(3):\n    b = i > 0 and 2 / i == 2\n    transfer(0, 1, b, i, rrc)")
@example("for i in range(9):\n    a = 12 / (7 - i)\nfor i in range(9):\n    a = 2 ** (60 + i)")
@example("for i in range(4):\n    a = 6 / (3 - i)\n    b = 6 / (2 - i)\n    c = 6 / (1 - i)")
@example(
    "for i in range(-9, 9):\n    a = (-(2 ** 63 - 1) - 1) % (i * 2 + 1)\n    b = 0 - i\n    a = b"
)
def test_random_programs(lanes: int, body: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "MAX_LANES", lanes)
        patch.setattr(evaluate, "FIRST_LANES", min(lanes, 2))
        _compare(body)
