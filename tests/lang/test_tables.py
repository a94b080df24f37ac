"""Grammar tables that ship: of the grammars as they are, and made anew for another lark."""

from __future__ import annotations

import json
from pathlib import Path

import lark
import pytest
from lark import Lark, Transformer

import hccc.lang
from hccc.lang import tables

GRAMMARS = sorted(Path(hccc.lang.__file__).parent.glob("*/*.lark"))


def parser(grammar: Path) -> Lark:
    """Returns the parser that `tables` makes, of the files in the grammar's folder."""
    return tables.tables(f"hccc.lang.{grammar.parent.name}", grammar.name, Transformer())


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.stem)
def test_they_ship_of_the_grammar_as_it_is(grammar: Path) -> None:
    """Where this fails, `scripts/tables` writes them."""
    text = grammar.read_text("utf-8")
    found = json.loads(grammar.with_name(tables.shipped_name(grammar.name)).read_text("utf-8"))
    assert found["of"] == tables.origin(text)
    assert len(found["data"]["rules"]) == len(tables._made(text, None).rules)
    assert "/" not in "".join(map(str, found["data"]["options"].values()))  # of no machine


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.stem)
def test_another_lark_makes_its_own(grammar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_made", lambda text, builder: text)
    assert isinstance(parser(grammar), Lark)
    monkeypatch.setattr(lark, "__version__", "0")
    assert str(parser(grammar)) == grammar.read_text("utf-8")
