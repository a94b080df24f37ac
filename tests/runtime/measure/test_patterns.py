"""The test data itself: exact in every order and dtype, and no two pieces alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hccc.base.dtypes import OPS, reduces
from hccc.ir.collective import PROGRAMMABLE, Collective, OpType
from hccc.runtime.layout import DTYPES
from hccc.runtime.measure import patterns
from hccc.runtime.measure.patterns import Array, Pattern

COUNT = 600


def _combine(op: str, a: Array, b: Array) -> Array:
    """Combines two arrays by one step of a reduction, rounded to the dtype."""
    with np.errstate(over="ignore"):
        match op:
            case "sum" | "avg" | "premul_sum":
                return np.asarray(a + b, a.dtype)
            case "prod":
                return np.asarray(a * b, a.dtype)
            case "min":
                return np.minimum(a, b)
            case "max":
                return np.maximum(a, b)
            case "land":
                return np.asarray((a != 0) & (b != 0), a.dtype)
            case "lor":
                return np.asarray((a != 0) | (b != 0), a.dtype)
            case "band":
                return np.asarray(a & b)
            case "bor":
                return np.asarray(a | b)
            case _:
                return np.asarray(a ^ b)


def _entering(p: Pattern, rank: int) -> Array:
    """Returns a rank's piece as it enters, of premul_sum times the rank's scalar."""
    piece = patterns.inputs(p, rank)
    if p.op != "premul_sum":
        return piece
    with np.errstate(over="ignore"):
        return np.asarray(piece * patterns.scalar_of(p.dtype, rank), p.numpy)


def _final(p: Pattern, total: Array) -> Array:
    """Divides for avg, element by element in Python's numbers."""
    n = p.collective.n_ranks
    if p.op != "avg":
        return total
    if p.numpy.kind in "iu":
        whole = [abs(int(x)) // n * (1 if x >= 0 else -1) for x in total]
        return np.array(whole).astype(p.numpy)
    if p.numpy.kind == "c":
        parts: Any = total.view(f"f{p.numpy.itemsize // 2}")
        return np.asarray((parts / parts.dtype.type(n)).view(p.numpy))
    wide: Any = np.float64 if p.dtype == "float64" else np.float32
    return np.array([wide(x) / wide(n) for x in total]).astype(p.numpy)


@pytest.mark.parametrize("n", [2, 3, 8, 33, 200])
@pytest.mark.parametrize(
    ("dtype", "op"), [(dtype, op) for dtype in DTYPES for op in OPS if reduces(dtype, op)]
)
def test_reductions_are_exact_in_any_order(dtype: str, op: str, n: int) -> None:
    p = Pattern(Collective(OpType.ALLREDUCE, n, 1), dtype, op, COUNT, seed=n)
    total: Array | None = None
    for rank in np.random.default_rng(n).permutation(n):
        piece = _entering(p, int(rank))
        total = piece if total is None else _combine(op, total, piece)
    assert total is not None
    want = patterns.expected(p).at(0)
    assert want.dtype == p.numpy
    assert np.isfinite(want.astype(np.complex128)).all()
    assert patterns.wrong(_final(p, total), want) == 0


@pytest.mark.parametrize(
    ("dtype", "op"),
    [(d, op) for d in DTYPES for op in OPS if reduces(d, op) and op not in ("min", "max")],
)
@pytest.mark.parametrize("n", [2, 32, 100])
def test_a_piece_missing_twice_or_shifted_shows(n: int, dtype: str, op: str) -> None:
    idle = op != "bxor" and (dtype == "bool" or op in ("band", "bor", "land", "lor"))
    count = 10 * COUNT if idle else COUNT  # a rank changes few elements
    p = Pattern(Collective(OpType.ALLREDUCE, n, 1), dtype, op, count)
    pieces = [_entering(p, r) for r in range(n)]

    def total(parts: list[Array]) -> Array:
        done = parts[0]
        for part in parts[1:]:
            done = _combine(op, done, part)
        return _final(p, done)

    want = patterns.expected(p).at(0)
    others = [pieces[1:], [pieces[1], *pieces[1:]], [np.roll(pieces[0], 1), *pieces[1:]]]
    if not idle:
        others.append([*pieces, pieces[0]])  # elsewhere a value combined with itself is itself
    for other in others:
        assert patterns.wrong(total(other), want) > COUNT // 200  # int8's averages are coarse


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float8e5m2"])
def test_a_scalar_of_another_rank_shows(dtype: str) -> None:
    p = Pattern(Collective(OpType.ALLREDUCE, 2, 1), dtype, "premul_sum", COUNT)
    a, b = (patterns.inputs(p, r) for r in range(2))
    of_a, of_b = (patterns.scalar_of(dtype, r) for r in range(2))
    want = patterns.expected(p).at(0)
    assert patterns.wrong(np.asarray(a * of_a + b * of_b, p.numpy), want) == 0
    for wrong in (a * of_b + b * of_a, a + b, a * of_a + b):
        assert patterns.wrong(np.asarray(wrong, p.numpy), want) > COUNT // 3


def test_seeds_give_other_data() -> None:
    c = Collective(OpType.ALLREDUCE, 4, 4)
    for dtype in DTYPES:
        one, two = (patterns.expected(Pattern(c, dtype, "sum", COUNT, s)).at(0) for s in (1, 2))
        assert patterns.wrong(one, two) > COUNT // (3 if dtype == "bool" else 2)


@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "float64"])
def test_moved_data_is_different_everywhere(dtype: str) -> None:
    p = Pattern(Collective(OpType.ALLGATHER, 8, 8), dtype, "sum", COUNT)
    pieces = [patterns.inputs(p, r).tobytes() for r in range(8)]
    assert len(set(pieces)) == 8


def _scalar(p: Pattern, rank: int, i: int) -> Any:
    return patterns.values(p, rank, i, i + 1)[0]


@pytest.mark.parametrize("op", list(PROGRAMMABLE))
def test_expected_follows_the_definition(op: OpType) -> None:
    """Element by element, from the collectives' definition in words."""
    n, count, root = 5, 7, 3
    c = Collective(op, n, {OpType.ALLTOALL: 25}.get(op, 5), root)
    p = Pattern(c, "int64", "sum", count)
    result = patterns.expected(p)

    def reduced(i: int) -> int:
        total = sum(int(_scalar(p, r, i)) for r in range(n))
        return (total + 2**63) % 2**64 - 2**63

    for rank in range(n):
        got = result.at(rank)
        assert len(got) == c.output_blocks(rank) * count
        for i, value in enumerate(got):
            block, e = divmod(i, count)
            match op:
                case OpType.ALLREDUCE | OpType.REDUCE:
                    want = reduced(i)
                case OpType.REDUCESCATTER:
                    want = reduced(rank * count + e)
                case OpType.BROADCAST:
                    want = _scalar(p, root, i)
                case OpType.ALLGATHER | OpType.GATHER:
                    want = _scalar(p, block, e)
                case OpType.SCATTER:
                    want = _scalar(p, root, rank * count + e)
                case OpType.ALLTOALL:
                    want = _scalar(p, block, rank * count + e)
                case _:
                    want = _scalar(p, (rank - 1) % n, e)
            assert value == want


def test_any_part_can_be_asked_for() -> None:
    """Data comes in blocks of 65,536 elements; their edges must not show."""
    p = Pattern(Collective(OpType.ALLREDUCE, 3, 1), "bfloat16", "avg", 150_000)
    whole = patterns.inputs(p, 2)
    assert patterns.wrong(patterns.values(p, 2, 65_000, 140_000), whole[65_000:140_000]) == 0
    assert patterns.wrong(patterns.reduced(p, 9, 70_000), patterns.expected(p).at(1)[9:70_000]) == 0
