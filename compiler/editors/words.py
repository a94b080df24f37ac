"""words: what editors say of the words of the languages."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_OF = {  # the tables of a language, by the kind of a text
    "program": ("functions", "operations", "header", "keywords"),
    "job": ("functions", "job_calls", "job_header", "header", "variables", "keywords"),
    "cluster": ("defines",),
}
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@cache
def tables() -> Mapping[str, Mapping[str, str]]:
    """Returns one line for each word, by tables."""
    text = (files("hccc.editors") / "words.toml").read_text("utf-8")
    return tomllib.loads(text)


def said(kind: str, word: str) -> str | None:
    """Returns what a word means in a text of this kind, if that is the language's."""
    if kind == "cluster" and re.fullmatch(r"node[0-9]+", word):
        word = "node"
    known = (tables()[name].get(word) for name in _OF[kind])
    return next((text for text in known if text), None)


def word_at(line: str, column: int) -> tuple[str, int] | None:
    """Returns the word around a column (from 0) of a line, and where it begins; None in a
    comment."""
    code = line.split("#")[0]
    found = (m for m in WORD.finditer(code) if m.start() <= column <= m.end())
    return next(((m.group(), m.start()) for m in found), None)
