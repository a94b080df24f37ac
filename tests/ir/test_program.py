"""`program.check` accepts every correct program and sees each field that is out of its range."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hccc.ir.program import Program, check, same
from hccc.lang.transfer.load import load
from hccc.testing import correct_programs

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.rccl"))
BAD = {
    "src": [-1, 1 << 20],
    "dst": [-1, 1 << 20],
    "step": [-1],
    "chunk": [-1, 1 << 30],
    "line": [-1],
    "op": [-1, 2],
}
HEADERS: list[dict[str, Any]] = [
    {"channels": 0},
    {"warps": -1},
    {"gpus_per_node": 0},
    {"gpus_per_node": 1 << 20},
    {"nics_per_node": 0},
    {"nics_per_node": 1 << 20},
]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_sound(path: Path) -> None:
    assert check(load(path)) == []


@pytest.mark.slow
@given(correct_programs())
def test_correct_programs_are_sound(program: Program) -> None:
    assert check(program) == []


@pytest.mark.slow
@given(correct_programs(), st.sampled_from(sorted(BAD)), st.data())
def test_a_corrupt_transfer_is_seen(program: Program, field: str, data: st.DataObject) -> None:
    table = program.transfers.copy()
    row = data.draw(st.integers(0, len(table) - 1))
    table[field][row] = data.draw(st.sampled_from(BAD[field]))
    problems = check(replace(program, transfers=table))
    assert any(field in problem for problem in problems)


@pytest.mark.slow
@given(correct_programs(), st.data())
def test_a_transfer_to_itself_or_out_of_order_is_seen(
    program: Program, data: st.DataObject
) -> None:
    table = program.transfers.copy()
    row = data.draw(st.integers(0, len(table) - 1))
    table["dst"][row] = table["src"][row]
    assert "a rank transfers to itself" in check(replace(program, transfers=table))
    backwards = np.ascontiguousarray(program.transfers[::-1])
    assume(backwards["step"][0] != backwards["step"][-1])
    problems = check(replace(program, transfers=backwards))
    assert problems == ["the transfers are not sorted by step"]


@pytest.mark.slow
@given(correct_programs(), st.sampled_from(HEADERS))
def test_a_corrupt_header_is_seen(program: Program, change: dict[str, Any]) -> None:
    problems = check(replace(program, **change))
    assert problems and all("GPUs" in text or next(iter(change)) in text for text in problems)


@pytest.mark.slow
@given(correct_programs(), st.sampled_from([{"n_chunks": 0}, {"root": -1}, {"n_ranks": 0}]))
def test_a_corrupt_collective_is_seen(program: Program, change: dict[str, Any]) -> None:
    collective = replace(program.collective, **change)
    assert check(replace(program, collective=collective))


@given(correct_programs(), st.sampled_from(["src", "dst", "step", "chunk", "op"]), st.data())
def test_programs_that_differ_are_not_the_same(
    program: Program, field: str, data: st.DataObject
) -> None:
    changed = program.transfers.copy()
    assert same(program, replace(program, transfers=changed.copy()))
    assert not same(program, replace(program, channels=program.channels + 1))
    assume(len(program))
    changed[field][data.draw(st.integers(0, len(program) - 1))] += 1
    assert not same(program, replace(program, transfers=changed))
    assert not same(program, replace(program, transfers=program.transfers[:-1]))
