"""`import hccc`: every function, on every kind of input, and its errors."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hccc
from hccc.driver.options import Options
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.predict.simulation import Sizes
from tests.cli.commandline import environment
from tests.sabotage import without_wait

ROOT = Path(__file__).parents[2]
RING = ROOT / "examples" / "ring_allreduce.rccl"
HM = ROOT / "examples" / "hm_allreduce.rccl"
DGX = ROOT / "examples" / "clusters" / "dgx-h100.cluster"
TOPO4 = ROOT / "examples" / "clusters" / "resccl-topo4.cluster"
XML = ROOT / "tests" / "interop" / "data" / "allreduce_pair_n2.xml"
TEXT = """
ResCCLAlgo(nRanks=2, AlgoName="swap", OpType="Allgather"):
    transfer(0, 1, 0, 0, recv)
    transfer(1, 0, 0, 1, recv)
"""


def test_all_names_are_there() -> None:
    everything: dict[str, object] = {}
    exec("from hccc import *", everything)
    assert set(dir(hccc)) == everything.keys() - {"__builtins__"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hccc._load("nothing")


def test_type_checkers_see_what_there_is() -> None:
    """They read imports, which are not executed; Python a table."""
    read = {
        (node.module, alias.asname)
        for node in ast.walk(ast.parse(Path(hccc.__file__).read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert read == {(module, name) for name, module in hccc._HOME.items()} | {
        ("hccc.base.version", "__version__")
    }


def test_importing_takes_nothing_heavy() -> None:
    program = "import sys, hccc\nsys.exit(sorted({'numpy', 'numba', 'click'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.strip()) == (1, "[]") or done.returncode == 0


@pytest.mark.slow
def test_a_path_a_text_a_source_and_a_program_compile_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "swap.rccl"
    path.write_text(TEXT)
    compiled = [hccc.compile(x) for x in (path, str(path), TEXT, hccc.Source("swap.rccl", TEXT))]
    assert isinstance(compiled[0], hccc.CompiledProgram)
    compiled.append(hccc.compile(compiled[0].program))
    assert len({len(one.plan) for one in compiled}) == 1
    assert {p.name for p in compiled[-1].proofs} == {"program", "deadlock", "race", "result"}


@pytest.mark.slow
def test_a_directory_is_checked_and_simulated_as_it_was_made(tmp_path: Path) -> None:
    compiled = hccc.compile(HM, Options(channels=2), cluster=TOPO4)
    written = hccc.write(compiled, tmp_path / "kernels", ["cpu"])
    assert "plan.json" in written.files
    assert sum(written.files.values()) > 10_000
    again = hccc.check(tmp_path / "kernels")
    assert isinstance(again, hccc.CheckedDirectory) and again.sources.files > 1
    made = again.plan.provenance
    assert made is not None and made.cluster is not None
    assert made.options["channels"] == 2
    assert made.version == hccc.__version__
    assert made.cluster.name == str(TOPO4)
    here, there = (hccc.simulate(x, [1 << 20]).results[0].time for x in (compiled, again))
    assert here == there  # on the cluster that is in plan.json


@pytest.mark.slow
def test_simulate_and_explain() -> None:
    compiled = hccc.compile(RING, cluster=DGX)
    simulation = hccc.simulate(compiled, Sizes(1 << 10, 1 << 20, 32.0), hccc.Call(window=1))
    assert [result.size for result in simulation.results] == [1 << 10, 1 << 15, 1 << 20]
    assert all(result.time > 0 for result in simulation.results)
    assert "ring_allreduce: Allreduce over 8 ranks" in simulation.text()
    rows = hccc.simulate(RING, 1 << 20, cluster=DGX, vs=True).rows
    assert [figures.name for figures in rows[0]][:2] == ["hccc", "NCCL ring"]
    explanation = hccc.explain(compiled, 1 << 20)
    assert sum(explanation.gap.parts.values()) == pytest.approx(explanation.gap.run.time)


@pytest.mark.slow
def test_show_draws() -> None:
    compiled = hccc.compile(RING, cluster=DGX)
    for what in (None, "topology", "dag", "pipeline", "timeline"):
        assert "<svg" in hccc.show(compiled, what).svg
    assert "<svg" in hccc.show(hccc.load_cluster(DGX)).svg
    assert hccc.show(DGX).svg == hccc.show(hccc.load_cluster(DGX)).svg


@pytest.mark.slow
def test_draw_writes_what_show_draws_and_the_page(tmp_path: Path) -> None:
    compiled = hccc.compile(RING, cluster=DGX)
    picture, page, trace = (tmp_path / name for name in ("x.svg", "x.html", "x.json"))
    hccc.draw(compiled, picture, "dag")
    assert picture.read_text() == hccc.show(compiled, "dag").svg
    hccc.draw(compiled, page, trace=trace, size=1 << 16)
    assert page.read_text().count("<svg") >= 4
    assert trace.read_text().startswith("{")
    hccc.draw(DGX, picture)
    assert picture.read_text() == hccc.show(DGX).svg


@pytest.mark.slow
def test_a_plan_and_xml_go_in_too() -> None:
    compiled = hccc.compile(RING)
    assert len(hccc.check(compiled.plan).proofs) == 3
    assert len(hccc.check(compiled).proofs) == 3
    assert not isinstance(hccc.compile(XML), hccc.CompiledProgram)
    assert isinstance(hccc.compile(XML, reschedule=True), hccc.CompiledProgram)


def test_what_is_written_is_proved(tmp_path: Path) -> None:
    """A plan with a wait taken away races: it is not written, proved before or not."""
    unproved = hccc.compile(RING, Options(prove=False, plans=1))
    assert {proof.name for proof in unproved.proofs} == {"program"}
    broken = replace(unproved, catalogue=Catalogue.of(without_wait(unproved.plan, 0)))
    with pytest.raises(hccc.UserError, match="E3"):
        hccc.write(broken, tmp_path / "kernels")
    assert not (tmp_path / "kernels").exists()
    written = hccc.write(unproved, tmp_path / "kernels", ["cpu"]).files
    assert not [name for name in written if name.endswith((".cu", ".hip"))]


def test_drawing_writes_over_nothing_that_is_read(tmp_path: Path) -> None:
    algorithm, site = tmp_path / "ring.rccl", tmp_path / "dgx.cluster"
    algorithm.write_text(RING.read_text())
    site.write_text(DGX.read_text())
    kernels = tmp_path / "kernels"
    hccc.write(hccc.compile(algorithm), kernels, ["cpu"])
    for subject, trace in (
        (algorithm, algorithm),
        (algorithm, site),
        (kernels, kernels / "plan.json"),
        (hccc.compile(kernels), kernels / "plan.json"),
    ):
        before = trace.read_bytes()
        with pytest.raises(hccc.UserError, match="read, too"):
            hccc.draw(subject, None, trace=trace, cluster=site)
        assert trace.read_bytes() == before


@pytest.mark.slow
def test_a_plan_file_may_tell_of_options_that_there_are_not(tmp_path: Path) -> None:
    """Provenance is told, and never believed."""
    path = tmp_path / "plan.json"
    plan = json.loads(plan_json.dumps(hccc.compile(RING, cluster=DGX).plan))
    for options in ({"channels": "x"}, {"transport": "foo"}, {"slots": 3}, {"scheduler": "zzz"}):
        plan["provenance"]["options"] = options
        path.write_text(json.dumps(plan))
        assert "<svg" in hccc.show(path, "timeline", size=1 << 16).svg
        assert hccc.explain(path, 1 << 16).text()


def made(**changes: Any) -> hccc.Program:
    """Makes a Program that breaks a rule of every Program."""
    compiled = hccc.compile(TEXT)
    assert isinstance(compiled, hccc.CompiledProgram)
    return replace(compiled.program, **changes)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda: hccc.compile("nothing.rccl"), "E401"),
        (lambda: hccc.compile(TEXT.replace("recv", "rrc")), "E109"),
        (lambda: hccc.compile(TEXT, cluster=DGX), "E130"),
        (lambda: hccc.load_cluster("define\n"), "E030"),
        (lambda: hccc.simulate(XML), "E424"),
        (lambda: hccc.explain(XML), "E424"),
        (lambda: hccc.show(XML, "timeline"), "E424"),
        (lambda: hccc.show(XML, "dag"), "E434"),
        (lambda: hccc.show(DGX, "dag"), "E434"),
        (lambda: hccc.draw(DGX, "x.svg", trace="x.json"), "E434"),
        (lambda: hccc.draw(RING, "x.txt"), "E433"),
        (lambda: hccc.draw(RING, None), "E415"),
        (lambda: hccc.compile(made(name="x; rm -r y")), "E206"),
        (lambda: hccc.compile(made(channels=0)), "E206"),
        (lambda: hccc.compile(""), "E401"),
        (lambda: hccc.compile(made(), reschedule=True), "E416"),
        (lambda: hccc.check(hccc.compile(RING), cluster="nowhere"), "E416"),
        (lambda: hccc.compile(DGX), "E416"),
        (lambda: hccc.compile(RING, name="a ring"), "E410"),
        (lambda: hccc.compile([], cluster=DGX), "E416"),
        (lambda: hccc.compile([RING, RING], cluster=DGX, reschedule=True), "E416"),
        (lambda: hccc.compile([RING, RING], cluster=DGX, name=5), "E410"),  # type: ignore[arg-type]
        (lambda: hccc.compile([RING, 5], cluster=DGX), "E410"),  # type: ignore[list-item]
        (lambda: Options(sizes=5), "E410"),  # type: ignore[arg-type]
        (lambda: hccc.Call(window=-1), "E410"),
        (lambda: hccc.Call(micro_batch=-1), "E410"),
        (lambda: hccc.Call(protocol="XX"), "E410"),
        (lambda: hccc.Call(contention=-1), "E410"),
        (lambda: hccc.simulate(RING, -5, cluster=DGX), "E410"),
        (lambda: hccc.simulate(RING, [1.5], cluster=DGX), "E410"),  # type: ignore[list-item]
        (lambda: hccc.simulate(RING, "1X", cluster=DGX), "E410"),
        (lambda: hccc.explain(RING, -1, cluster=DGX), "E410"),
        (lambda: hccc.show(RING, "timeline", size=-3, cluster=DGX), "E410"),
        (lambda: hccc.show(RING, "timelin"), "E410"),
        (lambda: hccc.draw(RING, "x.svg", "nonsense"), "E410"),
        (lambda: hccc.write(hccc.compile(RING), "x", ["gpu"]), "E410"),
        (lambda: Options(transport="staged"), "E410"),  # type: ignore[arg-type]
        (lambda: Options(channels=2.0), "E410"),  # type: ignore[arg-type]
        (lambda: Options(channels=True), "E410"),
        (lambda: Options(channels=65), "E410"),
        (lambda: Options(fuse="everything"), "E410"),
    ],
)
def test_what_is_wrong_is_one_exception(wrong: Callable[[], object], code: str) -> None:
    with pytest.raises(hccc.UserError) as caught:
        wrong()
    problem = caught.value.problem
    assert problem.message in str(caught.value)
    assert problem.code == code


@pytest.mark.slow
@pytest.mark.parametrize("given", [RING, "made", "plan"])
def test_one_algorithm_may_have_another_name(given: object, tmp_path: Path) -> None:
    algorithm: Any = made() if given == "made" else given
    if given == "plan":
        hccc.write(hccc.compile(RING), tmp_path / "kernels", ["cpu"])
        algorithm = tmp_path / "kernels"
    compiled = hccc.compile(algorithm, name="other")
    assert compiled.catalogue.name == "other" and "other" in compiled.plan_names()[0]
    hccc.write(compiled, tmp_path / "named", ["cpu"])
    assert (tmp_path / "named" / "other.h").exists()
    assert hccc.check(tmp_path / "named").catalogue.name == "other"
