"""The files of a directory are compared with those of its plan, byte for byte; others are
refused."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
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


def refused_to_run(place: Path) -> Problem:
    with pytest.raises(UserError) as error:
        compare.compare_kernels(place, Catalogue.of(PLAN), [CPU])
    return error.value.problem


def test_what_was_written_is_what_the_plan_emits(place: Path) -> None:
    found, made = compare.compare(place, Catalogue.of(PLAN))
    assert found == compare.Sources(len(FILES) - 1, ("cpu", "cuda", "hip"))
    assert made == {name: body for name, body in FILES.items() if name != "plan.json"}
    made = compare.compare_kernels(place, Catalogue.of(PLAN), TARGETS)
    assert made == FILES


Plant = Callable[[Path], object]
PLANTS: list[tuple[str, Plant]] = [
    ("sched.h", lambda path: path.write_text("")),
    ("ring_built.h", lambda path: path.write_text("")),
    ("hccc/more.h", lambda path: path.write_text("")),
    ("hccc/build", lambda path: path.mkdir()),
    ("bits", lambda path: path.mkdir()),
    ("notes.txt", lambda path: path.symlink_to("/dev/zero")),
    ("hccc/c.h", lambda path: path.symlink_to("hccc.h")),
    ("pipe", lambda path: os.mkfifo(path)),
    (".hidden", lambda path: path.write_text("")),
    ("ring_2.cu", lambda path: path.write_text("")),
]


@pytest.mark.parametrize(("name", "plant"), PLANTS, ids=lambda x: x if isinstance(x, str) else "")
def test_what_hccc_does_not_write_is_refused(place: Path, name: str, plant: Plant) -> None:
    plant(place / name)
    for hold in (refused, refused_to_run):
        problem = hold(place)
        assert problem.code == "E428" and str(place / name) in problem.message
        assert "remove it" in (problem.help or "")


def test_links_in_the_place_of_files(place: Path, tmp_path: Path) -> None:
    """They hold what hccc writes, and could hold something else when they are read again."""
    (place / "hccc").rename(tmp_path / "elsewhere")
    (place / "hccc").symlink_to(tmp_path / "elsewhere")
    assert refused(place).code == refused_to_run(place).code == "E428"


def test_what_a_build_left(place: Path) -> None:
    """It is never read, so `run` does not mind it; `check` cannot speak for it, and says so."""
    (place / "build").mkdir()
    (place / "build" / "CMakeCache.txt").write_text("CMAKE_CXX_COMPILER=/tmp/mine")
    compare.compare_kernels(place, Catalogue.of(PLAN), [CPU])
    problem = refused(place)
    assert problem.code == "E428" and "what a build left" in problem.message
    assert "-B ELSEWHERE" in (problem.help or "")
    (place / "build" / "CMakeCache.txt").unlink()
    (place / "build").rmdir()
    (place / "build").symlink_to("/tmp")
    assert refused_to_run(place).code == "E428"


def test_a_full_folder_is_not_read_to_its_end(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "DIRECTORY_ENTRIES", len(FILES))
    for k in range(2 * len(FILES)):
        (place / f"x{k}").touch()
    assert re.search(r"/x\d+: a file", refused(place).message)


def test_the_plan_may_be_written_otherwise(place: Path) -> None:
    """The proof is of the plan's content, not of its layout."""
    (place / "plan.json").write_text(TEXT.replace("\n", " "))
    compare.compare(place, Catalogue.of(PLAN))


@pytest.mark.quick(12)
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
    assert compare.compare(tmp_path / "k", Catalogue.of(PLAN))[0].targets == ("cuda",)


def test_kernels_left_from_before_are_compared_as_well(place: Path) -> None:
    """Compiled again for fewer targets, the others put back: they can still be run."""
    before = {name: (place / name).read_text() for name in ("ring.cu", "ring.hip")}
    directory.write(place, directory.files(Catalogue.of(PLAN), [CPU], TEXT))
    for name, body in before.items():
        (place / name).write_text(body)
    assert compare.compare(place, Catalogue.of(PLAN))[0].targets == ("cpu",)
    directory.write(place, directory.files(Catalogue.of(OTHER), [CPU], plan_json.dumps(OTHER)))
    for name, body in before.items():
        (place / name).write_text(body)
    with pytest.raises(UserError, match=r"ring\.cu was not made from the plan\.json"):
        compare.compare(place, Catalogue.of(OTHER))
    with pytest.raises(UserError, match="E428"):
        compare.compare_kernels(place, Catalogue.of(OTHER), [HIP])
    compare.compare_kernels(place, Catalogue.of(OTHER), [CPU])


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
        compare.compare_kernels(tmp_path, Catalogue.of(PLAN), [CPU])
