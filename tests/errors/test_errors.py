"""Every wrong program in this folder is refused with the diagnostic beside it.

`name.expected`: `code:line:column` (`code:-` without a place), then lines that the printed
diagnostic contains.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hccc.base.diagnostics import Problem, UserError
from hccc.lang.transfer.load import load
from tests.marks import slow

HERE = Path(__file__).parent
HEADER = 'ResCCLAlgo(nRanks=8, OpType="Allreduce"):\n'


def _problem(path: Path) -> Problem:
    with pytest.raises(UserError) as caught:
        load(path)
    return caught.value.problem


def _place(problem: Problem) -> str:
    span = problem.span
    return f"{problem.code}:{f'{span.line}:{span.column}' if span else '-'}"


@pytest.mark.parametrize("path", sorted(HERE.glob("*.rccl")), ids=lambda path: path.stem)
def test_wrong_program(path: Path) -> None:
    expected = path.with_suffix(".expected").read_text().splitlines()
    problem = _problem(path)
    assert _place(problem) == expected[0]
    for line in expected[1:]:
        assert line in problem.render()


def test_every_expectation_has_its_program() -> None:
    programs = {path.stem for path in HERE.glob("*.rccl")}
    assert programs == {path.stem for path in HERE.glob("*.expected")}
    assert len(programs) > 80


LOOPS = "".join(f"{' ' * (i + 1)}for i{i} in range(1):\n" for i in range(1000))
GENERATED = {
    "parentheses": ("a = " + "(" * 1000 + "1" + ")" * 1000, "E006:2:209"),
    "operands": ("a = " + "(1 + " * 150 + "1" + ")" * 150, "E006:2:"),
    "signs": ("a = " + "- " * 1000 + "nRanks", "E006:2:"),
    "nots": ("a = " + "not " * 1000 + "nRanks", "E006:2:"),
    "powers": ("a = " + "1 ** " * 1000 + "1", "E006:2:"),
    "calls": ("a = " + "min(1, " * 150 + "1" + ")" * 150, "E006:2:"),
    "blocks": (LOOPS.lstrip() + " " * 1001 + "a = 1", "E006:66:1"),
    "words": ("a = 1" + " + 1" * 200_000, "E007:2:"),
    "long_name": ("a = " + "b" * 1_000_000, "E101:2:"),
    "work": ("for i in range(2**27):\n" + "        a = i * 3 % 7\n" * 40, "E114:-"),
}


AT_LENGTH = ("words", "work")


@pytest.mark.parametrize("name", [slow(n) if n in AT_LENGTH else n for n in sorted(GENERATED)])
def test_generated_program(name: str, tmp_path: Path) -> None:
    body, place = GENERATED[name]
    path = tmp_path / "deep.rccl"
    path.write_text(HEADER + "    " * (name != "blocks") + " " * (name == "blocks") + body + "\n")
    problem = _problem(path)
    assert _place(problem).startswith(place), problem.render()[:500]
    assert len(problem.render()) < 2000


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert _problem(tmp_path / "missing.rccl").code == "E401"
    assert _problem(tmp_path).code == "E401"
    assert _problem(Path("nul\0byte")).code == "E401"


def test_large_file(tmp_path: Path) -> None:
    path = tmp_path / "large.rccl"
    with path.open("wb") as file:
        file.truncate((128 << 20) + 1)
    assert _problem(path).code == "E404"


def test_errors_survive_pickling() -> None:
    import pickle

    with pytest.raises(UserError) as caught:
        load(HERE / "inexact_division.rccl")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
