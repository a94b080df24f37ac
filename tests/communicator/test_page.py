"""docs/communicator.md §9 and the header name the same functions."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS
from tests.test_architecture import RUNTIME

HEADER = RUNTIME / "communicator" / "include" / "hccc_runtime.h"
DECLARED = re.compile(r"^(?:hcccResult_t|const char \*)\s*(hccc\w+)\(", re.M)
TABLE = re.compile(r"<!-- functions -->(.*)<!-- end -->", re.S)
OTHERS = {"hcccAlltoAll": "hcccAllToAll"}


def declared() -> set[str]:
    return set(DECLARED.findall(HEADER.read_text(encoding="utf-8")))


def rows() -> list[tuple[set[str], str]]:
    """Returns (functions, by their names here; the page's words about them) of each row."""
    (table,) = TABLE.findall((DOCS / "communicator.md").read_text(encoding="utf-8"))
    found = []
    for line in table.strip().splitlines()[2:]:  # without the head
        names, says = line.strip("| ").split(" | ")
        of = {f"hccc{name}" for name in re.findall(r"`nccl(\w+)`", names)}
        found.append(({OTHERS.get(name, name) for name in of}, says))
    return found


def test_what_the_page_says_is_there_is_declared() -> None:
    for names, says in rows():
        assert names, says
        missing = says.startswith("not there")
        assert says.startswith("the same") or missing, says
        assert (not names & declared()) if missing else (names <= declared()), names


def test_every_function_is_on_the_page() -> None:
    page = (DOCS / "communicator.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(hccc\w+)`", page)) | {name for names, _ in rows() for name in names}
    assert declared() <= named, declared() - named
