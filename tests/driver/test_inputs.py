"""Inputs: whatever is given is one value, made once; loading matches on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hccc.api import functions as api
from hccc.base.diagnostics import Source, UserError
from hccc.driver.compiled import CheckedDirectory, CompiledProgram, LoadedDirectory, LoadedPlans
from hccc.driver.inputs import (
    ClusterInput,
    DirectoryInput,
    PlanInput,
    ProgramInput,
    XmlInput,
    name_of,
    opened,
    parse_cluster,
)
from hccc.driver.load import load, load_library
from hccc.driver.options import Options
from hccc.ir import catalogue_json
from hccc.ir.plan import Plan
from tests.emit import catalogues, plans

ROOT = Path(__file__).parents[2]
RING = ROOT / "examples" / "ring_allreduce.rccl"
CLUSTER = ROOT / "examples" / "clusters" / "dgx-h100.cluster"
XML = ROOT / "tests" / "interop" / "data" / "allreduce_pair_n2.xml"


def ring() -> Plan:
    return plans.compiled(plans.ring_allreduce(4))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Writes a directory of kernels of two plans."""
    return catalogues.written(catalogues.both(), tmp_path / "both")


def test_paths_and_texts_are_what_they_hold(directory: Path) -> None:
    text = catalogue_json.dumps(catalogues.both())
    given = {
        RING: ProgramInput,
        str(RING): ProgramInput,
        RING.read_text(): ProgramInput,
        CLUSTER: ClusterInput,
        XML: XmlInput,
        Source("x", text): PlanInput,
        directory: DirectoryInput,
    }
    for value, kind in given.items():
        assert type(opened(value)) is kind
    assert name_of(opened(RING)) == str(RING) and name_of(opened(directory)) == str(directory)


def test_values_are_inputs_and_inputs_stay_what_they_are() -> None:
    program, plan = plans.ring_allreduce(4), ring()
    cluster = parse_cluster(Source("c", CLUSTER.read_text()))
    for value, wanted in (
        (program, ProgramInput(program)),
        (plan, PlanInput(plan)),
        (cluster, ClusterInput(cluster)),
    ):
        given = opened(value)
        assert given == wanted and opened(given) is given
        assert name_of(given) == value.name


@pytest.mark.parametrize(("given", "code"), [("", "E401"), (3, "E410"), (None, "E410")])
def test_what_is_no_input(given: object, code: str) -> None:
    with pytest.raises(UserError, match=code):
        opened(given)


@pytest.mark.slow
def test_what_is_loaded_has_the_fields_that_it_can_have(directory: Path) -> None:
    made = load(opened(RING), Options(tune="off"))
    assert isinstance(made, CompiledProgram) and made.catalogue.alone
    assert made.pipeline.dag is made.dag and made.dag.program is made.program
    assert made.options.tune == "off" and made.plan is made.catalogue.plans[0]
    assert made.catalogue_proofs == (made.proofs,)
    plain = load(opened(ring()))
    assert type(plain) is LoadedPlans and plain.proofs == ()  # a Plan in hand is not proved
    xml = load(opened(XML))
    assert type(xml) is LoadedPlans and "deadlock" in {proof.name for proof in xml.proofs}
    read = load(opened(directory))
    assert type(read) is LoadedDirectory and read.directory == directory
    assert len(read.catalogue_proofs) == 2 and read.proofs == read.catalogue_proofs[1]
    checked = api.check(directory)
    assert isinstance(checked, CheckedDirectory) and checked.sources.files > 2
    assert checked.catalogue.ranges == read.catalogue.ranges


def test_clusters_and_plans_are_no_algorithms(directory: Path) -> None:
    with pytest.raises(UserError, match="is a cluster, and no algorithm"):
        load(opened(CLUSTER))
    with pytest.raises(UserError, match=f"{directory} is no program"):
        load_library([opened(RING), opened(directory)])
    with pytest.raises(UserError, match=r"plan\.json is not MSCCL XML"):
        load(opened(directory), reschedule=True)


def test_a_library_is_renamed_with_its_plans_and_options(directory: Path) -> None:
    made = load(opened(RING), Options(tune="off")).renamed("other")
    assert isinstance(made, CompiledProgram)
    assert (made.plan.name, made.catalogue.name, made.plan_names()) == ("other", "other", ["other"])
    assert made.options.channels == made.plan.channels
    assert load(opened(directory)).renamed("two").plan_names() == ["two_1", "two_2"]


def test_the_plan_that_a_call_runs(directory: Path) -> None:
    read = load(opened(directory))
    assert read.at(8, in_place=False).plan.name == "both_1"
    assert read.at(1 << 30, in_place=False).plan.name == "both_2"
    plain = load(opened(ring()))
    assert plain.at(8, in_place=False) is plain
