"""Files of a directory that somebody else has made: no link is followed, no pipe waited for."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hccc.base.diagnostics import UserError
from hccc.base.files.plain import entries_in, is_plain, read_plain
from hccc.base.files.reading import read_text_in


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Makes a directory with one of each kind; the path to it goes over a link."""
    real = tmp_path / "real"
    (real / "folder").mkdir(parents=True)
    (real / "file").write_text("text")
    (real / "folder" / "file").write_text("inner")
    (real / "link").symlink_to("file")
    (real / "folder link").symlink_to("folder")
    (real / "device").symlink_to("/dev/zero")
    os.mkfifo(real / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(real / "socket"))
    (tmp_path / "place").symlink_to(real)
    return tmp_path / "place"


def test_files_are_read_and_nothing_else(place: Path) -> None:
    assert read_plain(place, "file", 10) == b"text" and read_plain(place, "file", 2) == b"te"
    assert read_plain(place, "folder/file", 10) == b"inner"
    for name in ("folder", "link", "folder link/file", "device", "pipe", "socket", "none", ""):
        assert read_plain(place, name, 10) is None and not is_plain(place, name)
    assert read_plain(place / "none", "file", 10) is None


def test_entries_are_sorted_and_bounded(place: Path) -> None:
    kinds = dict(entries_in(place, "", 100))
    assert kinds["file"] == "file" and kinds["folder"] == "folder"
    assert {kinds["link"], kinds["folder link"], kinds["device"]} == {"link"}
    assert {kinds["pipe"], kinds["socket"]} == {"special"}
    assert list(kinds) == sorted(kinds)
    assert len(entries_in(place, "", 3)) == 3
    assert entries_in(place, "folder", 9) == [("file", "file")]
    assert entries_in(place, "folder link", 9) == entries_in(place, "file", 9) == []


def test_texts_have_a_limit(place: Path) -> None:
    assert read_text_in(place, "file", 4) == "text"
    for name, most, code in (("file", 3, "E404"), ("link", 9, "E401"), ("pipe", 9, "E401")):
        with pytest.raises(UserError) as error:
            read_text_in(place, name, most)
        assert error.value.problem.code == code
