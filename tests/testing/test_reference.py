"""The reference is right on cases small enough to see."""

from collections.abc import Sequence
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import DTypeLike

from hccc.ir.collective import PROGRAMMABLE, Collective, OpType, block_count
from hccc.ir.program import Program
from hccc.testing import REDUCE_OPS, exact_inputs, expected, is_correct, run
from hccc.testing.grow import Row, program
from hccc.testing.reference import average

RECV, RRC = 0, 1


def results(
    op: OpType,
    inputs: Sequence[Sequence[int]],
    reduce: str = "sum",
    root: int = 0,
    n: int = 2,
    per: int = 1,
) -> list[list[int]]:
    c = Collective(op, n, block_count(op, n) * per, root)
    out = expected(c, [np.array(a).reshape(-1, 1) for a in inputs], reduce, np.int64)
    return [x.ravel().tolist() for x in out]


def test_what_each_collective_defines() -> None:
    assert results(OpType.ALLREDUCE, [[1], [10]]) == [[11], [11]]
    assert results(OpType.REDUCE, [[1], [10]], root=1) == [[], [11]]
    assert results(OpType.REDUCESCATTER, [[1, 2], [10, 20]]) == [[11], [22]]
    assert results(OpType.BROADCAST, [[], [7]], root=1) == [[7], [7]]
    assert results(OpType.ALLGATHER, [[1], [10]]) == [[1, 10], [1, 10]]
    assert results(OpType.GATHER, [[1], [10]], root=1) == [[], [1, 10]]
    assert results(OpType.SCATTER, [[], [1, 2]], root=1) == [[1], [2]]
    assert results(OpType.ALLTOALL, [[1, 2], [10, 20]]) == [[1, 10], [2, 20]]
    assert results(OpType.SENDRECV, [[1], [10], [100]], n=3) == [[100], [1], [10]]
    assert results(OpType.ALLGATHER, [[1, 2], [10, 20]], per=2) == [[1, 2, 10, 20]] * 2


@pytest.mark.parametrize(
    ("op", "value"),
    [
        ("sum", 3),
        ("prod", 2),
        ("min", 1),
        ("max", 2),
        ("avg", 1),
        ("band", 0),
        ("bor", 3),
        ("bxor", 3),
        ("land", 1),
        ("lor", 1),
    ],
)
def test_operations(op: str, value: int) -> None:
    assert results(OpType.ALLREDUCE, [[1], [2]], op) == [[value], [value]]


def test_averages() -> None:
    assert average(np.array([-3, 3, 4]), 2).tolist() == [-1, 1, 2]
    assert average(np.array([3.0], np.float32), 2).tolist() == [1.5]
    assert average(np.array([7], np.uint8), 2).dtype == np.uint8


def pair(*rows: Row, op: OpType = OpType.ALLREDUCE, n: int = 2, chunks: int = 1) -> Program:
    return program(Collective(op, n, chunks), list(rows), n, n)


def test_the_step_rule() -> None:
    right = pair((1, 0, 0, 0, RRC), (0, 1, 1, 0, RECV))
    assert is_correct(right)
    assert not is_correct(pair((1, 0, 0, 0, RRC)))
    assert not is_correct(pair((1, 0, 0, 0, RRC), (0, 1, 0, 0, RECV)))
    assert not is_correct(pair((1, 0, 0, 0, RRC), (1, 0, 1, 0, RRC), (0, 1, 2, 0, RECV)))
    many = [(1, 0, 0, 0, RRC), (2, 0, 0, 0, RRC), (0, 1, 1, 0, RECV), (0, 2, 1, 0, RECV)]
    assert is_correct(pair(*many, n=3))
    late = [(0, 1, 1, 0, RECV), (1, 2, 0, 0, RECV)]
    assert not is_correct(pair(*late, op=OpType.BROADCAST, n=3))
    assert is_correct(pair((0, 1, 0, 0, RECV), (1, 2, 1, 0, RECV), op=OpType.BROADCAST, n=3))


def test_two_recvs_into_one_place_in_one_step_are_wrong_even_if_equal() -> None:
    rows = [(0, 1, 0, 0, RECV), (0, 2, 1, 0, RECV), (1, 2, 1, 0, RECV)]
    assert not is_correct(pair(*rows, op=OpType.BROADCAST, n=3))


def test_run_reduces_in_program_order_and_reads_before_it_writes() -> None:
    p = pair((1, 0, 0, 0, RRC), (0, 1, 1, 0, RECV))
    x = [np.array([[1.5]]), np.array([[2.25]])]
    assert [o.tolist() for o in run(p, x, "sum", np.float64)] == [[[3.75]], [[3.75]]]
    order = [(2, 0, 0, 0, RRC), (1, 0, 0, 0, RRC), (0, 1, 1, 0, RECV), (0, 2, 1, 0, RECV)]
    big = [np.float32(x).reshape(1, 1) for x in (1, 1e8, -1e8)]
    assert run(pair(*order, n=3), big, "sum", np.float32)[0][0, 0] == 0.0
    assert run(pair(*order[1::-1], *order[2:], n=3), big, "sum", np.float32)[0][0, 0] == 0.0


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int32, np.int64, np.float16, np.float32, ml_dtypes.bfloat16]
)
@pytest.mark.parametrize("op", PROGRAMMABLE)
def test_exact_inputs_are_exact_and_differ(op: OpType, dtype: DTypeLike) -> None:
    c = Collective(op, 4, block_count(op, 4) * 2)
    x = exact_inputs(c, dtype, (16,), seed=1)
    assert [len(a) for a in x] == [c.input_blocks(r) * 2 for r in range(4)]
    full = [a.astype(np.float64) for a in x if len(a)]
    total = sum((a[0] for a in full), np.zeros(16))
    assert (total == total.astype(dtype).astype(np.float64)).all()
    assert all(not np.array_equal(a, b) for a, b in pairwise(full))


def test_every_operation_is_defined() -> None:
    for op in REDUCE_OPS:
        want = {"sum": 4, "prod": 4, "bxor": 0, "land": 1, "lor": 1}.get(op, 2)
        assert results(OpType.REDUCE, [[2], [2]], op) == [[want], []]
