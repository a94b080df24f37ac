"""Shipped files are the examples; names find them, and existing paths come first."""

from __future__ import annotations

from pathlib import Path

import pytest

from hccc.base.diagnostics import UserError
from hccc.lang.cluster import load as cluster
from hccc.lang.transfer import load as transfer
from hccc.shipped import find as shipped
from hccc.shipped.find import ShippedKind

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FOLDERS = {
    ShippedKind.ALGORITHM: EXAMPLES,
    ShippedKind.XML: EXAMPLES / "msccl",
    ShippedKind.CLUSTER: EXAMPLES / "clusters",
}


@pytest.mark.parametrize("kind", ShippedKind)
def test_all_examples_ship_and_nothing_else(kind: ShippedKind) -> None:
    there = sorted(path.stem for path in FOLDERS[kind].glob(f"*{kind.value[1]}"))
    assert shipped.names(kind) == there and there


def test_no_two_files_have_one_name() -> None:
    names = [name for kind in ShippedKind for name in shipped.names(kind)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["resccl-topo4", "resccl-topo4.cluster"])
def test_a_name_is_what_ships(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = shipped.read(Path(name), 1 << 20)
    assert source.name == "resccl-topo4.cluster"
    assert source.text == (EXAMPLES / "clusters" / "resccl-topo4.cluster").read_text()
    assert len(cluster.load(name)) == 32


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dgx-h100").write_text("define node1 = 2\ndefine bandwidth = {mesh => [((0,1) -> 5)]}")
    assert len(cluster.load("dgx-h100")) == 2
    assert len(cluster.load("dgx-h100.cluster")) == 8


def test_a_folder_in_front_means_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        cluster.load(tmp_path / "dgx-h100")
    with pytest.raises(UserError, match="No such file"):
        cluster.load("./nowhere/dgx-h100")


def test_a_name_is_of_the_kind_that_is_wanted() -> None:
    assert transfer.load("sendrecv").name == "sendrecv"
    with pytest.raises(UserError, match="nothing of that name ships"):
        cluster.load("sendrecv")
    with pytest.raises(UserError, match="nothing of that name ships"):
        transfer.load("dgx-h100")


@pytest.mark.parametrize(
    ("name", "kinds", "help"),
    [
        ("dgx-h10", shipped.CLUSTERS, "did you mean dgx-h100?"),
        ("hm_alreduce", shipped.ALL_KINDS, "did you mean hm_allreduce?"),
        ("zzz", shipped.CLUSTERS, shipped.LIST_CLUSTERS),
        ("zzz", shipped.ALL_KINDS, "algorithms that ship are binomial_broadcast, "),
    ],
)
def test_an_unknown_name_is_told_what_there_is(
    name: str, kinds: tuple[ShippedKind, ...], help: str
) -> None:
    with pytest.raises(UserError) as caught:
        shipped.find(Path(name), kinds)
    assert caught.value.problem.code == "E401"
    assert (caught.value.problem.help or "").startswith(help)


def test_a_name_with_an_ending_is_a_file_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"cannot read 'mine\.cluster': No such file"):
        cluster.load("mine.cluster")


def test_a_dangling_link_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dgx-h100").symlink_to("nowhere")
    with pytest.raises(UserError, match="No such file"):
        cluster.load("dgx-h100")
