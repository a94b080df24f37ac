"""Shell completion, as docs/command-line.md says to set it up."""

from __future__ import annotations

import re

import pytest

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
    ],
)
def test_what_is_offered(words: str, offered: str) -> None:
    count = str(len(words.split()) - 1)
    done = process(COMP_WORDS=words, COMP_CWORD=count, _HCCC_COMPLETE="bash_complete")
    assert offered in done.stdout.splitlines()
