"""fit: a matrix of integers → the shortest Form that gives exactly these integers.

A parameter of alike primitives is an array over a grid (node, local, tb, i) or (rank, tb, i).
Algorithms are regular: nearly always V = f(node) + g(local) + h(tb) + k(i), perhaps modulo the
number of ranks, or each of V / G and V % G is. So the fit takes the marginals of V, checks that
they add up (exactly, or modulo m), and describes each marginal by a line, by a line over a quotient
and a remainder, or by a table. Values that do not add up over single axes may over groups of axes;
the last resort is one table over everything. O(size of V) per candidate, few candidates. `view` has
an example.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import gcd, prod

import numpy as np

from hccc.base.diagnostics import InternalError, fail
from hccc.emit.kernels.forms import (
    Axis,
    Coord,
    Form,
    Grid,
    Lookup,
    Split,
    Sum,
    Term,
    atom_values,
    cost,
    values,
)
from hccc.emit.kernels.width import INT, fits_int
from hccc.ir.arrays import I8

Group = tuple[int, ...]
LOOK = 4  # places along each axis looked at before all are
LOOP = "i"  # the loop's axis
LARGEST_TABLE = 1 << 24  # entries, holes included
MANY_ROOTS = 64  # solutions of a * x = b (mod m) tried before giving up


def fit(v: I8, grid: Grid, moduli: Sequence[int]) -> Form:
    """Returns the cheapest form found for `v` (i8[grid.shape]), equal to it everywhere.

    `moduli`: numbers that matter in the algorithm (ranks, GPUs per node, chunks, ...).

    Raises:
        InternalError: a value is no int; generated code has no other parameters.
    """
    v = np.asarray(v, np.int64)
    if not fits_int(v):
        raise InternalError("a parameter of generated code does not fit an int")
    form = _fit(v, grid, tuple(sorted({m for m in moduli if 1 < m <= INT})), 2)
    if not np.array_equal(values(form, grid), v):
        raise InternalError("a fitted expression differs from the values it stands for")
    return form


def _fit(v: I8, grid: Grid, moduli: tuple[int, ...], depth: int) -> Form:
    best: Form | None = None
    for stage in _stages(v, grid, moduli, depth):
        for form in stage:
            if best is None or cost(form) < cost(best):
                best = form
        if best is not None and cost(best)[0] == 0:
            return best
    if best is None:
        raise InternalError("no form for a parameter, not even a table")
    return best


def _stages(v: I8, grid: Grid, moduli: tuple[int, ...], depth: int) -> Iterator[Iterator[Form]]:
    """Yields ever more general forms of `v`; the first stage always has one."""
    low, high = int(v.min()), int(v.max())
    span = (*moduli, min(high - low + 1, INT))
    cycles = [(0, 0), *((m, 0 if low >= 0 and high < m else low) for m in span if high - low < m)]
    yield _sums(v, grid, cycles)
    if depth and low >= 0:
        yield (_split(v, grid, base, moduli, depth) for base in moduli if base <= high)


def _split(v: I8, grid: Grid, base: int, moduli: tuple[int, ...], depth: int) -> Split:
    high, low = (_fit(part, grid, moduli, depth - 1) for part in (v // base, v % base))
    return Split(high, base, low)


def _sums(v: I8, grid: Grid, cycles: Sequence[tuple[int, int]]) -> Iterator[Sum]:
    """Yields V as offset + (Σ of one function per group of axes) % modulus, for each modulus."""
    mixed = _interactions(v)
    wide = tuple(k for k, n in enumerate(v.shape) if n > 1)
    for modulus, offset in cycles:
        groups = _groups(wide, mixed, modulus)
        if modulus and len(groups) == 1 < len(wide):
            continue  # a table of everything needs no modulus
        terms: list[Term] = []
        for group in groups:
            part = _marginal(v, group, modulus)
            terms += _terms([grid.axes[k] for k in group], part, modulus)
        yield _assemble(int(v.flat[0]) - offset, terms, grid, modulus, offset)


def _interactions(v: I8) -> dict[Group, int]:
    """Returns for each pair of axes the greatest common divisor of all mixed differences of `v`.

    V is a sum of a function without one axis and a function without the other, modulo m, exactly if
    m divides it; 0: it is such a sum without a modulus.
    """
    wide = [k for k, n in enumerate(v.shape) if n > 1]
    return {(a, b): _mixed_gcd(v, a, b) for a in wide for b in wide if a < b}


def _mixed_gcd(v: I8, a: int, b: int) -> int:
    few = v
    for k, n in enumerate(v.shape):
        few = np.take(few, _few(n), axis=k)
    for some in (few, v):
        difference = some - _first(some, a)
        found = int(np.gcd.reduce(difference - _first(difference, b), axis=None))
        if found == 1:
            return 1
    return found


@cache
def _few(n: int) -> tuple[int, ...]:
    """Returns some places on an axis of length n."""
    return tuple(sorted({k * (n - 1) // (LOOK - 1) for k in range(LOOK)}))


def _first(v: I8, axis: int) -> I8:
    return v.take([0], axis=axis)


def _groups(axes: Group, mixed: dict[Group, int], modulus: int) -> list[Group]:
    """Joins axes that do not add up (modulo `modulus`) into groups."""
    groups = [{k} for k in axes]
    for (a, b), divisor in mixed.items():
        if divisor % modulus if modulus else divisor:
            one = next(g for g in groups if a in g)
            two = next(g for g in groups if b in g)
            if one is not two:
                groups.remove(two)
                one |= two
    return [tuple(sorted(g)) for g in groups]


def _marginal(v: I8, group: Group, modulus: int) -> I8:
    """Returns V along the axes of a group, 0 at its origin."""
    part: I8 = v[tuple(slice(None) if k in group else 0 for k in range(v.ndim))] - v.flat[0]
    return part % modulus if modulus else part


def _terms(axes: Sequence[Axis], part: I8, modulus: int) -> list[Term]:
    """Returns terms that give `part` over its axes (modulo `modulus`)."""
    if not part.any():
        return []
    if len(axes) == 1:
        lines = _line(axes[0], part, modulus)
        if lines is None and axes[0].name == LOOP:
            lines = _two_lines(axes[0], part, modulus)
        if lines is not None:
            return lines
    return [Term(1, _table(axes, part))]


def _line(axis: Axis, part: I8, modulus: int) -> list[Term] | None:
    """Returns `part` as `a * x`, if it is a line."""
    x = axis.values - axis.values[0]
    for a in _roots(int(x[1]), int(part[1]), modulus):
        if _equal(a * x, part, modulus):
            return [Term(a, Coord(axis.name))]
    return None


def _roots(x: int, y: int, modulus: int) -> list[int]:
    """Returns solutions a of a * x = y (modulo `modulus`), the smallest in size first."""
    if not modulus:
        return [y // x] if y % x == 0 else []
    g = gcd(x, modulus)
    if y % g:
        return []
    period = modulus // g
    first = y // g * pow(x // g, -1, period) % period if period > 1 else 0
    found = [(first + k * period) % modulus for k in range(min(g, MANY_ROOTS))]
    return sorted((a - modulus if 2 * a > modulus else a for a in found), key=lambda a: (abs(a), a))


def _equal(a: I8, b: I8, modulus: int) -> bool:
    gap = a - b
    return not np.any(gap % modulus if modulus else gap)


def _two_lines(axis: Axis, part: I8, modulus: int) -> list[Term] | None:
    """Returns `part` as `a * (x / d) + c * (x % d)`: a nest of two loops, run as one, gives
    this."""
    x = axis.values
    if x[0] or np.any(np.diff(x) != 1):
        return None
    steps = np.diff(part)
    breaks = np.flatnonzero((steps - steps[0]) % modulus if modulus else steps - steps[0])
    d = int(breaks[0]) + 1 if len(breaks) else 0
    if d < 2 or d >= len(x):
        return None
    outer, inner = int(part[d]), int(part[1])
    if modulus:
        outer, inner = (a - modulus if 2 * a > modulus else a for a in (outer % modulus, inner))
    if not _equal(outer * (x // d) + inner * (x % d), part, modulus):
        return None
    pairs = ((outer, Coord(axis.name, div=d)), (inner, Coord(axis.name, rem=d)))
    return [Term(a, c) for a, c in pairs if a]


def _table(axes: Sequence[Axis], part: I8) -> Lookup:
    """Makes a table of `part`, indexed by the axes' values.

    Raises:
        UserError: E317 the table would be nearly all holes and too large to build.
    """
    first = tuple(int(a.values[0]) for a in axes)
    last = tuple(int(a.values[-1]) for a in axes)
    shape = [b - a + 1 for a, b in zip(first, last, strict=True)]
    if prod(shape) > max(LARGEST_TABLE, part.size):
        message = f"a table of {prod(shape):,} entries, {part.size:,} of them used, for kernels"
        help = "give the ranks that take part numbers that follow each other"
        raise fail("E317", message, help=help)
    table = np.zeros(shape, np.int64)
    table[np.ix_(*[a.values - f for a, f in zip(axes, first, strict=True)])] = part
    return Lookup(tuple(a.name for a in axes), first, table)


def _assemble(origin: int, terms: list[Term], grid: Grid, modulus: int, offset: int) -> Sum:
    """Builds the sum with the right constant; with a modulus, one that keeps it from going below
    0."""
    terms = _by_rank(terms, grid, modulus)
    arrays = [t.factor * atom_values(t.atom, grid) for t in terms]
    constant = origin - sum(int(a.flat[0]) for a in arrays)
    if modulus:
        lowest = constant + sum(int(a.min()) for a in arrays)
        constant -= lowest // modulus * modulus
    if terms and isinstance(terms[-1].atom, Lookup):
        reduce = modulus if all(int(a.min()) >= 0 for a in arrays) else 0
        shifted = _shifted(terms[-1].atom, constant, reduce)
        if fits_int(shifted.table):
            constant, terms[-1] = 0, Term(1, shifted)
    return Sum(constant, tuple(terms), modulus, offset)


def _shifted(lookup: Lookup, constant: int, modulus: int) -> Lookup:
    """Returns the table with the sum's constant already added."""
    table = lookup.table + constant
    return Lookup(lookup.axes, lookup.first, table % modulus if modulus else table)


def _by_rank(terms: list[Term], grid: Grid, modulus: int) -> list[Term]:
    """Rewrites `a * G * node + a * local` as `a * rank`, which is easier to read."""
    if not grid.gpus:
        return terms
    factor = {t.atom.axis: t.factor for t in terms if t.atom in (Coord("node"), Coord("local"))}
    node, local = factor.get("node", 0), factor.get("local", 0)
    gap = node - grid.gpus * local
    if not local or (gap % modulus if modulus else gap):
        return terms
    rest = [t for t in terms if t.atom not in (Coord("node"), Coord("local"))]
    return [Term(local, Coord("rank")), *rest]
