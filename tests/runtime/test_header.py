"""hccc.h describes collectives to C programmers as the compiler defines them."""

from __future__ import annotations

import re

import pytest

from hccc.emit.directory import headers
from hccc.ir.collective import Collective, OpType, block_count
from hccc.runtime import cpu
from hccc.runtime.fault import WaitKind
from hccc.validate import tables

HEADER = dict(headers())["hccc.h"]
RANKS = 3


def _table() -> dict[str, tuple[str, str]]:
    """Returns collective → (blocks sent, received), from the header's table."""
    rows = HEADER.partition("the result of rank r, block by block")[2].partition("In place")[0]
    found = re.findall(r"^ \*   (\w+) +(\w(?: at root)?) +(\w(?: at root)?) ", rows, re.M)
    return {name: (sent, received) for name, sent, received in found}


def _enum(name: str) -> dict[str, int]:
    """Returns the names and values of an enum of the header."""
    body = HEADER.partition(f"enum {name} {{")[2].partition("};")[0]
    return {k: int(v) for k, v in re.findall(r"^  HCCC_(\w+) = (\d+)", body, re.M)}


def test_python_has_the_statuses_and_kinds_of_waits_of_c() -> None:
    statuses = _enum("hccc_status")
    assert list(statuses.values()) == list(range(8))
    known = {name: getattr(cpu, name) for name in ("OK", "TIMEOUT", "BAD_ARGUMENT", "NO_MEMORY")}
    known |= {name: getattr(tables, name) for name in ("BAD_ARGUMENT", "NOT_BUILT")}
    assert statuses == statuses | known
    kinds = {k.removeprefix("WAIT_"): v for k, v in _enum("hccc_wait_kind").items()}
    assert kinds == {kind.name: kind.value for kind in WaitKind}


def _blocks(text: str, collective: Collective, rank: int) -> int:
    number = {"n": RANKS, "b": collective.chunks_per_rank}.get(text[0]) or int(text[0])
    return number if rank == collective.root or "root" not in text else 0


def test_every_collective_is_in_the_table() -> None:
    assert set(_table()) == {op.value for op in OpType}


@pytest.mark.parametrize("op", OpType)
@pytest.mark.parametrize("root", [0, 2])
def test_the_table_of_buffers(op: OpType, root: int) -> None:
    c = Collective(op, RANKS, 2 * block_count(op, RANKS), root=root)
    sent, received = _table()[op.value]
    for rank in range(RANKS):
        assert c.input_blocks(rank) == _blocks(sent, c, rank)
        assert c.output_blocks(rank) == _blocks(received, c, rank)


@pytest.mark.parametrize("op", OpType)
def test_the_table_of_places(op: OpType) -> None:
    """`alias_offset` is where the output's slots lie in the input's, in chunks."""
    place = re.search(rf"^ \*   (\w+ == .*?)  +.*\b{op.value}\b", HEADER, re.M)
    said = place[1] if place else "input == output"
    c = Collective(op, RANKS, 2 * block_count(op, RANKS))
    for rank in range(RANKS):
        blocks = c.alias_offset(rank) // c.chunks_per_block
        wanted = {"input == output + r blocks": rank, "output == input + r blocks": -rank}
        assert blocks == wanted.get(said, 0)
