"""benchmarks/machines.py: every machine below a directory, in bounded time; others are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import machines, shares

TABLE = "\tGPU0\tGPU1\tGPU2\tGPU3\n" + "\n".join(
    "\t".join([f"GPU{u}", *("X" if u == v else "NV4" for v in range(4))]) for u in range(4)
)


def test_machines_are_bounded_and_others_named(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "quad.txt").write_text(TABLE)
    (tmp_path / "graph.xml").write_text("<graphs/>")
    (tmp_path / "other.md").write_text("nothing")
    quad, four, graph = machines.rows(tmp_path, (1, 4))
    assert isinstance(quad, machines.MachineRow) and isinstance(four, machines.MachineRow)
    assert (quad.file, quad.gpus, quad.device, quad.links) == ("quad.txt", 4, "A100", 6)
    assert quad.cuts["Allgather"] == pytest.approx(4 / 3 * 235, rel=1e-4)
    assert quad.best["Allgather"] == pytest.approx(quad.cuts["Allgather"])
    assert four.nodes == 4 and set(four.cuts) == set(quad.cuts) and len(quad.cuts) == 8
    assert isinstance(graph, str) and graph.startswith("graph.xml: ") and "<graphs>" in graph
    assert machines.table([quad, four]).row_count == 2


def test_machines_are_synthesised_and_the_least_shares_told(tmp_path: Path) -> None:
    path = tmp_path / "quad.txt"
    path.write_text(TABLE)
    found = [machines.share((path, nodes, "allgather", 1 << 30)) for nodes in (1, 2)]
    refused = shares.ShareRow("other.txt", "allgather", 1 << 30, refused="nothing serves it")
    assert [one.cluster for one in found] == ["quad.txt", "2 x quad.txt"]
    assert all(0.5 < one.share <= 1 and one.method for one in found)
    worst = machines.worst_table([refused, *found])
    assert list(worst.columns[0].cells)[-1] == "other.txt"
    assert shares.summary([refused, *found]).startswith("2 of 2 reach")
