"""Shell completion, as docs/command-line.md says to set it up."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from hccc.cli.types import AlgorithmFile, AnyFile, ClusterFile, Words
from tests.cli.commandline import ROOT, process

PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("shell", sorted(set(re.findall(r"_HCCC_COMPLETE=(\w+)_source", PAGE))))
def test_every_shell_of_the_page_gets_a_script(shell: str) -> None:
    done = process(_HCCC_COMPLETE=f"{shell}_source")
    assert done.returncode == 0 and f"{shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("hccc exp", "plain,explain"),
        ("hccc sim x.rccl --clu", "plain,--cluster"),
        ("hccc x.rccl --emit m", "plain,msccl-xml"),
        ("hccc check x", "file,x"),
        ("hccc x.rccl --target cuda,h", "plain,cuda,hip"),
        ("hccc cluster show resccl-t", "plain,resccl-topo4"),
        ("hccc sim x.rccl --cluster resccl-t", "plain,resccl-topo4"),
        ("hccc sim --baseline nccl --collective alltoa", "plain,alltoall"),
        ("hccc synth dgx-h100 --method rin", "plain,ring"),
        ("hccc synth dgx-h100 --method comp", "plain,compose"),
        ("hccc diff x.rccl ring_allr", "plain,ring_allreduce"),
    ],
)
def test_what_is_offered(words: str, offered: str) -> None:
    count = str(len(words.split()) - 1)
    done = process(COMP_WORDS=words, COMP_CWORD=count, _HCCC_COMPLETE="bash_complete")
    assert offered in done.stdout.splitlines()


def _offered(type: click.ParamType[object], incomplete: str) -> list[str]:
    """Lists the completions of `command INCOMPLETE`; of a shell's files, `file:INCOMPLETE`."""
    command = click.Command("command", params=[click.Argument(["given"], type=type)])
    found = ShellComplete(command, {}, "command", "_COMMAND").get_completions([], incomplete)
    return [item.value if item.type == "plain" else f"{item.type}:{item.value}" for item in found]


@pytest.mark.parametrize(
    ("incomplete", "offered"),
    [
        ("", ["sum", "min", "max", "minimum", "all"]),
        ("m", ["min", "max", "minimum"]),
        ("MA", ["max"]),
        ("sum,", ["sum,min", "sum,max", "sum,minimum"]),
        ("sum,m", ["sum,min", "sum,max", "sum,minimum"]),
        ("min,m", ["min,max"]),
        ("sum,max,mi", ["sum,max,min", "sum,max,minimum"]),
        ("sum,x", []),
    ],
)
def test_the_last_word_of_a_list_is_completed(incomplete: str, offered: list[str]) -> None:
    """Earlier words stay, and are not offered again."""
    assert _offered(Words(("sum", "min", "max"), {"minimum": "min"}), incomplete) == offered


def test_names_that_ship_are_offered_beside_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.rccl").touch()
    (tmp_path / "ring_of_mine").mkdir()
    (tmp_path / ".hidden").touch()
    rings = ["ring.rccl", "ring_of_mine/", "ring_allgather", "ring_allreduce", "ring_reducescatter"]
    assert _offered(AlgorithmFile(), "ring") == rings
    assert _offered(AlgorithmFile(), "ring.") == ["file:ring."]
    assert _offered(AlgorithmFile(), "./ring") == ["file:./ring"]
    assert _offered(AlgorithmFile(), "allreduce_all") == ["allreduce_allpairs_n8"]
    assert _offered(ClusterFile(), "ring") == ["file:ring"]
    assert _offered(ClusterFile(), "mi") == ["mi300x"]
    assert {"mi300x", "hm_allreduce", "ring.rccl"} < {*_offered(AnyFile(), "")}
    assert ".hidden" not in _offered(AnyFile(), "")


def test_names_are_offered_where_the_directory_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert _offered(ClusterFile(), "mi") == ["mi300x"]
