"""`hccc lsp` where pygls is not installed; tests/editors has the rest."""

from __future__ import annotations

import sys

import pytest

from tests.cli.commandline import Hccc


def test_it_says_what_to_install(hccc: Hccc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hccc.editors.server", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "pygls"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pygls", None)
    code, out, err = hccc("lsp")
    assert code == 1 and out == ""
    assert "error[E484]" in err and "help: pip install 'hccc[lsp]'" in err
