"""How results look in prompts, notebooks and data frames; sizes as text; `hccc.run`; errors in
Python's words."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hccc
from hccc.api.wording import in_python

ROOT = Path(__file__).parents[2]
RING = ROOT / "examples" / "ring_allreduce.rccl"
XML = ROOT / "tests" / "interop" / "data" / "allreduce_pair_n2.xml"
PLAIN = hccc.Options(tune="off")


@pytest.fixture(scope="module")
def ring() -> hccc.Compiled:
    """Compiles a ring for the cluster of its header."""
    return hccc.compile(RING, PLAIN, cluster="dgx-h100")


@pytest.fixture(scope="module")
def simulation(ring: hccc.Compiled) -> hccc.Simulation:
    return hccc.simulate(ring, ["64K", 1 << 20], vs=True, options=PLAIN)


@pytest.mark.slow
def test_values_are_shown_in_a_line(ring: hccc.Compiled, simulation: hccc.Simulation) -> None:
    cluster = hccc.load_cluster("dgx-h100")
    found = {
        "CompiledProgram": ring,
        "Plan": ring.plan,
        "Simulation": simulation,
        "Topology": cluster,
        "Explanation": hccc.explain(ring, "1M"),
        "Bounds": hccc.bound(cluster, "allgather"),
        "Difference": hccc.diff(ring, ring, "1M", cluster=cluster, options=PLAIN),
        "Picture": hccc.show(cluster),
        "Synthesis": hccc.synthesize(cluster, "allgather", "64K", method="direct"),
    }
    for name, value in found.items():
        text = repr(value)
        assert text.startswith(f"<{name} ") and "\n" not in text and len(text) < 400, text
    assert repr(ring) == (
        f"<CompiledProgram {ring.plan.name}: Allreduce over 8 ranks, 1 plan, proved, "
        "for dgx-h100.cluster>"
    )
    assert (
        repr(ring.plan)
        == f"<Plan {ring.plan.name}: Allreduce over 8 ranks, {len(ring.plan):,} primitives>"
    )
    assert repr(found["Difference"]).endswith(" on dgx-h100.cluster, 1 size>")
    for name in ("Simulation", "Explanation", "Bounds", "Synthesis", "Difference"):
        shown: Any = found[name]
        assert "<pre" in shown._repr_html_() and "&lt;" not in repr(shown)
    assert "<svg" in hccc.show(cluster)._repr_svg_()


def test_rows_of_a_simulation(simulation: hccc.Simulation) -> None:
    """NCCL's own choice is among them: what its text has, a plot has."""
    rows = simulation.records()
    names = [row["name"] for row in rows]
    assert names[:2] == ["hccc", "NCCL"] and names.count("NCCL") == 2
    assert len(simulation) == 2 and [one.size for one in simulation] == [1 << 16, 1 << 20]
    nccl = rows[1]
    assert nccl["algorithm"] and 0 < float(str(nccl["time"])) == simulation.library[0].time  # type: ignore[union-attr]


def test_data_frames(simulation: hccc.Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(hccc.UserError, match=r"E477.*pandas"):
        simulation.to_frame()
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda rows: ("frame", rows)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert simulation.to_frame() == ("frame", simulation.records())


def test_sizes_are_text_too(ring: hccc.Compiled) -> None:
    assert hccc.simulate(ring, "64M").rows == hccc.simulate(ring, 64 << 20).rows
    with pytest.raises(hccc.UserError, match=r"E410.*'64X' is not a size"):
        hccc.simulate(ring, "64X")


@pytest.mark.slow
def test_run() -> None:
    """Every element of real data is checked."""
    found = hccc.run(RING, hccc.Sizes(1 << 10, 4 << 10), launches=2, warmups=0, options=PLAIN)
    assert [row.size for row in found] == [1 << 10, 4 << 10] and found.wrong == 0
    assert {row["in_place"] for row in found.records()} == {False, True}
    assert all(float(str(row["time"])) > 0 and row["wrong"] == 0 for row in found.records())
    assert repr(found).startswith("<Measurement ring_allreduce: Allreduce over 8 ranks: 2 rows")
    title, head, *rows = found.text().splitlines()
    assert title == found.title and head.split()[:2] == ["size", "count"] and len(rows) == 4
    assert [row.split()[5] for row in rows] == ["no", "yes"] * 2
    assert found._repr_html_().count("float32") == 4


@pytest.mark.parametrize(
    ("said", "python"),
    [
        ("say which with --cluster FILE", "say which with cluster=FILE"),
        (
            "without --channels, --max-sms and --tune off",
            'without channels, max_sms and tune="off"',
        ),
        ("--scheduler 'x' is not one of", "scheduler 'x' is not one of"),
        ("--channels 32, or --no-prove", "channels=32, or prove=False"),
        ("`hccc run --procs 4` does", "`hccc run --procs 4` does"),
        ("a smaller -b, or a larger -e", "a smaller `smallest`, or a larger `largest`"),
        ("well-known: a--b, x -by", "well-known: a--b, x -by"),
    ],
)
def test_options_are_named_as_python_has_them(said: str, python: str) -> None:
    assert in_python(said) == python


def test_errors_speak_python() -> None:
    with pytest.raises(hccc.UserError) as caught:
        hccc.simulate(XML, "1M")
    problem = caught.value.problem
    assert problem.code == "E424" and "--" not in f"{problem.message} {problem.help}"
    assert "cluster=" in f"{problem.message} {problem.help}"
    for options, said in (({"scheduler": "x"}, "scheduler 'x' is"), ({"slots": 3}, "slots 3 is")):
        with pytest.raises(hccc.UserError, match=rf"^error\[E410\]: {said} not "):
            hccc.Options(**options)
