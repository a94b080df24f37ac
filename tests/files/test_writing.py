"""Output files: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TextIO

import pytest

from hccc.diagnostics import UserError
from hccc.files.writing import write_whole


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
