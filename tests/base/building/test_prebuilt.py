"""What a platform wheel brings is used without a compiler, and only if it is the package's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hccc.base.building import prebuilt
from hccc.base.building.build import Piece, build_pieces, prebuild_pieces
from hccc.base.diagnostics import UserError

LINK = ("-Wl,-z,nodelete",)


@pytest.fixture
def piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Piece:
    """Makes a source of a package, prebuilt with it; there is no compiler, and nothing in the
    cache."""
    package = tmp_path / "package"
    place = package / "prebuilt"
    place.mkdir(parents=True)
    source = package / "one.cpp"
    source.write_text("int one() { return 1; }\n")
    monkeypatch.setattr(prebuilt, "PLACE", place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of another machine"))
    made = Piece(source)
    prebuild_pieces(place, [made], LINK)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "/nowhere/c++")
    return made


def only(place: Path) -> Path:
    """Returns the one file of a directory."""
    (found,) = place.iterdir()
    return found


def test_no_compiler_is_needed(piece: Piece, tmp_path: Path) -> None:
    assert build_pieces([piece], LINK) == only(prebuilt.PLACE)
    assert not (tmp_path / "cache").exists()


def changed(piece: Piece) -> None:
    piece.source.write_text("int one() { return 2; }\n")


def cut_short(_: Piece) -> None:
    made = only(prebuilt.PLACE)
    made.write_bytes(made.read_bytes()[:-1])


def linked(_: Piece) -> None:
    made = only(prebuilt.PLACE)
    made.symlink_to(made.rename(made.parents[2] / "elsewhere"))


def linked_place(_: Piece) -> None:
    place = prebuilt.PLACE
    place.symlink_to(place.rename(place.with_name("elsewhere")), target_is_directory=True)


def writable(_: Piece) -> None:
    only(prebuilt.PLACE).chmod(0o666)


def writable_place(_: Piece) -> None:
    prebuilt.PLACE.chmod(0o777)


def unwanted(_: Piece) -> None:
    os.environ[prebuilt.VARIABLE] = "0"


def without(_: Piece) -> None:
    only(prebuilt.PLACE).unlink()
    prebuilt.PLACE.rmdir()


@pytest.mark.parametrize(
    "change",
    [changed, cut_short, linked, linked_place, writable, writable_place, unwanted, without],
)
def test_what_is_not_the_packages_is_not_used(
    piece: Piece, change: Callable[[Piece], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(prebuilt.VARIABLE, "1")
    change(piece)
    with pytest.raises(UserError, match="E412"):
        build_pieces([piece], LINK)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("which", ["place", "file"])
def test_what_belongs_to_others_is_not_used(piece: Piece, which: str) -> None:
    os.chown(only(prebuilt.PLACE) if which == "file" else prebuilt.PLACE, 12345, -1)
    with pytest.raises(UserError, match="E412"):
        build_pieces([piece], LINK)


def test_a_package_that_its_group_can_change(piece: Piece) -> None:
    """Where pip installs with umask 002, whoever can change a library can change all of it."""
    prebuilt.PLACE.parent.chmod(0o775)
    prebuilt.PLACE.chmod(0o775)
    only(prebuilt.PLACE).chmod(0o664)
    assert build_pieces([piece], LINK) == only(prebuilt.PLACE)
