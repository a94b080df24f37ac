"""Places of compiled libraries: the user's own, not writable by others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hccc.base.building.places import user_directory
from hccc.base.diagnostics import UserError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes an empty home with a temporary directory `tmp` in it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return tmp_path


def in_tmp(home: Path) -> Path:
    return home / "tmp" / f"hccc-{os.getuid()}" / "x"


def test_the_users_cache_is_made_for_this_user_alone(home: Path) -> None:
    place = user_directory("x")
    assert place == home / ".cache" / "hccc" / "x"
    assert [p.stat().st_mode & 0o777 for p in (place, place.parent)] == [0o700, 0o700]
    assert user_directory("x") == place


def test_the_cache_may_be_elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "other"))
    assert user_directory("x") == home / "other" / "hccc" / "x"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert user_directory("x") == home / ".cache" / "hccc" / "x"


def test_where_the_cache_cannot_be_made_the_temporary_directory_has_it(home: Path) -> None:
    (home / ".cache").write_text("no directory")
    place = user_directory("x")
    assert place == in_tmp(home)
    assert place.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("what", ["link", "open to a group", "open to all", "a file"])
def test_what_others_may_have_put_there_is_not_used(home: Path, what: str) -> None:
    """The folder's name can be guessed: another user may have put a link there."""
    place = home / ".cache" / "hccc" / "x"
    place.parent.mkdir(parents=True, mode=0o700)
    if what == "link":
        (home / "planted").mkdir(mode=0o700)
        place.symlink_to(home / "planted")
    elif what == "a file":
        place.touch()
    else:
        place.mkdir()
        place.chmod(0o770 if what == "open to a group" else 0o707)
    assert user_directory("x") == in_tmp(home)


def test_nowhere(home: Path) -> None:
    (home / ".cache").touch()
    (home / "planted").mkdir(mode=0o700)
    in_tmp(home).parent.symlink_to(home / "planted")
    with pytest.raises(UserError, match=r"E413(.|\n)*is no directory") as caught:
        user_directory("x")
    assert str(in_tmp(home).parent) in str(caught.value)


def test_another_users_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user_directory("x")
    monkeypatch.setattr(os, "getuid", lambda: 123_456)
    with pytest.raises(UserError, match=r"E413(.|\n)*belongs to another user"):
        user_directory("x")
