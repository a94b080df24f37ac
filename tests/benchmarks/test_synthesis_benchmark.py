"""benchmarks/synthesis.py: its cases match their names, its figures the program's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hccc
from benchmarks import over_sizes, shares, sketches, speed, steps
from hccc.base.diagnostics import Source
from hccc.driver.inputs import load_cluster, parse_cluster
from hccc.ir.topology import same
from hccc.synth.synthesis import program_text

ROOT = Path(__file__).parents[2]
CLUSTERS = ROOT / "examples" / "clusters"


@pytest.mark.parametrize(("name", "fours", "eights"), [("4+8", 1, 1), ("4x2+8x2", 2, 2)])
def test_mixes_are_nodes_as_those_that_ship(name: str, fours: int, eights: int) -> None:
    made = parse_cluster(Source("mix", speed.mix(fours, eights)))
    assert same(made, load_cluster(CLUSTERS / f"heteccl-h20-{name}.cluster"))


def test_cases_have_the_gpus_that_they_name() -> None:
    for case in speed.cases():
        assert len(parse_cluster(Source("case", case.cluster))) == int(case.name.split()[0])


def test_figures_are_read_from_the_program() -> None:
    t = load_cluster(CLUSTERS / "heteccl-h20-4+8.cluster")
    made = hccc.synthesize(t, "allgather", 1 << 20, method="ring")
    share, method = speed.comments(program_text(made))
    assert share == pytest.approx(made.share(), abs=1e-3) and method == "ring"


def test_a_command_is_timed_and_ends() -> None:
    code, seconds, memory = speed.timed([sys.executable, "-c", "x = b'x' * (50 << 20)"], 30)
    assert code == 0 and seconds > 0 and 50 < memory < 500
    assert speed.timed([sys.executable, "-c", "import time; time.sleep(99)"], 0.2)[0] == "longer"


@pytest.mark.slow
def test_steps_of_one_cluster() -> None:
    row = steps.row(("h20-4+8", 2, 5.0))
    assert (row.bound, row.greedy, row.repair) == (5, 5, 5)
    assert len(steps.NAMES) == 12 and steps.table([row]).row_count == 1


@pytest.mark.slow
def test_shares_are_of_what_trees_reach_where_that_is_less() -> None:
    rows = [shares.row((name, "allgather", 1 << 30)) for name in ("hetccl-snu", "heteccl-h20-4x3")]
    assert [one.less for one in rows] == [True, False]
    assert all(0.9 < one.share <= 1 for one in rows)
    assert shares.table(rows).row_count == 2


@pytest.mark.slow
def test_one_size_over_its_rivals() -> None:
    row = over_sizes.row(("heteccl-h20-4x3", "alltoall", 1 << 20))
    assert row.rival and row.gain > 0 and not row.refused
    table = over_sizes.table([row])
    assert [column.header for column in table.columns][2:] == ["1M", "least against"]


@pytest.mark.slow
def test_an_unknown_case_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.synthesis", "--speed", "--clusters", "17-H20"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 2 and "17-H20" in done.stderr and "16-H20" in done.stderr


@pytest.mark.slow
def test_sketches_beside_all_methods() -> None:
    name = "syccl-a100-16"
    rows = [sketches.row((name, "allgather", 1 << 20, off, 99.0)) for off in ((), ("relays",))]
    assert rows[0].other and not rows[1].other
    assert rows[0].auto > 0 and 0 < rows[0].share <= 1
    assert sketches.table(rows).row_count == 2
