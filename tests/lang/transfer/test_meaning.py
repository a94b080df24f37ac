"""Random programs give the same transfers in Python's own interpreter."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.ir.program import TRANSFER, Origin
from hccc.lang.transfer import evaluate
from hccc.lang.transfer.load import parse
from tests.lang.transfer.python_reference import Reference, TooLong
from tests.marks import LONG, slow

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
LISTS = ["x", "y"]
NESTED = ["z"]


OPERATORS = ["+", "-", "*", "+", "-", "//", "%", "&", "|", "^"]
RISKY = ["/", "%", "//", "**", "<<", ">>", "*"]


def _rarely(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 29)) == 17


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> str:
    """Draws an integer expression as text; most evaluate without an error."""
    kind = draw(st.integers(0, 13)) if depth else draw(st.integers(0, 3))
    if kind > 9:
        return draw(_new_kinds(depth, kind))
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


@st.composite
def _new_kinds(draw: st.DrawFn, depth: int, kind: int) -> str:
    """Draws an index, a length, a conditional expression or an absolute value."""
    inner = draw(expressions(depth - 1))
    if kind == 10:
        of = draw(lists(depth - 1))
        if _rarely(draw):
            return f"{of}[{inner}]"
        low = draw(st.sampled_from([0, 0, -1]))  # -1: the last element, from the end
        return f"{of}[({inner}) % len({of}) {low:+}]"
    if kind == 11:
        return f"len({draw(lists(depth - 1))})"
    if kind == 12:
        condition, other = draw(expressions(depth - 1)), draw(expressions(depth - 1))
        return f"({inner} if {condition} else {other})"
    return f"abs({inner})"


@st.composite
def lists(draw: st.DrawFn, depth: int = 1) -> str:
    """Draws a list of numbers as text; rarely a number or a list of lists."""
    if _rarely(draw):
        return draw(st.sampled_from([*NAMES, *NESTED]))
    kind = draw(st.integers(0, 4)) if depth else 0
    if kind <= 1:
        return draw(st.sampled_from(LISTS))
    if kind == 2:
        return f"{draw(st.sampled_from(NESTED))}[{draw(expressions(depth - 1))} & 1]"
    if kind == 3:
        branches = draw(lists(depth - 1)), draw(lists(depth - 1))
        return f"({branches[0]} if {draw(expressions(depth - 1))} else {branches[1]})"
    elements = draw(st.lists(expressions(depth - 1), min_size=1, max_size=4))
    return f"[{', '.join(elements)}]"


def _number(draw: st.DrawFn, end: int) -> str:
    e = draw(expressions())
    return e if _rarely(draw) else f"({e}) % {end}"


@st.composite
def statements(draw: st.DrawFn, depth: int) -> list[str]:
    """Draws the lines of one statement, with its block indented."""
    kind = draw(st.integers(0, 11 if depth else 6))
    if kind == 5:
        return [draw(_assignments())]
    if kind == 6:
        src, dst, step = _number(draw, 4), _number(draw, 4), _number(draw, 3)
        named = [f"srcRank={src}", f"dstRank=4 + {dst}", f"step={step}", "op=rrc"]
        named.append(f"chunkId={_number(draw, 16)}")
        return [f"transfer({', '.join(draw(st.permutations(named)))})"]
    kind -= 2 * (kind > 6)
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
        over = f"range({limits.format(*[draw(bound) for _ in range(limits.count('{'))])})"
        if kind == 8:
            over = draw(lists())
        head = f"for {draw(st.sampled_from(NAMES))} in {over}:"
        return [head, *_indented(draw(block))]
    lines = [f"if {draw(expressions())}:", *_indented(draw(block))]
    if draw(st.booleans()):
        lines += [f"elif {draw(expressions())}:", *_indented(draw(block))]
    if draw(st.booleans()):
        lines += ["else:", *_indented(draw(block))]
    return lines


@st.composite
def _assignments(draw: st.DrawFn) -> str:
    """Draws `x += e`, `a, b = …`, or a list given to a variable."""
    match draw(st.integers(0, 3)):
        case 0:
            op = draw(st.sampled_from(["+", "-", "*", "&", "|", "^"]))
            return f"{draw(st.sampled_from(NAMES))} {op}= {draw(expressions())}"
        case 1:
            a, b = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
            return f"{a}, {b} = {draw(expressions())}, {draw(expressions())}"
        case 2:
            return f"{draw(st.sampled_from(LISTS))} = {draw(lists())}"
        case _:
            return f"{draw(st.sampled_from(NESTED))} = [{draw(lists())}, {draw(lists())}]"


def _joined(blocks: list[list[str]]) -> list[str]:
    return [line for block in blocks for line in block]


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Draws the body of a program; most variables have a value from the start."""
    lines = [f"{name} = {draw(st.integers(-2, 9))}" for name in NAMES if not _rarely(draw)]
    lines += ["x = [0, 2, 1, 3]", "y = [5, 4]", "z = [x, [7]]"]
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
        assume(problem.code != "E119")  # numbers and lists mixed: Python does not mind
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


@pytest.mark.slow
@pytest.mark.parametrize("batch", [slow(1), 3, slow(1 << 16)])
@settings(max_examples=40 * LONG, deadline=None)
@given(programs())
@example("a = 0\nfor i in range(5):\n    a = a + i\n    transfer(0, 1, a, i, recv)")
@example("for i in range(4):\n    if i % 2:\n        a = i\n    transfer(0, 1, 0, i, rrc)\nb = a")
@example("for i in range(3):\n    for j in range(i):\n        transfer(i, j, 0, j, rrc)\nk = i + j")
@example("for i in range(3):\n    b = i > 0 and 2 / i == 2\n    transfer(0, 1, b, i, rrc)")
@example("for i in range(9):\n    a = 12 / (7 - i)\nfor i in range(9):\n    a = 2 ** (60 + i)")
@example("for i in range(4):\n    a = 6 / (3 - i)\n    b = 6 / (2 - i)\n    c = 6 / (1 - i)")
@example(
    "for i in range(5):\n    if i % 2:\n        x = [i, i, 2]\n    transfer(0, 1, x[-1], i, rrc)"
)
@example(
    "x = [1, 2]\ny = x\nfor i in range(4):\n    if i % 2:\n        x, y = y, [i]\n    a = x[i & 1]"
)
@example(
    "z = [[1], [2, 3]]\nfor i in range(2):\n    for j in z[i]:\n        transfer(0, j, i, 0, rrc)"
)
@example("for i in range(4):\n    a = [3, 6 / (2 - i)][0] if i != 2 else 9\n    b = [0][i]")
@example(
    "for i in range(-9, 9):\n    a = (-(2 ** 63 - 1) - 1) % (i * 2 + 1)\n    b = 0 - i\n    a = b"
)
@example("a = 0\na = a[(c) % len(a) + 0]")
@example("a = 0\nfor i in range(5):\n    b = a[6 / (i - 3)]")
def test_random_programs(batch: int, body: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "MAX_BATCH", batch)
        patch.setattr(evaluate, "FIRST_BATCH", min(batch, 2))
        _compare(body)


ASSIGNMENT = re.compile(r"^(\s*)([a-z]) = (.*)$", re.MULTILINE)


def _computed_by_functions(body: str) -> tuple[list[str], str]:
    """Moves the right side of each assignment into a function: (the functions, the new body)."""
    functions: list[str] = []

    def called(assignment: re.Match[str]) -> str:
        indent, target, value = assignment.groups()
        names = sorted(set(re.findall(r"\b[a-z]\b", value)))
        head = f"def f{len(functions)}({', '.join(names)}):"
        long = len(functions) % 2
        functions.append(
            f"{head}\n    w = {value}\n    return w" if long else f"{head} return {value}"
        )
        given = ", ".join(f"{n}={n}" if long else n for n in names)
        return f"{indent}{target} = f{len(functions) - 1}({given})"

    return functions, ASSIGNMENT.sub(called, body)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(programs())
def test_a_function_computes_what_its_body_does(body: str) -> None:
    """Where a right side is written changes nothing but the place of an error in it."""
    functions, calling = _computed_by_functions(body)
    above = "\n".join(functions) + "\n"
    try:
        plain = parse(Source("plain.rccl", _text(body)))
    except UserError as error:
        with pytest.raises(UserError) as caught:
            parse(Source("calling.rccl", above + _text(calling)))
        wanted, problem = error.problem, caught.value.problem
        assume("E101" not in (wanted.code, problem.code))  # arguments have a value, needed or not
        places = [problem.span, *(note.span for note in problem.notes)]
        assert (problem.code, problem.message) == (wanted.code, wanted.message)
        assert places[-1] and wanted.span
        assert places[-1].line - above.count("\n") == wanted.span.line
        return
    try:
        program = parse(Source("calling.rccl", above + _text(calling)))
    except UserError as error:
        assert error.problem.code == "E101"
        return
    moved = program.transfers.copy()
    moved["line"] -= above.count("\n")
    assert moved.tolist() == plain.transfers.tolist()
