"""Output files: whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pytest

from hccc.base.diagnostics import UserError
from hccc.base.files.writing import beside, remove_leftovers, replace_all, write_whole


def test_a_new_file_and_over_an_old_one(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    write_whole(path, lambda file: file.write("é"))
    assert path.read_text(encoding="utf-8") == "é"
    path.chmod(0o640)
    write_whole(path, lambda file: file.write("b"))
    assert path.read_text() == "b"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["x.svg"]


def test_what_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    path.write_text("before")

    def write(file: TextIO) -> None:
        file.write("half")
        raise KeyError("bug")

    with pytest.raises(KeyError):
        write_whole(path, write)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["x.svg"]


@pytest.mark.parametrize("name", ["no/such/x.svg", "dir", "x\0.svg", "x" * 300])
def test_impossible_places_are_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "dir").mkdir()
    with pytest.raises(UserError) as refused:
        write_whole(tmp_path / name, lambda file: file.write("x"))
    assert refused.value.problem.code == "E431"


def test_a_pipe_or_device_stays_what_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, lambda file: file.write("through"))
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    (tmp_path / "here").symlink_to(tmp_path / "there")
    write_whole(tmp_path / "here", lambda file: file.write("new"))
    assert (tmp_path / "here").is_symlink()
    assert (tmp_path / "there").read_text() == "new"


def _puts(body: str) -> Callable[[TextIO], object]:
    return lambda file: file.write(body)


def _fails(file: TextIO) -> None:
    file.write("half")
    raise OSError(28, "No space left on device")


def test_several_files_all_or_none(tmp_path: Path) -> None:
    old, new, gone = (tmp_path / name for name in ("old", "new", "gone"))
    old.write_text("before")
    gone.write_text("gone")
    before = old.stat()
    with pytest.raises(OSError, match="No space"):
        replace_all({old: _puts("x"), new: _fails}, [gone])
    assert sorted(os.listdir(tmp_path)) == ["gone", "old"] and old.read_text() == "before"
    with pytest.raises(FileNotFoundError):  # the last rename fails: earlier ones are undone
        replace_all({old: _puts("x"), new: _puts("y"), tmp_path / "no" / "z": _puts("z")}, [gone])
    with pytest.raises(FileNotFoundError):
        replace_all({old: _puts("x"), new: _puts("y")}, [gone, tmp_path / "nothing"])
    assert sorted(os.listdir(tmp_path)) == ["gone", "old"] and old.read_text() == "before"
    assert (old.stat().st_ino, old.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    replace_all({old: _puts("x"), new: _puts("y")}, [gone])
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]
    assert (old.read_text(), new.read_text()) == ("x", "y")


def test_where_files_have_one_name_only_they_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on FAT; and a rename that fails after that puts the copy back."""

    def link(*paths: Path) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("1")
    second.mkdir()
    with pytest.raises(OSError):
        replace_all({first: _puts("x"), second: _puts("y")})
    assert first.read_text() == "1" and sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_leftovers_go_when_they_are_old_and_ours(tmp_path: Path) -> None:
    ours, other = beside(tmp_path / ("x" * 300)), beside(tmp_path / "y")
    mine = [
        tmp_path / name for name in (".y.0123456789abcdef", ".y.hccc-0123", "y.hccc-" + "0" * 16)
    ]
    for path in (ours, other, *mine):
        path.write_text("z")
    link = beside(tmp_path / "y")
    link.symlink_to(ours)
    remove_leftovers(tmp_path)
    assert ours.exists() and other.exists()  # too new: their writer may be there
    remove_leftovers(tmp_path, "x" * 300, age_s=0)
    assert not ours.exists() and other.exists()
    remove_leftovers(tmp_path, age_s=0)
    assert sorted(tmp_path.iterdir()) == sorted([*mine, link])
    remove_leftovers(tmp_path / "no such directory")
