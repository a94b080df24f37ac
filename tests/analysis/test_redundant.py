"""Warnings about unneeded transfers: none where all are needed; leaving them out is safe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from hccc.analysis.redundant import HELD, NEEDED, redundant, uses
from hccc.base.diagnostics import Problem, Source
from hccc.ir.program import Program
from hccc.lang.transfer.load import load, parse
from hccc.passes.verify import verify
from hccc.testing import correct_programs

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.rccl"))
ALLGATHER = """ResCCLAlgo(nRanks=4, OpType="Allgather"):
    for again in range(2):
        for r in range(4):
            for s in range(3):
                transfer((r + s) % 4, (r + s + 1) % 4, again * 3 + s, r, recv)
"""


def _warnings(text: str) -> tuple[Problem, ...]:
    return redundant(verify(parse(Source("a.rccl", text))))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_need_all_they_send(path: Path) -> None:
    assert redundant(load(path)) == ()


@pytest.mark.slow
@settings(deadline=None)
@given(correct_programs(extras=False))
def test_minimal_programs_need_all_they_send(program: Program) -> None:
    assert redundant(program) == ()


@pytest.mark.slow
@settings(deadline=None)
@given(correct_programs())
def test_a_program_is_right_without_what_is_warned_about(program: Program) -> None:
    use = uses(program)
    for kept in (use == NEEDED, use != HELD):
        verify(replace(program, transfers=program.transfers[kept]))


@settings(deadline=None)
@given(correct_programs())
def test_what_is_left_is_needed(program: Program) -> None:
    """Nothing is warned about any more once it is left out."""
    needed = replace(program, transfers=program.transfers[uses(program) == NEEDED])
    assert (uses(needed) == NEEDED).all()


def test_an_allgather_that_sends_everything_twice() -> None:
    (warning,) = _warnings(ALLGATHER)
    assert (warning.code, warning.severity) == ("W201", "warning")
    assert warning.span is not None and warning.span.line == 5
    text = warning.render()
    assert text.startswith("a.rccl:5:17: warning[W201]: transfer(0, 1, 3, 0, recv)")
    assert "again=1, r=0, s=0" in text
    assert "12 transfers of this line" in text


def test_a_transfer_that_nothing_comes_of() -> None:
    text = """ResCCLAlgo(nRanks=4, OpType="Reduce", nChunks=1):
    for r in range(1, 4):
        transfer(r, 0, 0, 0, rrc)
    transfer(0, 1, 1, 0, recv)
    transfer(1, 2, 2, 0, recv)
"""
    found = _warnings(text)
    assert [(w.code, w.span.line if w.span else 0) for w in found] == [("W202", 4), ("W202", 5)]


def test_few_lines_are_shown() -> None:
    rows = "".join(f"    transfer({i % 2}, {1 - i % 2}, {i}, 0, recv)\n" for i in range(1, 40))
    text = 'ResCCLAlgo(nRanks=2, OpType="Broadcast", nChunks=1):\n    transfer(0, 1, 0, 0, recv)\n'
    found = _warnings(text + rows)
    assert len(found) == 4
    assert found[-1].message.endswith("; 35 more lines have such transfers")
