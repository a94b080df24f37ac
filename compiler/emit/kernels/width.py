"""width: a Form → C, computed in `int` if that is proved wide enough, else in 64 bits.

Forms are checked against the numbers they replace in NumPy's 64 bits, but C computes an expression
in the types of its operands, and overflow is undefined there. So text is built of Values: each
carries the interval of C's result, found step by step in the order in which C evaluates the text,
from the ranges of the axes and of the tables. If a step is not proved to fit an int, the whole
expression is printed in 64 bits and cast back; its final value fits an int.
"""

from __future__ import annotations

from dataclasses import dataclass

from hccc.base.diagnostics import InternalError
from hccc.emit.kernels.forms import Coord, Form, Grid, Lookup, NameTable, Split, Sum, Term, names
from hccc.ir.arrays import I8

INT = 2**31 - 1
LONG = 2**63 - 1
Ranges = dict[str, tuple[int, int]]


def fits_int(values: I8) -> bool:
    """Tells whether all `values` fit an int."""
    return not values.size or (int(values.min()) >= -INT - 1 and int(values.max()) <= INT)


def text(form: Form, name_table: NameTable) -> str:
    """Writes the form for comments: C without a thought for widths."""
    ranges = dict.fromkeys(names(form), (0, 0))
    return _Printer(ranges, name_table, False).form(form).text


def code(form: Form, grid: Grid, name_table: NameTable) -> str:
    """Writes the form over `grid` as a C expression of type int, of which no step overflows.

    It never needs parentheses inside a call.

    Raises:
        InternalError: 64 bits are not enough.
    """
    ranges = {name: _range(grid.coordinate(name)) for name in names(form)}
    narrow = _Printer(ranges, name_table, False).form(form)
    if narrow.fits:
        return narrow.text
    wide = _Printer(ranges, name_table, True).form(form)
    if not wide.fits:
        raise InternalError(f"an index needs more than 64 bits: {wide.text}")
    return f"static_cast<int>({wide.text})"


def _range(x: I8) -> tuple[int, int]:
    return int(x.min()), int(x.max())


@dataclass(frozen=True, slots=True)
class Value:
    """A C expression, and the interval of its value.

    wide: its type is long long, else int; fits: it and all its parts fit their types.
    """

    text: str
    low: int
    high: int
    wide: bool
    fits: bool


def _computed(text: str, bounds: tuple[int, int], *of: Value, wide: bool = False) -> Value:
    """Returns the value that C computes from `of`: a long long if one of them is."""
    wide = wide or any(v.wide for v in of)
    most = LONG if wide else INT
    fits = -most - 1 <= bounds[0] and bounds[1] <= most and all(v.fits for v in of)
    return Value(text, *bounds, wide, fits)


def _plus(a: Value, b: Value) -> Value:
    return _computed(f"{a.text} + {b.text}", (a.low + b.low, a.high + b.high), a, b)


def _minus(a: Value, b: Value) -> Value:
    return _computed(f"{a.text} - {b.text}", (a.low - b.high, a.high - b.low), a, b)


def _times(a: Value, b: Value) -> Value:
    """Multiplies; `b` is a positive number."""
    return _computed(f"{a.text} * {b.text}", (a.low * b.low, a.high * b.high), a, b)


def _over(a: Value, b: Value) -> Value:
    """Divides; `b` is a positive number; C truncates."""
    low, high = (abs(x) // b.low * (1 if x >= 0 else -1) for x in (a.low, a.high))
    return _computed(f"{a.text} / {b.text}", (low, high), a, b)


def _modulo(a: Value, b: Value) -> Value:
    """Takes the remainder, which has the sign of `a`; `b` is a positive number."""
    low, high = min(0, max(a.low, 1 - b.low)), max(0, min(a.high, b.low - 1))
    return _computed(f"{a.text} % {b.text}", (low, high), a, b)


def _negated(a: Value) -> Value:
    return _computed(f"-{a.text}", (-a.high, -a.low), a)


def _grouped(a: Value) -> Value:
    return _computed(f"({a.text})", (a.low, a.high), a)


@dataclass(frozen=True, slots=True, eq=False)
class _Printer:
    """Prints forms over axes of known ranges.

    wide: every product and every sum is computed in 64 bits. For that every factor is a long long,
    and so is the first part of a sum.
    """

    ranges: Ranges
    name_table: NameTable
    wide: bool

    def form(self, form: Form) -> Value:
        """Prints any form."""
        if isinstance(form, Split):
            high = self.form(form.high)
            simple = isinstance(form.high, Sum) and not form.high.modulus and _single(form.high)
            left = _times(high if simple else _grouped(high), self._number(form.base))
            right = self.form(form.low)
            return left if form.low == Sum(0) else _plus(left, right)
        inner = self._sum(form)
        if not form.modulus:
            return inner
        inner = _modulo(inner if _plain(form) else _grouped(inner), self._number(form.modulus))
        return _plus(self._number(form.offset), inner) if form.offset else inner

    def _sum(self, form: Sum) -> Value:
        """Prints positive terms first, then the constant, then the negative terms."""
        plus = [t for t in form.terms if t.factor > 0]
        minus = [t for t in form.terms if t.factor < 0]
        adds = [self._term(t, first=not k) for k, t in enumerate(plus)]
        if form.constant > 0 or not plus + minus:
            adds.append(self._number(form.constant, first=not adds))
        takes = [self._term(t) for t in minus[0 if adds else 1 :]]
        if form.constant < 0 and plus + minus:
            takes.append(self._number(-form.constant))
        total = adds[0] if adds else self._term(minus[0], first=True, negative=True)
        for value in adds[1:]:
            total = _plus(total, value)
        for value in takes:
            total = _minus(total, value)
        return total

    def _term(self, term: Term, first: bool = False, negative: bool = False) -> Value:
        """Prints `factor * atom`; a minus before it belongs to the atom."""
        factor, atom = abs(term.factor), self._atom(term.atom)
        loose = isinstance(term.atom, Coord) and term.atom.div + term.atom.rem > 1
        if self.wide and first and (factor == 1 or negative):
            cast = f"static_cast<long long>({atom.text})"
            atom = _computed(cast, (atom.low, atom.high), atom, wide=True)
        elif loose and (factor != 1 or negative):
            atom = _grouped(atom)
        atom = _negated(atom) if negative else atom
        return atom if factor == 1 else _times(atom, self._number(factor, first=True))

    def _number(self, value: int, first: bool = False) -> Value:
        """Prints a literal; `first`: nothing else makes the operation 64 bits wide."""
        long = self.wide and (first or value > INT)
        return _computed(f"{value}{'LL' if long else ''}", (value, value), wide=long)

    def _atom(self, atom: Coord | Lookup) -> Value:
        if isinstance(atom, Lookup):
            return self._lookup(atom)
        x = self._axis(atom.axis)
        if atom.rem:
            return _modulo(x, self._number(atom.rem))
        return _over(x, self._number(atom.div)) if atom.div > 1 else x

    def _axis(self, name: str) -> Value:
        return _computed(name, self.ranges[name])

    def _lookup(self, atom: Lookup) -> Value:
        parts = []
        for name, first in zip(atom.axes, atom.first, strict=True):
            axis = self._axis(name)
            parts.append(_minus(axis, self._number(first)) if first else axis)
        text = self.name_table(atom) + "".join(f"[{p.text}]" for p in parts)
        inside = _computed(text, _range(atom.table))
        return Value(
            text, inside.low, inside.high, False, inside.fits and all(p.fits for p in parts)
        )


def _single(form: Sum) -> bool:
    """Tells whether the form is one factor that binds as tightly as `*`."""
    return len(form.terms) + bool(form.constant) == 1 and not form.offset


def _plain(form: Sum) -> bool:
    """Tells whether the form is one bare name."""
    return len(form.terms) == 1 and form.terms[0].factor == 1 and not form.constant
