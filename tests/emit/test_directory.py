"""Output directories: their files, written whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hccc.base.diagnostics import InternalError, UserError
from hccc.base.files import lock, writing
from hccc.base.files.writing import beside
from hccc.emit import directory
from hccc.emit.kernels import source
from hccc.emit.targets import CPU, TARGETS
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from tests.emit import plans

PLAN = plans.compiled(plans.ring_allreduce(4))
FILES = directory.files(Catalogue.of(PLAN), TARGETS, plan_json.dumps(PLAN))


OTHER = plans.compiled(plans.ring_allreduce(6))
OTHER_FILES = directory.files(Catalogue.of(OTHER), TARGETS, plan_json.dumps(OTHER))


TREE = replace(PLAN, name="tree")
TREE_FILES = directory.files(Catalogue.of(TREE), TARGETS, plan_json.dumps(TREE))


def held(place: Path) -> dict[str, str]:
    """Returns the text of every file below `place`."""
    found = (p for p in place.rglob("*") if p.is_file())
    return {str(p.relative_to(place)): p.read_text(encoding="utf-8") for p in found}


def refused(place: Path, code: str) -> UserError:
    with pytest.raises(UserError) as error:
        directory.write(place, FILES)
    assert error.value.problem.code == code
    assert str(place.parent) in error.value.problem.message
    return error.value


def test_contents() -> None:
    wanted = {"plan.json", "CMakeLists.txt", "ring.h", "ring.cu", "ring.hip", "ring_cpu.cpp"}
    assert wanted <= FILES.keys() and {"hccc/hccc.h", "hccc/device.h"} <= FILES.keys()
    assert FILES["ring.cu"] == source.cuda(PLAN) and FILES["ring_cpu.cpp"] == source.cpu(PLAN)
    assert directory.files(Catalogue.of(PLAN), TARGETS, plan_json.dumps(PLAN)) == FILES
    assert all("/work" not in body and "/tmp" not in body for body in FILES.values())


def test_one_target_only() -> None:
    made = directory.files(Catalogue.of(PLAN), [CPU], "")
    assert "ring.cu" not in made and "CUDA_COMPILER" not in made["CMakeLists.txt"]


def test_a_new_directory_gets_all_files_and_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b" / "kernels"
    assert len(directory.write(place, FILES)) == len(FILES)
    assert held(place) == FILES and os.listdir(place.parent) == ["kernels"]


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    directory.write(tmp_path, FILES)
    assert held(tmp_path) == FILES


def test_a_second_time_touches_only_what_differs(tmp_path: Path) -> None:
    place = tmp_path / "kernels"
    directory.write(place, FILES)
    (place / "mine.txt").write_text("keep me")
    (place / "ring.cu").write_text("old")
    before = {p: p.stat().st_mtime_ns for p in place.rglob("*")}
    assert directory.write(place, FILES) == [place / "ring.cu"]
    assert directory.write(place, FILES) == []
    assert held(place) == FILES | {"mine.txt": "keep me"}
    unchanged = [p for p in before if p.is_file() and p.name != "ring.cu"]
    assert all(p.stat().st_mtime_ns == before[p] for p in unchanged)


def test_somebody_elses_directory_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "home"
    place.mkdir()
    (place / "thesis.tex").write_text("x")
    refused(place, "E430")
    (place / "plan.json").write_text('{"my": "plan"}')
    refused(place, "E430")
    assert set(held(place)) == {"thesis.tex", "plan.json"}


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "kernels"
    place.write_text("x")
    refused(place, "E430")
    refused(place / "deeper", "E431")
    assert place.read_text() == "x"


def test_what_is_refused_is_refused_before_any_work(tmp_path: Path) -> None:
    file, link, home = tmp_path / "file", tmp_path / "link", tmp_path / "home"
    file.write_text("x")
    link.symlink_to(tmp_path / "gone")
    home.mkdir()
    directory.check(home)
    directory.check(tmp_path / "new" / "deeper")
    directory.write(tmp_path / "ours", FILES)
    directory.check(tmp_path / "ours")
    (home / "thesis.tex").write_text("x")
    for place, code in (
        (file, "E430"),
        (link, "E430"),
        (home, "E430"),
        (file / "deeper", "E431"),
    ):
        with pytest.raises(UserError) as error:
            directory.check(place)
        assert error.value.problem.code == code
    assert set(held(tmp_path)) >= {"file", "home/thesis.tex"} and not (tmp_path / "new").exists()


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kernels").symlink_to(tmp_path / "gone")
    refused(tmp_path / "kernels", "E430")
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("name", ["ring.cu", "hccc"])
def test_a_link_or_directory_in_the_way_is_refused(tmp_path: Path, name: str) -> None:
    place, other = tmp_path / "kernels", tmp_path / "other"
    directory.write(place, FILES)
    if (place / name).is_dir():
        (place / name).rename(other)
    else:
        other.write_text("precious")
        (place / name).unlink()
    (place / name).symlink_to(other)
    (place / "ring.h").write_text("old")
    refused(place, "E430")
    assert (place / "ring.h").read_text() == "old"


def make(place: Path, what: str) -> None:
    """Fills the place beforehand: with nothing, or with one of these."""
    if what == "empty":
        place.mkdir(parents=True)
    elif what == "kernels":
        directory.write(place, dict.fromkeys(FILES, "old") | {"plan.json": FILES["plan.json"]})
    elif what == "another algorithm":
        directory.write(place, TREE_FILES)


def before_failing(tmp_path: Path, what: str) -> tuple[Path, object]:
    """Makes a place with `what` in it; returns it and all its files before something fails."""
    place = tmp_path / "deep" / "kernels"
    make(place, what)
    return place, (sorted(tmp_path.rglob("*")), held(tmp_path))


@pytest.mark.parametrize("before", ["nothing", "empty", "kernels"])
@pytest.mark.parametrize("after", [0, 3, 8])
def test_a_failure_leaves_things_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: int
) -> None:
    place, found = before_failing(tmp_path, before)
    calls = iter(range(100))
    real = Path.open

    def full(path: Path, mode: str = "r", **options: Any) -> Any:
        file = real(path, mode, **options)
        if mode == "x" and next(calls) == after:
            file.write("short")
            file.close()
            raise OSError(28, "No space left on device", str(path))
        return file

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UserError, match="No space left") as error:
        directory.write(place, FILES)
    assert error.value.problem.code == "E431"
    assert (sorted(tmp_path.rglob("*")), held(tmp_path)) == found


@pytest.mark.parametrize("before", ["nothing", "empty", "kernels", "another algorithm"])
@pytest.mark.parametrize("after", [0, 3, 8])
def test_a_failing_rename_leaves_things_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: int
) -> None:
    place, found = before_failing(tmp_path, before)
    calls = iter(range(100))

    def failing(name: str) -> Callable[[Path, Path], None]:
        real: Callable[[Path, Path], None] = getattr(os, name)

        def rename(old: Path, new: Path) -> None:
            if next(calls) == after:
                raise OSError(5, "Input/output error")
            real(old, new)

        return rename

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, failing(name))
    with pytest.raises(UserError, match="Input/output error"):
        directory.write(place, FILES)
    assert (sorted(tmp_path.rglob("*")), held(tmp_path)) == found
    directory.write(place, FILES)
    assert held(place) == FILES


def test_another_algorithm_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    directory.write(tmp_path / "k", TREE_FILES)
    directory.write(tmp_path / "k", FILES)
    assert held(tmp_path / "k") == FILES
    assert directory.write(tmp_path / "k", TREE_FILES)
    assert held(tmp_path / "k") == TREE_FILES


def test_fewer_targets_leave_nothing_of_the_others(tmp_path: Path) -> None:
    directory.write(tmp_path / "k", FILES)
    fewer = directory.files(Catalogue.of(PLAN), [CPU], plan_json.dumps(PLAN))
    directory.write(tmp_path / "k", fewer)
    assert held(tmp_path / "k") == fewer


def test_nobody_elses_files_go(tmp_path: Path) -> None:
    """Other files stay, even with names of the previous algorithm or as copies of its sources."""
    place = tmp_path / "k"
    directory.write(place, TREE_FILES)
    (place / "tree.hip").unlink()
    (place / "tree.hip").symlink_to(place / "tree.cu")
    mine = {
        "tree.h": "// tree.h: mine\n",
        "tree_fast.cu": TREE_FILES["tree.cu"],
        "mine.cu": TREE_FILES["tree.cu"],
        "build/CMakeCache.txt": "x",
        "build/tree_cpu-float32-sum.so": "y",
        "hccc/mine.h": "// mine.h: Generated by hccc 0.2.0 from x. Do not edit.\n",
    }
    (place / "build").mkdir()
    for name, body in mine.items():
        (place / name).write_text(body)
    directory.write(place, FILES)
    (place / "tree.hip").unlink()  # a link, and now one to nowhere
    assert held(place) == FILES | mine


def test_what_a_killed_writer_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once here: a minute later otherwise."""
    place = tmp_path / "kernels"
    directory.write(place, FILES)
    context = multiprocessing.get_context("fork")

    def killed() -> None:
        monkeypatch.setattr(os, "replace", lambda old, new: os._exit(9))
        directory.write(place, OTHER_FILES)

    writer = context.Process(target=killed)
    writer.start()
    writer.join(60)
    assert writer.exitcode == 9
    beside(place).mkdir()
    mine = [tmp_path / ".kernels.0123456789abcdef", place / ".ring.cu.swp", place / ".hccc-1234"]
    for path in mine:
        path.write_text("mine")
    directory.write(place, FILES)
    assert len(list(place.rglob(".*.hccc-*"))) > 2 and len(os.listdir(tmp_path)) == 3
    monkeypatch.setattr(writing, "LEFT_S", 0.0)
    directory.write(place, FILES)
    assert held(place) == FILES | {path.name: "mine" for path in mine[1:]}
    assert sorted(os.listdir(tmp_path)) == [mine[0].name, "kernels"]


@pytest.mark.parametrize("place", ["a\0b", "/proc/hccc/kernels", "x" * 300])
def test_places_that_cannot_be(place: str) -> None:
    with pytest.raises(UserError) as error:
        directory.write(place, FILES)
    assert error.value.problem.code == "E431"


@pytest.mark.parametrize("name", ["../x", "/x", "hccc/../../x"])
def test_no_file_leaves_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(InternalError):
        directory.write(tmp_path / "kernels", {name: ""})
    assert not list(tmp_path.iterdir())


def test_a_link_to_a_directory_is_followed(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    for files in (FILES, OTHER_FILES):
        directory.write(link, files)
        assert link.is_symlink() and held(real) == files
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_an_empty_directory_stays_the_same_directory(tmp_path: Path) -> None:
    """A shell may be in it, or it may be mounted."""
    tmp_path.chmod(0o750)
    before = tmp_path.stat()
    directory.write(tmp_path, FILES)
    after = tmp_path.stat()
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)


def _both(place: Path, rounds: int) -> None:
    for _ in range(rounds):
        directory.write(place, FILES)
        directory.write(place, OTHER_FILES)


def _fresh(place: Path, gate: Callable[[], object], files: dict[str, str]) -> None:
    gate()
    directory.write(place, files)


@pytest.mark.slow
def test_two_plans_are_never_mixed_in_one_directory(tmp_path: Path) -> None:
    place = tmp_path / "kernels"
    writers = [threading.Thread(target=_both, args=(place, 20)) for _ in range(4)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        if place.exists():
            with lock.locked(tmp_path):
                assert held(place) in (FILES, OTHER_FILES)
    assert held(place) == OTHER_FILES and os.listdir(tmp_path) == ["kernels"]


@pytest.mark.slow
def test_processes_that_make_one_directory_at_once_do_not_mix(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for turn in range(15):
        place = tmp_path / str(turn) / "deep" / "kernels"
        gate = context.Barrier(4)
        writers = [
            context.Process(target=_fresh, args=(place, gate.wait, files))
            for files in (FILES, OTHER_FILES) * 2
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
            assert writer.exitcode == 0
        assert held(place) in (FILES, OTHER_FILES) and os.listdir(place.parent) == ["kernels"]


def test_a_directory_that_others_write_to_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "TIMEOUT_S", 0.05)
    with lock.locked(tmp_path):
        refused(tmp_path / "kernels", "E435")
    assert os.listdir(tmp_path) == []
    directory.write(tmp_path / "kernels", FILES)


@pytest.mark.parametrize("reason", [errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP])
def test_where_directories_cannot_be_locked_a_file_stands_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    """As on NFS, which locks only files that can be written."""
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if os.path.samestat(os.fstat(descriptor), tmp_path.stat()):
            raise OSError(reason, os.strerror(reason))
        real(descriptor, operation)

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(lock, "TIMEOUT_S", 0.05)
    with lock.locked(tmp_path):
        refused(tmp_path / "kernels", "E435")
    directory.write(tmp_path / "kernels", FILES)
    assert held(tmp_path / "kernels") == FILES
