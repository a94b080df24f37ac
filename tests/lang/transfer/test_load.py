"""The transfer language: accepted programs, their meaning, and their cost."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import numpy as np
import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.ir.collective import OpType
from hccc.ir.program import Program, lines, same
from hccc.lang.transfer.load import load, parse

EXAMPLES = Path(__file__).parents[3] / "examples"
FIGURE_16_HEADER = (
    'ResCCLAlgo(nRanks=32, nChannels=4, nWarps=16, AlgoName="HM", OpType="Allreduce", '
    "GPUPerNode=8, NICPerNode=8):\n"
)
HEADER = 'ResCCLAlgo(nRanks=8, OpType="Allreduce"):\n'


def program(text: str) -> Program:
    """Parses a text."""
    return parse(Source("test.rccl", text))


def loops(p: Program, row: int) -> dict[str, int]:
    """Returns the loop values of a row."""
    assert p.origin is not None
    return p.origin.place(row)[1]


def steps(body: str) -> list[int]:
    """Lists the steps of `t(e)` statements; each stands for a transfer in step e."""
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    text = HEADER + indented.replace("t(", "transfer(0, 1, ").replace(");", ", 0, rrc)")
    return [int(step) for step in program(text).transfers["step"]]


def test_figure_16_header_as_printed() -> None:
    p = program(FIGURE_16_HEADER)
    assert (p.name, p.channels, p.warps, p.gpus_per_node, p.nics_per_node) == ("HM", 4, 16, 8, 8)
    assert (p.collective.op, p.collective.n_ranks) == (OpType.ALLREDUCE, 32)
    assert len(p) == 0
    assert same(p, program("def " + FIGURE_16_HEADER.replace('"', "'")))


def test_header_defaults() -> None:
    p = program(HEADER)
    assert (p.name, p.channels, p.warps, p.gpus_per_node, p.nics_per_node) == ("algo", 1, 16, 8, 8)
    assert p.collective.n_chunks == 8
    assert program("ResCCLAlgo(nRanks=4, OpType='alltoall'):\n").collective.n_chunks == 16
    assert program("ResCCLAlgo(nRanks=4, OpType='REDUCE',):\n").collective.root == 0


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + HEADER + "    t(3);",
        HEADER.replace("\n", "\r\n") + "    a = 3  # note\r\n\r\n  # note\r\n    t(a);\r\n",
        "# before\n\n" + HEADER + "\tif 1:\n\t\tt(0x3);\n",
        HEADER + "    for i in range(3, 4): t(i);\n",
        HEADER + "    a = (1 +\n  2)\n    t(a);",
        HEADER.strip() + " t(0_3 - 0);\n".replace("0_3", "3"),
        'ResCCLAlgo(\n    nRanks=8,\n    OpType="Allreduce",\n):\n    t(1_0 - 7);\n',
    ],
)
def test_ways_to_write_it(text: str) -> None:
    text = text.replace("t(", "transfer(0, 1, ").replace(");", ", 0, rrc)")
    assert program(text).transfers["step"].tolist() == [3]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("t(2 + 3 * 4 ** 2 // 5 % 7);", [2 + 3 * 4**2 // 5 % 7]),
        ("t(-7 % 3 * 100 + -7 // 2 + 50);", [-7 % 3 * 100 + -7 // 2 + 50]),
        ("t(1 << 3 | 5 & 6 ^ 2);", [1 << 3 | 5 & 6 ^ 2]),
        ("t(-2 ** 2 + 10);", [6]),
        ("t(2 ** 3 ** 2);", [512]),
        ("t(not 3 < 2 and 5);", [1]),
        ("t((0 or 7) + (3 and 4));", [2]),
        ("t(True + True);", [2]),
        ("t(min(5, 3, 4) + max(1, 9));", [12]),
        ("for i in range(3):\n    t(i > 0 and 6 / i == 3);", [0, 0, 1]),
        ("for i in range(6, 0, -2):\n    t(i);\nt(i * 10);", [2, 4, 6, 20]),
        ("for i in range(4):\n    if i == 1: a = 7\nt(a);", [7]),
        ("a = 1\nfor i in range(5):\n    a = a * 2\nt(a);", [32]),
        ("x = 2\nfor i in range(3):\n    t(x);\n    x = i", [0, 1, 2]),
        ("for i in range(2):\n    for j in range(i):\n        t(j);\n    t(i + 5);", [0, 5, 6]),
        ("nRanks = 3\nt(nRanks);", [3]),
    ],
)
def test_arithmetic_and_loops(body: str, expected: list[int]) -> None:
    assert steps(body) == expected


def test_rows_are_in_program_order_within_a_step() -> None:
    text = HEADER + (
        "    for i in range(3):\n"
        "        transfer(i, 7, 1, 0, rrc)\n"
        "        for j in range(2):\n"
        "            transfer(i, 6, 1 - j, 1 + j, rrc)\n"
        "        transfer(i, 5, 1, 3, rrc)\n"
    )
    rows = program(text).transfers
    late = rows[rows["step"] == 1]
    assert late["src"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert late["chunk"].tolist() == [0, 1, 3] * 3
    assert late["line"].tolist() == [3, 5, 6] * 3


def test_far_apart_steps_are_sorted() -> None:
    assert steps("t(1 << 20);\nt(70000);\nt(3);\nt(65536);") == [3, 65536, 70000, 1 << 20]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.rccl")), ids=lambda path: path.stem)
def test_printing_and_parsing_gives_the_same_program(path: Path) -> None:
    p = load(path)
    assert len(p) > 0
    again = program("\n".join(lines(p)) + "\n")
    assert same(p, again)
    assert not same(p, program(HEADER))
    assert again.origin is not None
    span, values = again.origin.place(len(p) - 1)
    assert span is not None and (span.line, span.column, values) == (len(p) + 1, 5, {})


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.rccl")), ids=lambda path: path.stem)
def test_examples_take_the_steps_and_bytes_they_state(path: Path) -> None:
    p, text = load(path), path.read_text()
    stated = int(text.split("Steps:")[1].split(".")[0].split("=")[-1])
    assert len(np.unique(p.transfers["step"])) == stated
    n_chunks = p.collective.chunks_per_block * max(
        p.collective.input_blocks(0), p.collective.output_blocks(0)
    )
    most = {
        "hm_allreduce": 62 / 32,
        "hm_allgather": 31 / 32,
        "hm_reducescatter": 31 / 32,
        "ring_allreduce": 14 / 8,
        "rhd_allreduce": 14 / 8,
        "direct_allreduce": 14 / 8,
        "binomial_broadcast": 3,
        "binomial_reduce": 3,
        "sendrecv": 1,
    }.get(path.stem, 7 / 8)
    sent = np.bincount(p.transfers["src"]).max() / n_chunks
    received = np.bincount(p.transfers["dst"]).max() / n_chunks
    assert max(sent, received) == most


def test_a_transfer_knows_where_it_was_written() -> None:
    p = load(EXAMPLES / "hm_allreduce.rccl")
    for program_ in (p, pickle.loads(pickle.dumps(p))):
        span = program_.span(1000)
        assert span is not None and span.source.line(span.line).strip().startswith("transfer(")
        assert "n=1, r=0, baseStep=0" in program_.describe(1000)
        assert program_.origin is not None
        place = program_.origin.header("OpType")
        assert place is not None
        assert place.source.line(place.line)[place.column - 1 :].startswith('"Allreduce"')


def test_equal_transfers_are_told_apart() -> None:
    p = program(HEADER + "    for i in range(5):\n        transfer(0, 1, 0, 0, rrc)\n")
    assert [loops(p, i) for i in (4, 0, 2)] == [{"i": 4}, {"i": 0}, {"i": 2}]


def test_loop_values_in_a_carrying_loop() -> None:
    text = HEADER + (
        "    x = 0\n"
        "    for i in range(3):\n"
        "        for j in range(2):\n"
        "            x = x + 1\n"
        "            transfer(0, 1, x, 0, rrc)\n"
    )
    assert loops(program(text), 4) == {"i": 2, "j": 0}


def _mesh(nodes: int) -> str:
    text = (EXAMPLES / "hm_allreduce.rccl").read_text()
    return text.replace("nRanks=32", f"nRanks={8 * nodes}").replace("= 4\n", f"= {nodes}\n")


def test_thousand_rank_mesh_is_fast() -> None:
    begin = time.perf_counter()
    p = program(_mesh(128))
    assert len(p) == 2 * 1024 * 127 + 2 * 1024 * 128 * 7
    assert time.perf_counter() - begin < 60  # 0.5 s on an idle core


def test_long_printed_program_is_read_as_a_table() -> None:
    p = program(_mesh(32))
    begin = time.perf_counter()
    assert same(p, program("\n".join(lines(p))))
    assert time.perf_counter() - begin < 60  # 0.2 s on an idle core


@pytest.mark.slow
def test_hundred_thousand_terms() -> None:
    assert steps("t(1" + " + 1" * 100_000 + ");") == [100_001]


@pytest.mark.slow
def test_many_variables_do_not_take_memory_by_the_iteration() -> None:
    body = "".join(f"        v{i} = i + {i}\n" for i in range(5000))
    p = program(
        HEADER + "    for i in range(2000):\n" + body + "    transfer(0, 1, v4999, 0, rrc)\n"
    )
    assert p.transfers["step"].tolist() == [1999 + 4999]


def test_table_inside_loops() -> None:
    row = "            transfer(0, 1, 0, 0, rrc)\n            transfer(1, 2, 1, 3, rrc)\n"
    text = HEADER + "    for i in range(3):\n        for j in range(2):\n" + row * 4
    p = program(text)
    assert len(p) == 3 * 2 * 8
    assert p.transfers["line"].tolist() == [4, 6, 8, 10] * 6 + [5, 7, 9, 11] * 6
    assert loops(p, 24 + 9) == {"i": 1, "j": 0}


def test_rows_of_a_table_are_checked_as_statements_are() -> None:
    good = "    transfer(0, 1, 0, 0, rrc)\n"
    for bad in ("8, 1, 0, 0", "0, 1, 2147483648, 0", "0, 1, 0, 8", "3, 3, 0, 0"):
        found = []
        for repeat in (1, 9):
            with pytest.raises(UserError) as caught:
                program(HEADER + good * repeat + f"    transfer({bad}, rrc)\n" + good * repeat)
            problem = caught.value.problem
            assert problem.span is not None and problem.span.line == repeat + 2
            found.append((problem.code, problem.message))
        assert found[0] == found[1]
