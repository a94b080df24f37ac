"""docs/glossary.md defines words that the code uses, and every intermediate representation."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from hccc.driver.pass_manager import Ir
from tests.docs.pages import DOCS
from tests.test_architecture import ROOT

_ROW = re.compile(r"^\| \*\*(?P<word>[^*]+)\*\* \| (?P<says>.+) \| `(?P<path>[^`]+)` \|$", re.M)
ENTRIES = [m.groups() for m in _ROW.finditer((DOCS / "glossary.md").read_text(encoding="utf-8"))]
ALSO = {"catalogue", "topology", "collective"}  # of ir/, beside what passes return


def _used(word: str, text: str) -> bool:
    """Tells whether a text has the word, or its plural, as a word or in a name."""
    parts = re.escape(word.removesuffix("s")).replace(r"\ ", r"[\s_-]+").replace(r"\-", r"[\s_-]?")
    return re.search(rf"(?<![a-z]){parts}", text, re.I) is not None


@pytest.mark.parametrize(("word", "says", "path"), ENTRIES, ids=[word for word, _, _ in ENTRIES])
def test_a_word_is_at_home_where_the_page_says(word: str, says: str, path: str) -> None:
    assert _used(word.removesuffix(" of a buffer"), (ROOT / path).read_text(encoding="utf-8"))
    assert says.endswith(".") and len(says) < 300


def test_every_intermediate_representation_has_an_entry() -> None:
    wanted = {ir.__name__.lower() for ir in get_args(Ir)} | ALSO
    assert wanted <= {word for word, _, _ in ENTRIES}


def test_every_row_is_an_entry() -> None:
    words = [word for word, _, _ in ENTRIES]
    rows = (DOCS / "glossary.md").read_text(encoding="utf-8").count("\n| **")
    assert rows == len(words) == len(set(words)) >= 30


def test_words_are_found() -> None:
    assert _used("micro-batch", "of every micro_batch") and _used("thread block", "thread\nblocks")
    assert not _used("rank", "a crank")
