"""The names that a text defines, also where it is wrong."""

from __future__ import annotations

from hccc.editors.outline import definition, outline

TEXT = """\
n, m = 2, 3  # x = 4
def f(a,
      b):
    c = a
    return c
def g(a): return a
def ResCCLAlgo(nRanks=4,
               OpType="Allgather"):
    for r in range(n):
        k = r
        k += 1
    for r in range(m):
        transfer(r, 1
        for k in range(n):
"""


def test_names_and_their_lines() -> None:
    found = [(one.name, one.line) for one in outline(TEXT, "program")]
    assert found == [
        *(("n", 0), ("m", 0), ("f", 1), ("a", 1), ("c", 3), ("g", 5), ("a", 5)),
        *(("ResCCLAlgo", 6), ("r", 8), ("k", 9), ("r", 11), ("k", 13)),
    ]


def test_a_name_is_that_of_the_last_place_above() -> None:
    names = outline(TEXT, "program")

    def line(word: str, at: int) -> int | None:
        found = definition(names, word, at)
        return found.line if found else None

    assert line("r", 9) == 8 and line("r", 12) == 11
    assert line("a", 3) == 1 and line("a", 5) == 5
    assert line("a", 9) is None  # a parameter is known in its function only
    assert line("nothing", 9) is None


def test_blocks() -> None:
    last = {(one.name, one.line): one.last for one in outline(TEXT, "program")}
    assert last["f", 1] == 4 and last["r", 8] == 10


def test_defines_of_a_cluster() -> None:
    text = "define device = H100  # define x\ndefine node1 =\n  8\ndefine nic = []\n"
    assert [(one.name, one.line, one.last) for one in outline(text, "cluster")] == [
        *(("device", 0, 0), ("node1", 1, 2), ("nic", 3, 4)),
    ]
