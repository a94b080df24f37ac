"""The paper's tables beside ours: figures come from simulations, and no row beats the bound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.paper import __main__ as paper
from benchmarks.paper import backends, expert, table3

SMALL = (8 << 20, 64 << 20)


def bench(place: Path, **setting: Any) -> Any:
    """Makes a Bench for small calls."""
    return backends.PaperBench(backends.PaperSetting(sizes=SMALL, **setting), place)


def run_command(*arguments: str) -> None:
    """Runs `python -m benchmarks.paper ARGUMENTS` in this process."""
    paper.main(list(arguments))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Returns the rows of Table 3 on Topo1."""
    found = table3.rows(bench(tmp_path_factory.mktemp("paper")), (1,))
    return list(found)


@pytest.mark.slow
def test_table_3_has_the_blocks_of_the_paper(rows: list[Any]) -> None:
    found = {row.cells[:2]: row.facts["ours"][0] for row in rows}
    for op in ("AllReduce", "AllGather"):
        assert found["MSCCL", f"expert {op}"] == 14
        assert found["ResCCL", f"expert {op}"] == 8


@pytest.mark.slow
def test_shares_are_simulated(rows: list[Any], tmp_path: Path) -> None:
    """Faster thread blocks wait more; busy and idle are the whole of a block's life."""
    faster = list(table3.rows(bench(tmp_path, block=25.0), (1,)))
    for row, fast in zip(rows, faster, strict=True):
        more = fast.facts["ours"][0] - row.facts["ours"][0]
        assert 0 <= more <= 1  # fast blocks keep links waiting for copies: one block more
        assert row.facts["ours"][1] != fast.facts["ours"][1]
        assert row.facts["ours"][1] + row.facts["ours"][2] == pytest.approx(100)
        assert row.facts["ours"][2] <= row.facts["ours"][3]


@pytest.mark.slow
def test_no_speed_up_beats_the_bound(tmp_path: Path) -> None:
    table = expert.table(bench(tmp_path), "fig8")
    assert {row.cells[2] for row in table.rows} == {"NCCL", "MSCCL"}
    for row in table.rows:
        found = row.facts["speed-ups"]
        for backend in ("ResCCL", "hccc", "best"):
            pairs = zip(found[backend], found["any"], strict=True)
            assert all(0 < ours <= most for ours, most in pairs), row.cells
        assert all(best >= hccc for hccc, best in zip(found["hccc"], found["best"], strict=True))


@pytest.mark.slow
def test_every_row_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    run_command("--table", "1", "--sizes", "8", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["setting"]["sizes"] == [8 << 20]
    (table,) = facts["tables"]
    assert len(table["rows"]) == 15
    for row in table["rows"]:
        assert row["why"]
        assert all(0 < share <= 1 for kind in row["utilisation"].values() for share in kind)


@pytest.mark.slow
def test_markdown_has_as_many_cells_in_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    run_command("--table", "fig9", "--sizes", "8")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 4
    assert len({line.count(" | ") for line in lines}) == 1
