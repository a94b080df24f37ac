"""patterns: test data whose answer is exact in every dtype, and different for every rank and
element.

Errors that must be found: a wrong shard, a wrong rank, a piece left out or added twice, an offset
that is one off, the previous launch's data. So every value is a hash of (seed, rank, element).

Reductions are exact in any order, also where a partial result is rounded to the dtype in between.
Sums (and averages): whole numbers, so few and small that every partial sum is exact in the dtype;
with many ranks most give 0 at an element, which ones depends on the element. Products: powers of
two and signs. Integers wrap, so any will do, odd ones in products. Minimum and maximum: any finite
value. Where nothing is reduced: any bits at all.

Expected results come from the collectives' definition over elements (the table in
`ir/collective.py`), not from chunks, slots or plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.collective import Collective, OpType
from hccc.ir.hashing import GOLDEN, mixed
from hccc.runtime.layout import DTYPES

Array = NDArray[Any]
U8 = NDArray[np.uint64]

# Whole numbers up to this size are exact.
_EXACT = {
    "float16": 2**11,
    "bfloat16": 2**8,
    "float32": 2**24,
    "float64": 2**53,
    "float8e4m3": 2**4,
    "float8e5m2": 2**3,
}
# Partial products keep their exponents within this (normal numbers of the dtype).
_EXPONENT = {
    "float16": 14,
    "bfloat16": 120,
    "float32": 120,
    "float64": 960,
    "float8e4m3": 6,
    "float8e5m2": 14,
}
_MOST_AT_ONCE = 32  # ranks that give something else than 0 to a sum
_MOST_FACTORS = 12  # ranks that give something else than ±1 to a product
_BLOCK = 1 << 16  # elements at a time: what fits the cache


@dataclass(frozen=True, slots=True)
class Pattern:
    """The data of one launch. `count`: elements in a block; `seed`: differs between launches."""

    collective: Collective
    dtype: str
    op: str
    count: int
    seed: int = 0

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        return DTYPES[self.dtype]


def _of_elements(p: Pattern, start: int, stop: int) -> U8:
    """Hashes each element of [start, stop), the same for all ranks."""
    return mixed(
        (np.arange(start, stop, dtype=np.uint64) + np.uint64((p.seed & 0xFFFFFF) << 40)) * GOLDEN
    )


def _of_rank(elements: U8, rank: int) -> U8:
    """Mixes the elements' hashes with a rank: one multiplication, as they are mixed already."""
    key = mixed(np.array([rank + 1], np.uint64) * GOLDEN)
    h = (elements ^ key) * GOLDEN
    h ^= h >> np.uint64(32)
    return h


def _gives(p: Pattern, elements: U8, rank: int, most: int) -> Array:
    """Returns where `rank` gives a value: at any element at most `most` ranks do."""
    every = np.uint64(-(-p.collective.n_ranks // most))
    phase: U8 = (elements >> np.uint64(8)) + np.uint64(rank)
    gives: Array = phase % every == 0
    return gives


def _up_to(h: U8, reach: int) -> Array:
    """Converts hashes to whole numbers of at most `reach` (i8), by shifts (a division is 5 times
    slower)."""
    bits = reach.bit_length()
    return (h >> np.uint64(64 - bits)).astype(np.int64) - (1 << (bits - 1))


def _whole_numbers(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes pieces of an exact sum (i8)."""
    n = min(p.collective.n_ranks, _MOST_AT_ONCE, _EXACT[p.dtype] // 2)
    value = _up_to(_of_rank(elements, rank), _EXACT[p.dtype] // n)
    if n < p.collective.n_ranks:
        value *= _gives(p, elements, rank, n)
    return value


def _powers_of_two(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes pieces of an exact product (f8)."""
    most = min(_MOST_FACTORS, _EXPONENT[p.dtype], p.collective.n_ranks)
    h = _of_rank(elements, rank)
    power = _up_to(h, _EXPONENT[p.dtype] // most)
    if most < p.collective.n_ranks:
        power *= _gives(p, elements, rank, most)
    sign = 1.0 - 2.0 * (h & np.uint64(1)).astype(np.float64)
    return np.ldexp(sign, power.astype(np.int32))


def _any_bits(p: Pattern, elements: U8, rank: int) -> Array:
    """Returns hash bits as the dtype: NaNs and all, for data that is only moved."""
    return _of_rank(elements, rank).astype(f"u{p.numpy.itemsize}").view(p.numpy)


def _any_numbers(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes finite values without a negative zero (min and max of ±0 depend on the order)."""
    if p.numpy.kind in "iu":
        return _any_bits(p, elements, rank)
    return _up_to(_of_rank(elements, rank), _EXACT[p.dtype]).astype(p.numpy)


def _any_integers(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes pieces of a sum that wraps (u8)."""
    return _of_rank(elements, rank)


def _odd_numbers(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes odd numbers (u8), so that a product modulo a power of two depends on all its
    factors."""
    return _of_rank(elements, rank) | np.uint64(1)


def _pieces(p: Pattern) -> Callable[[Pattern, U8, int], Array]:
    """Returns the function that makes one rank's values, in the type in which reductions of them
    are exact."""
    if not p.collective.reduces:
        return _any_bits
    if p.op in ("min", "max"):
        return _any_numbers
    integer = p.numpy.kind in "iu"
    if p.op == "prod":
        return _odd_numbers if integer else _powers_of_two
    return _any_integers if integer else _whole_numbers


def values(p: Pattern, rank: int, start: int, stop: int) -> Array:
    """Returns elements [start, stop) of `rank`'s send buffer."""
    out = np.empty(stop - start, p.numpy)
    make = _pieces(p)
    for a, b in _blocks(start, stop):
        out[a - start : b - start] = _stored(p, make(p, _of_elements(p, a, b), rank))
    return out


def _blocks(start: int, stop: int) -> Iterator[tuple[int, int]]:
    for a in range(start, stop, _BLOCK):
        yield a, min(a + _BLOCK, stop)


def _stored(p: Pattern, exact: Array) -> Array:
    """Converts exact values to the dtype; integers wrap."""
    if p.numpy.kind in "iu" and exact.dtype.kind == "u":
        return exact.astype(f"u{p.numpy.itemsize}").view(p.numpy)
    return exact.astype(p.numpy)


def inputs(p: Pattern, rank: int) -> Array:
    """Returns `rank`'s send buffer: input_blocks · count elements."""
    return values(p, rank, 0, p.collective.input_blocks(rank) * p.count)


def rough(p: Pattern, rank: int) -> Array:
    """Makes a send buffer of values in ±1 with all their digits, whose sums depend on the order."""
    if p.numpy.kind in "iu" or not p.collective.reduces:
        return inputs(p, rank)
    n = p.collective.input_blocks(rank) * p.count
    h = _of_rank(_of_elements(p, 0, n), rank)
    values = np.ldexp(_up_to(h, 2**53).astype(np.float64), -53)
    return values.astype(p.numpy)


_FOLD: dict[str, np.ufunc] = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def reduced(p: Pattern, start: int, stop: int) -> Array:
    """Reduces elements [start, stop) of all send buffers. O(ranks · elements)."""
    out = np.empty(stop - start, p.numpy)
    make, fold = _pieces(p), _FOLD[p.op]
    for a, b in _blocks(start, stop):
        elements = _of_elements(p, a, b)
        total = make(p, elements, 0)
        for rank in range(1, p.collective.n_ranks):
            total = fold(total, make(p, elements, rank))
        out[a - start : b - start] = _averaged(p, total) if p.op == "avg" else _stored(p, total)
    return out


def _averaged(p: Pattern, total: Array) -> Array:
    """Divides the sum by the ranks: truncated for integers, rounded once for the others."""
    n = p.collective.n_ranks
    if p.numpy.kind in "iu":
        wide = _stored(p, total).astype(np.uint64 if p.numpy.kind == "u" else np.int64)
        down: Array = wide // n
        down += (wide < 0) & (down * n != wide)
        return down.astype(p.numpy)
    real = np.float64 if p.dtype == "float64" else np.float32
    quotient: Array = np.divide(total.astype(real), real(n))
    return quotient.astype(p.numpy)


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """The results of every rank. `shared`: the one array of which all ranks have parts."""

    pattern: Pattern
    shared: Array | None

    def at(self, rank: int) -> Array:
        """Returns `rank`'s receive buffer: output_blocks · count elements. May be a view."""
        p, c, n = self.pattern, self.pattern.collective, self.pattern.count
        if not c.output_blocks(rank):
            return np.empty(0, p.numpy)
        if c.op is OpType.SENDRECV:
            return values(p, (rank - 1) % c.n_ranks, 0, n)
        if c.op is OpType.ALLTOALL:
            blocks = [values(p, s, rank * n, (rank + 1) * n) for s in range(c.n_ranks)]
            return np.concatenate(blocks)
        if self.shared is None:
            raise TypeError(f"{c.op} has a shared result")
        if c.op in (OpType.REDUCESCATTER, OpType.SCATTER):
            return self.shared[rank * n : (rank + 1) * n]
        return self.shared


def expected(p: Pattern) -> Expected:
    """Computes the expected results of all ranks."""
    c, n = p.collective, p.count
    match c.op:
        case OpType.ALLREDUCE | OpType.REDUCE:
            return Expected(p, reduced(p, 0, n))
        case OpType.REDUCESCATTER:
            return Expected(p, reduced(p, 0, c.n_ranks * n))
        case OpType.BROADCAST | OpType.SCATTER:
            return Expected(p, inputs(p, c.root))
        case OpType.ALLGATHER | OpType.GATHER:
            return Expected(p, np.concatenate([inputs(p, r) for r in range(c.n_ranks)]))
        case OpType.ALLTOALL | OpType.SENDRECV:
            return Expected(p, None)
        case OpType.CUSTOM:
            raise ValueError("nobody knows the result of a custom collective")


POISON = 0xA5


def poison(array: Array) -> None:
    """Overwrites `array` with bytes that no result is likely to have."""
    array.view(np.uint8)[...] = POISON


def wrong(got: Array, want: Array) -> int:
    """Counts the elements that differ in any bit."""
    bits = f"u{got.dtype.itemsize}"
    return int(np.count_nonzero(got.view(bits) != want.view(bits)))
