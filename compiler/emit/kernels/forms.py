"""forms: integer expressions of generated code: closed forms over axes, and lookup tables.

A Form gives an integer parameter of a primitive as a function of the coordinates of the thread
block and of the loop: `(rank + 7 - i) % 8`, `node * 4 + (local + 1) % 4`, `flags[rank][i]`. It
evaluates over a whole grid (`values`), so that a fit is always checked against the numbers it
replaces, and prints as C (`width`). Operands of `/` and `%` are never negative, so C and Python
agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I8, frozen


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One coordinate: its name in C, and the values it takes (ascending, not negative)."""

    name: str
    values: I8

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The product of axes that parameters are arrays over.

    Ranks are either one axis `rank`, or `node` and `local` with rank = node * gpus + local.
    """

    axes: tuple[Axis, ...]
    gpus: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of every axis."""
        return tuple(len(a) for a in self.axes)

    def coordinate(self, name: str) -> I8:
        """Returns the values of an axis (or of `rank`), in a shape that broadcasts to the grid."""
        for k, axis in enumerate(self.axes):
            if axis.name == name:
                return axis.values.reshape([-1 if j == k else 1 for j in range(len(self.axes))])
        return self.coordinate("node") * self.gpus + self.coordinate("local")


@dataclass(frozen=True, slots=True)
class Coord:
    """`x`, `x / div` or `x % rem` of the axis called `axis`."""

    axis: str
    div: int = 1
    rem: int = 0

    def of(self, x: I8) -> I8:
        """Returns the coordinate for axis values `x`."""
        return x % self.rem if self.rem else x // self.div


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """A table over some axes, indexed by `axis - first` each; holes hold 0."""

    axes: tuple[str, ...]
    first: tuple[int, ...]
    table: I8

    def key(self) -> tuple[object, ...]:
        """Returns a key that is equal for equal tables."""
        return (self.table.shape, self.table.tobytes())


@dataclass(frozen=True, slots=True)
class Term:
    """`factor * atom`."""

    factor: int
    atom: Coord | Lookup


@dataclass(frozen=True, slots=True)
class Sum:
    """`offset + (constant + Σ terms) % modulus`; no modulus when it is 0."""

    constant: int
    terms: tuple[Term, ...] = ()
    modulus: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """`high * base + low`, with 0 <= low < base."""

    high: Form
    base: int
    low: Form


Form = Sum | Split
NameTable = Callable[[Lookup], str]


def cost(form: Form) -> tuple[int, int]:
    """Returns (table entries, length of the expression): smaller is better."""
    if isinstance(form, Split):
        a, b = cost(form.high), cost(form.low)
        return a[0] + b[0], a[1] + b[1] + 1
    entries = sum(t.atom.table.size for t in form.terms if isinstance(t.atom, Lookup))
    odd = sum(isinstance(t.atom, Coord) and t.atom.div + t.atom.rem > 1 for t in form.terms)
    length = 2 * len(form.terms) + 3 * odd + sum(abs(t.factor) != 1 for t in form.terms)
    return entries, length + 2 * bool(form.modulus) + bool(form.offset) + bool(form.constant)


def names(form: Form) -> set[str]:
    """Returns the axes the form reads."""
    if isinstance(form, Split):
        return names(form.high) | names(form.low)
    found: set[str] = set()
    for t in form.terms:
        found |= set(t.atom.axes) if isinstance(t.atom, Lookup) else {t.atom.axis}
    return found


def values(form: Form, grid: Grid) -> I8:
    """Evaluates the form over the whole grid: i8[grid.shape]."""
    if isinstance(form, Split):
        return values(form.high, grid) * form.base + values(form.low, grid)
    total = np.full(grid.shape, form.constant, np.int64)
    for term in form.terms:
        total = total + term.factor * atom_values(term.atom, grid)
    # fmod keeps the sign of its first operand as C does, so a negative operand would show here.
    return np.fmod(total, form.modulus) + form.offset if form.modulus else total


def atom_values(atom: Coord | Lookup, grid: Grid) -> I8:
    """Evaluates an atom over the grid, in a shape that broadcasts to it."""
    if isinstance(atom, Coord):
        return atom.of(grid.coordinate(atom.axis))
    pairs = zip(atom.axes, atom.first, strict=True)
    return frozen(atom.table[tuple(grid.coordinate(a) - f for a, f in pairs)], np.int64)
