"""The files of a directory are compared with those of its plan, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from hccc.base.diagnostics import Problem, UserError
from hccc.base.version import __version__
from hccc.emit import compare, directory
from hccc.emit.targets import CPU, CUDA, HIP, TARGETS
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from tests.emit import plans

PLAN = plans.compiled(plans.ring_allreduce(4))
TEXT = plan_json.dumps(PLAN)
FILES = directory.files(Catalogue.of(PLAN), TARGETS, TEXT)
OTHER = plans.compiled(plans.ring_allreduce(4), level="none")  # the same name, another plan


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory.write(tmp_path / "k", FILES)
    return tmp_path / "k"


def refused(place: Path) -> Problem:
    with pytest.raises(UserError) as error:
        compare.compare(place, Catalogue.of(PLAN))
    return error.value.problem


def test_what_was_written_is_what_the_plan_emits(place: Path) -> None:
    found = compare.compare(place, Catalogue.of(PLAN))
    assert found == compare.Sources(len(FILES) - 1, ("cpu", "cuda", "hip"))
    (place / "mine.txt").write_text("of no interest")
    assert compare.compare(place, Catalogue.of(PLAN)) == found


def test_the_plan_may_be_written_otherwise(place: Path) -> None:
    """The proof is of the plan's content, not of its layout."""
    (place / "plan.json").write_text(TEXT.replace("\n", " "))
    compare.compare(place, Catalogue.of(PLAN))


@pytest.mark.parametrize("name", sorted(FILES.keys() - {"plan.json"}))
def test_any_file_that_differs_is_named(place: Path, name: str) -> None:
    body = FILES[name]
    for wrong in (body.replace("r", "R", 1), body + "\n", body[:-1], ""):
        (place / name).write_text(wrong)
        problem = refused(place)
        assert problem.code == "E428" and str(place / name) in problem.message
    (place / name).unlink()
    problem = refused(place)
    assert problem.code in ("E427", "E428") and str(place) in problem.message


def test_one_target_only(tmp_path: Path) -> None:
    directory.write(tmp_path / "k", directory.files(Catalogue.of(PLAN), [CUDA], TEXT))
    assert compare.compare(tmp_path / "k", Catalogue.of(PLAN)).targets == ("cuda",)


def test_kernels_left_from_before_are_compared_as_well(place: Path) -> None:
    """Compiled again for fewer targets, the others put back: they can still be run."""
    before = {name: (place / name).read_text() for name in ("ring.cu", "ring.hip")}
    directory.write(place, directory.files(Catalogue.of(PLAN), [CPU], TEXT))
    for name, body in before.items():
        (place / name).write_text(body)
    assert compare.compare(place, Catalogue.of(PLAN)).targets == ("cpu",)
    directory.write(place, directory.files(Catalogue.of(OTHER), [CPU], plan_json.dumps(OTHER)))
    for name, body in before.items():
        (place / name).write_text(body)
    with pytest.raises(UserError, match=r"ring\.cu was not made from the plan\.json"):
        compare.compare(place, Catalogue.of(OTHER))
    with pytest.raises(UserError, match="E428"):
        compare.compare_kernels(place, Catalogue.of(OTHER), HIP)
    compare.compare_kernels(place, Catalogue.of(OTHER), CPU)


def test_another_version_of_hccc_is_named(place: Path) -> None:
    for path in (p for p in place.rglob("*") if p.is_file()):
        path.write_text(path.read_text().replace(f"hccc {__version__} from", "hccc 0.0.9 from"))
    problem = refused(place)
    assert f"written by hccc 0.0.9, and this is {__version__}" in problem.message


def test_a_file_that_cannot_be_read_is_no_match(place: Path) -> None:
    (place / "ring.h").unlink()
    (place / "ring.h").symlink_to("/dev/zero")
    assert refused(place).code == "E428"


def test_no_kernels_at_all(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(TEXT)
    assert refused(tmp_path).code == "E427"
    with pytest.raises(UserError, match="E427"):
        compare.compare_kernels(tmp_path, Catalogue.of(PLAN), CPU)
