"""patterns: test data whose answer is exact in every dtype, and different for every rank and
element.

Errors that must be found: a wrong shard, a wrong rank, a piece left out or added twice, an offset
that is one off, the previous launch's data. So every value is a hash of (seed, rank, element).

Reductions are exact in any order, also where a partial result is rounded to the dtype in between.
Sums (and averages): whole numbers, so few and small that every partial sum is exact in the dtype;
with many ranks most give 0 at an element, which ones depends on the element. Products: powers of
two and signs; of complex numbers, some of them by 1 + 2i. Integers wrap, so any will do, odd ones
in products. Minimum and maximum: any finite value. Bits: any in bxor; in bor few ranks have any, in
band few lack any; likewise truth values. Where nothing is reduced: any bits at all. What is exact
in a reduction of one's own is found by trying (`own_patterns`).

Expected results come from the collectives' definition over elements (the table in
`ir/collective.py`), not from chunks, slots or plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import fail
from hccc.base.dtypes import BY_NAME, is_own, named
from hccc.ir.collective import Collective, OpType
from hccc.ir.demand import Demand
from hccc.ir.hashing import GOLDEN, mixed
from hccc.ir.uneven import BlockTable
from hccc.runtime.layout import DTYPES
from hccc.runtime.measure.own_patterns import first_exact, folded

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
    "complex64": 2**24,
    "complex128": 2**53,
}
# Partial products keep their exponents within this (normal numbers of the dtype).
_EXPONENT = {
    "float16": 14,
    "bfloat16": 120,
    "float32": 120,
    "float64": 960,
    "float8e4m3": 6,
    "float8e5m2": 14,
    "complex64": 110,
    "complex128": 960,
}
_MOST_AT_ONCE = 32  # ranks that give something else than 0 to a sum
_MOST_FACTORS = 12  # ranks that give something else than ±1 to a product
_MOST_COMPLEX = 4  # ranks that give a factor 1 + 2i
_MOST_BITS = 2  # ranks that give something else than the neutral value to band, bor, land, lor
_BLOCK = 1 << 16  # elements at a time: what fits the cache


@dataclass(frozen=True, slots=True)
class Pattern:
    """The data of one launch. `count`: elements in a block; `seed`: differs between launches;
    `blocks`: of an uneven collective, each at its place in a buffer of blocks of `count`."""

    collective: Collective
    dtype: str
    op: str
    count: int
    seed: int = 0
    blocks: BlockTable | None = None

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


def _to_be_doubled(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes pieces (i8) of a sum that is exact with each of them doubled."""
    n = min(p.collective.n_ranks, _MOST_AT_ONCE, _EXACT[p.dtype] // 4)
    value = _up_to(_of_rank(elements, rank), _EXACT[p.dtype] // (2 * n))
    if n < p.collective.n_ranks:
        value *= _gives(p, elements, rank, n)
    return value


_SCALARS = (2, -1, 1, -2)  # of ranks 0, 1, ..., and again


def scalar_of(dtype: str, rank: int) -> Array:
    """Returns the scalar of a rank in premul_sum, as an array of one element."""
    whole = np.array([_SCALARS[rank % len(_SCALARS)]], np.int64)
    return whole.astype(DTYPES[dtype])


def scalars(dtype: str, n_ranks: int) -> tuple[int, ...]:
    """Returns the bits of the scalars of all ranks."""
    each = (scalar_of(dtype, rank).tobytes() for rank in range(n_ranks))
    return tuple(int.from_bytes(one, "little") for one in each)


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
    h = _of_rank(elements, rank)
    if p.numpy.itemsize == 16:
        return np.stack([h, h * GOLDEN], axis=1).view(p.numpy)[:, 0]
    return h.astype(f"u{p.numpy.itemsize}").view(p.numpy)


def _complex(
    make: Callable[[Pattern, U8, int], Array], p: Pattern, elements: U8, rank: int
) -> Array:
    """Makes complex numbers (c16) of a function's values for both parts."""
    real = make(p, elements, rank)
    imaginary = make(p, mixed(elements), rank)
    return np.asarray(real + 1j * imaginary, np.complex128)


def _complex_whole_numbers(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes pieces of an exact sum (c16)."""
    return _complex(_whole_numbers, p, elements, rank)


def _complex_factors(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes pieces of an exact product (c16), which is neither real nor imaginary.

    No sign of a zero, which would depend on the order, can then be seen.
    """
    factor = np.where(_gives(p, elements, rank, _MOST_COMPLEX), 1 + 2j, 1 + 0j)
    return np.asarray(_powers_of_two(p, elements, rank) * factor)


def _truth_values(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes pieces of an odd or even number of true values (b1)."""
    return np.asarray(_of_rank(elements, rank) >> np.uint64(63) != 0)


def _few(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes bits (u8) that few ranks have."""
    return _of_rank(elements, rank) * _gives(p, elements, rank, _MOST_BITS)


def _all_but_few(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes bits (u8) that few ranks lack."""
    return ~_few(p, elements, rank)


def _few_true(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes truth values (b1) that few ranks have."""
    return np.asarray(_few(p, elements, rank) >> np.uint64(63) != 0)


def _few_false(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes truth values (b1) that few ranks lack."""
    return ~_few_true(p, elements, rank)


def _few_not_zero(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes integers (u8) that are not 0 at few ranks."""
    h = _of_rank(elements, rank) | np.uint64(1)
    return h * _few_true(p, elements, rank)


def _few_zero(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes integers (u8) that are 0 at few ranks."""
    h = _of_rank(elements, rank) | np.uint64(1)
    return h * _few_false(p, elements, rank)


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
    if not is_own(p.op):
        return _PIECES[_sort(p), p.op]
    found = _own_pieces(p.collective.n_ranks, p.dtype, p.op)
    return _CANDIDATES[0 if found is None else found]


def _sort(p: Pattern) -> str:
    """Returns the kind of the values, `i` for all integers."""
    kind = BY_NAME[p.dtype].kind
    return "i" if kind == "u" else kind


def _small(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes -1, 0 and 1 (i8)."""
    return np.asarray(np.minimum(_up_to(_of_rank(elements, rank), 3) >> 1, 1))


def _ones(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes 1 at one rank, or two, and 0 at the others (i8)."""
    return _gives(p, elements, rank, 2).astype(np.int64)


_CANDIDATES = (_any_numbers, _whole_numbers, _powers_of_two, _small, _ones)
_TRIED = 512  # elements


@lru_cache(maxsize=64)
def _own_pieces(n_ranks: int, dtype: str, op: str) -> int | None:
    """Returns which of the candidates is exact in a reduction of one's own; None: none is."""
    p = Pattern(Collective(OpType.ALLREDUCE, n_ranks, 1), dtype, op, _TRIED)
    if _sort(p) == "i":
        return 0
    elements = _of_elements(p, 0, _TRIED)

    def made(make: Callable[[Pattern, U8, int], Array]) -> list[Array]:
        return [_stored(p, make(p, elements, rank)) for rank in range(n_ranks)]

    return first_exact(op, dtype, [partial(made, make) for make in _CANDIDATES])


_PIECES: dict[tuple[str, str], Callable[[Pattern, U8, int], Array]] = {
    ("i", "sum"): _any_integers,
    ("i", "avg"): _any_integers,
    ("i", "premul_sum"): _any_integers,
    ("i", "prod"): _odd_numbers,
    ("i", "min"): _any_numbers,
    ("i", "max"): _any_numbers,
    ("i", "bxor"): _any_integers,
    ("i", "bor"): _few,
    ("i", "band"): _all_but_few,
    ("i", "lor"): _few_not_zero,
    ("i", "land"): _few_zero,
    ("f", "sum"): _whole_numbers,
    ("f", "avg"): _whole_numbers,
    ("f", "premul_sum"): _to_be_doubled,
    ("f", "prod"): _powers_of_two,
    ("f", "min"): _any_numbers,
    ("f", "max"): _any_numbers,
    ("c", "sum"): _complex_whole_numbers,
    ("c", "avg"): _complex_whole_numbers,
    ("c", "prod"): _complex_factors,
    ("b", "bxor"): _truth_values,
    **{("b", op): _few_true for op in ("sum", "max", "bor", "lor")},
    **{("b", op): _few_false for op in ("prod", "min", "band", "land")},
}


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
    if p.numpy.kind in "iu" and exact.dtype.kind == "u":  # not bool, of land and lor
        return exact.astype(f"u{p.numpy.itemsize}").view(p.numpy)
    return exact.astype(p.numpy)


def inputs(p: Pattern, rank: int) -> Array:
    """Returns `rank`'s send buffer: input_blocks · count elements."""
    demand, n = p.collective.demand, p.count
    if demand is None:
        return values(p, rank, 0, p.collective.input_blocks(rank) * n)
    blocks = [_demanded(p, demand, b, rank) for b in np.flatnonzero(demand.has[:, rank]).tolist()]
    return np.concatenate([np.empty(0, p.numpy), *blocks])


def _demanded(p: Pattern, demand: Demand, block: int, rank: int) -> Array:
    """Returns the data of a block at `rank`: a piece of its own, or of copies the same as all."""
    if not demand.sums[block]:
        rank = int(demand.source()[block])
    return values(p, rank, block * p.count, (block + 1) * p.count)


def _supplied(p: Pattern, demand: Demand, block: int) -> Array:
    """Returns what ranks must end with of a block."""
    if not demand.sums[block]:
        return _demanded(p, demand, block, 0)
    ranks = np.flatnonzero(demand.has[block]).tolist()
    return reduced(p, block * p.count, (block + 1) * p.count, ranks)


def rough(p: Pattern, rank: int) -> Array:
    """Makes a send buffer of values in ±1 with all their digits, whose sums depend on the order."""
    if _sort(p) in "bi" or not p.collective.reduces or p.collective.demand:
        return inputs(p, rank)
    elements = _of_elements(p, 0, p.collective.input_blocks(rank) * p.count)
    if _sort(p) == "c":
        return _complex(_fractions, p, elements, rank).astype(p.numpy)
    return _fractions(p, elements, rank).astype(p.numpy)


def _fractions(p: Pattern, elements: U8, rank: int) -> Array:
    """Makes values in ±1 (f8)."""
    return np.ldexp(_up_to(_of_rank(elements, rank), 2**53).astype(np.float64), -53)


_FOLD: dict[str, np.ufunc] = {
    "sum": np.add,
    "avg": np.add,
    "premul_sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": np.logical_and,
    "lor": np.logical_or,
}


def reduced(p: Pattern, start: int, stop: int, ranks: Sequence[int] = ()) -> Array:
    """Reduces elements [start, stop) of the send buffers of `ranks`, of all where left out. O(ranks
    · elements).

    Raises:
        UserError: E458 no values are known that a reduction of one's own is exact for.
    """
    ranks = ranks or range(p.collective.n_ranks)
    if is_own(p.op):
        return _own_reduced(p, start, stop, ranks)
    out = np.empty(stop - start, p.numpy)
    make, fold = _pieces(p), _FOLD[p.op]
    for a, b in _blocks(start, stop):
        elements = _of_elements(p, a, b)
        total = _entering(p, make(p, elements, ranks[0]), ranks[0])
        for rank in ranks[1:]:
            total = fold(total, _entering(p, make(p, elements, rank), rank))
        out[a - start : b - start] = _averaged(p, total) if p.op == "avg" else _stored(p, total)
    return out


def _entering(p: Pattern, pieces: Array, rank: int) -> Array:
    """Returns what a rank's pieces are as they enter a reduction: multiplied in premul_sum."""
    if p.op != "premul_sum":
        return pieces
    by = int(scalar_of(p.dtype, rank)[0])
    by = by % (1 << 64) if pieces.dtype.kind == "u" else by
    return np.asarray(pieces * np.array([by], pieces.dtype))


def _own_reduced(p: Pattern, start: int, stop: int, ranks: Sequence[int]) -> Array:
    """Does as `reduced`, by a reduction of one's own."""
    if _own_pieces(p.collective.n_ranks, p.dtype, p.op) is None:
        message = f"{named(p.op)} of {p.dtype} rounds: its result depends on the order"
        raise fail("E458", message, help="-c 0 runs it without a check; or another type")
    out = np.empty(stop - start, p.numpy)
    for a, b in _blocks(start, stop):
        each = [values(p, rank, a, b) for rank in ranks]
        out[a - start : b - start] = folded(p.op, p.dtype, each)
    return out


def _averaged(p: Pattern, total: Array) -> Array:
    """Divides the sum by the ranks: truncated for integers, rounded once for the others."""
    n = p.collective.n_ranks
    if p.numpy.kind in "iu":
        whole = _stored(p, total).astype(np.uint64 if p.numpy.kind == "u" else np.int64)
        down: Array = whole // n
        down += (whole < 0) & (down * n != whole)
        return down.astype(p.numpy)
    wide: Any = np.float64 if p.dtype in ("float64", "complex128") else np.float32
    if p.numpy.kind == "c":
        parts = np.divide(total.astype(np.complex128).view(np.float64).astype(wide), wide(n))
        return np.asarray(parts.view(p.numpy))
    quotient: Array = np.divide(total.astype(wide), wide(n))
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
        if c.demand:
            wanted = np.flatnonzero(c.demand.wants[:, rank]).tolist()
            return np.concatenate([_supplied(p, c.demand, block) for block in wanted])
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
            if c.demand is None:
                raise ValueError("nobody knows the result of a custom collective")
            return Expected(p, None)


POISON = 0xA5


def poison(array: Array) -> None:
    """Overwrites `array` with bytes that no result is likely to have."""
    array.view(np.uint8)[...] = POISON


def far(p: Pattern, got: Array, want: Array) -> int:
    """Counts the elements of sums of rough data that differ by more than their order explains.

    A partial sum is at most n, and each of the n - 1 roundings of either order at most n/2 eps.
    """
    if _sort(p) not in "fc" or p.op not in ("sum", "avg"):
        return wrong(got, want)
    kind = np.complex128 if _sort(p) == "c" else np.float64
    most = 2 * p.collective.n_ranks**2 / _EXACT[p.dtype]
    with np.errstate(invalid="ignore"):  # guards hold any bits, which must be the same
        near = np.abs(got.astype(kind) - want.astype(kind)) <= most
    return wrong(got[~near], want[~near])


def wrong(got: Array, want: Array) -> int:
    """Counts the elements that differ in any bit."""
    size = min(got.dtype.itemsize, 8)
    differ = (got.view(f"u{size}") != want.view(f"u{size}")).reshape(-1, got.dtype.itemsize // size)
    return int(np.count_nonzero(differ.any(axis=1)))
