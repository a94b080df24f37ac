"""Printed expressions never overflow in C, whatever their numbers are."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.base.diagnostics import InternalError
from hccc.emit.kernels.fit import fit
from hccc.emit.kernels.forms import Axis, Coord, Form, Grid, Lookup, Split, Sum, Term, values
from hccc.emit.kernels.width import (
    INT,
    Value,
    _computed,
    _modulo,
    _over,
    _times,
    code,
    fits_int,
    text,
)
from tests.emit import cints

FEW = 3  # values of an axis: its least, its largest, and one between


@st.composite
def axes(draw: st.DrawFn) -> Grid:
    """Draws a grid whose coordinates may be as large as an int."""
    large = st.sampled_from([3, 300, 70_000, INT])
    limit = {name: draw(large) for name in ("node", "local", "tb", "i")}
    named = [
        Axis(n, np.array(sorted(draw(st.sets(st.integers(0, top), min_size=1, max_size=FEW)))))
        for n, top in limit.items()
    ]
    gpus = int(named[1].values.max()) + 1
    if int(named[0].values.max()) * gpus + gpus > INT:
        gpus = 0
    return Grid(tuple(named), gpus)


def table(draw: st.DrawFn, grid: Grid) -> Lookup:
    """Draws a table of ints over one short axis."""
    short = [a for a in grid.axes if a.values[-1] - a.values[0] < 1000]
    if not short:
        return Lookup((), (), np.array(draw(st.integers(-INT - 1, INT))))
    axis = draw(st.sampled_from(short))
    first, size = int(axis.values[0]), int(axis.values[-1] - axis.values[0]) + 1
    entries = draw(st.lists(st.integers(-INT - 1, INT), min_size=size, max_size=size))
    return Lookup((axis.name,), (first,), np.array(entries, np.int64))


def atom(draw: st.DrawFn, grid: Grid) -> Coord | Lookup:
    """Draws a coordinate, a part of it, or a table."""
    name = draw(st.sampled_from([a.name for a in grid.axes] + ["rank"] * bool(grid.gpus)))
    number = draw(st.integers(2, 1 << 20))
    few = len(grid.axes[3].values) < FEW and grid.axes[3].values[-1] < 1000
    kind = draw(st.integers(0, 3 if few else 2))
    return (
        [Coord(name), Coord(name, div=number), Coord(name, rem=number)][kind]
        if kind < 3
        else (table(draw, grid))
    )


@st.composite
def sums(draw: st.DrawFn, grid: Grid) -> Sum:
    """Draws a sum with or without a modulus. Its terms may be as large as an int and more."""
    factors = st.integers(-INT, INT) | st.integers(-9, 9) | st.sampled_from([1, -1])
    count = draw(st.integers(0, 4))
    terms = tuple(Term(draw(factors), atom(draw, grid)) for _ in range(count))
    form = Sum(draw(st.integers(-INT, INT) | st.integers(-9, 9)), terms)
    if draw(st.booleans()):
        modulus = draw(st.integers(2, INT))
        lowest = int(values(form, grid).min())
        form = replace(form, modulus=modulus, offset=draw(st.sampled_from([0, 1, 70_000])))
        if lowest < 0:
            form = replace(form, constant=form.constant - lowest // modulus * modulus)
    return form


@st.composite
def forms(draw: st.DrawFn) -> tuple[Form, Grid]:
    """Draws any form, with its grid."""
    grid = draw(axes())
    form: Form = draw(sums(grid))
    if draw(st.booleans()):
        form = Split(form, draw(st.integers(2, 1 << 20)), draw(sums(grid)))
    return form, grid


def computed(expression: str, tables: dict[str, Lookup], grid: Grid) -> list[int]:
    """Returns the values that C computes at every point of the grid, in order."""
    found = []
    for point in product(*(a.values.tolist() for a in grid.axes)):
        here = dict(zip((a.name for a in grid.axes), point, strict=True))
        if grid.gpus:
            here["rank"] = here["node"] * grid.gpus + here["local"]
        names = {n: t.table for n, t in tables.items()}
        found.append(cints.evaluate(expression, {**names, **here}))
    return found


def printed(form: Form, grid: Grid) -> tuple[str, dict[str, Lookup]]:
    """Returns the code of a form, and its tables by name."""
    tables: dict[str, Lookup] = {}
    by_id: dict[int, str] = {}

    def name(lookup: Lookup) -> str:
        found = by_id.setdefault(id(lookup), f"t{len(by_id)}")
        tables[found] = lookup
        return found

    return code(form, grid, name), tables


@given(forms())
def test_no_form_overflows(made: tuple[Form, Grid]) -> None:
    form, grid = made
    try:
        expression, tables = printed(form, grid)
    except InternalError:
        return  # more than 64 bits
    if fits_int(values(form, grid)):
        assert computed(expression, tables, grid) == values(form, grid).ravel().tolist()


@given(forms())
def test_what_fits_an_int_is_printed_as_people_write_it(made: tuple[Form, Grid]) -> None:
    form, grid = made
    try:
        expression, _ = printed(form, grid)
    except InternalError:
        return
    plain = re.sub(r"t\d+", "t0", expression) == text(form, lambda _: "t0")
    assert plain or expression.startswith("static_cast<int>(")


LONG_LOOP = Grid((Axis("rank", np.arange(2)), Axis("i", np.arange(99_999))))


def test_the_step_that_overflows_is_computed_in_64_bits() -> None:
    rank, i = (LONG_LOOP.coordinate(n) for n in ("rank", "i"))
    v = (i * 50_001 + 50_000 + 0 * rank) % 100_003
    form = fit(v, LONG_LOOP, (2, 100_003, 200_006))
    expression, tables = printed(form, LONG_LOOP)
    assert expression == "static_cast<int>((i * 50001LL + 50000) % 100003)"
    with pytest.raises(cints.Trap, match="overflows 32 bits"):
        cints.evaluate(text(form, lambda _: "") + " + 0", {"i": 99_998, "rank": 0})
    lists = {n: t.table for n, t in tables.items()}
    for at in (0, 42_947, 42_948, 99_998):
        assert cints.evaluate(expression, {**lists, "i": at}) == v[0, at]


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        (Sum(0, (Term(1, Coord("a")), Term(1, Coord("b")))), "static_cast<long long>(a) + b"),
        (Sum(5, (Term(-1, Coord("a")), Term(-1, Coord("b")))), "5LL - a - b"),
        (Sum(0, (Term(-1, Coord("a")), Term(-1, Coord("b")))), "-static_cast<long long>(a) - b"),
        (Split(Sum(0, (Term(1, Coord("a")),)), 9, Sum(0)), "static_cast<long long>(a) * 9"),
        (
            Split(Sum(5, (Term(1, Coord("a")), Term(1, Coord("b")))), 9, Sum(0)),
            "(static_cast<long long>(a) + b + 5) * 9",
        ),
        (Sum(1, (Term(1, Coord("a", div=2)),), 7), "(static_cast<long long>(a / 2) + 1) % 7"),
        (
            Sum(INT, (Term(1, Coord("a", rem=9)),), 7),
            f"(static_cast<long long>(a % 9) + {INT}) % 7",
        ),
        (Sum(0, (Term(3, Coord("a")),), 7, INT), f"{INT} + (a * 3LL) % 7"),
    ],
)
def test_every_operation_is_wide(form: Form, wanted: str) -> None:
    grid = Grid((Axis("a", np.array([0, INT - 1])), Axis("b", np.array([0, INT - 1]))))
    small = Grid(tuple(Axis(a.name, np.arange(2)) for a in grid.axes))
    if wanted.startswith("(static_cast<long long>(a / 2)"):
        assert isinstance(form, Sum)
        form = replace(form, constant=INT)
        wanted = wanted.replace("+ 1)", f"+ {INT})")
    assert code(form, grid, lambda _: "t") == f"static_cast<int>({wanted})"
    if fits_int(values(form, small)) and str(INT) not in wanted:
        assert code(form, small, lambda _: "t") == text(form, lambda _: "t")


@given(st.integers(-40, 40), st.integers(0, 40), st.integers(1, 20))
def test_an_interval_has_all_values(low: int, more: int, by: int) -> None:
    """Of a remainder, limits are known: those of the dividend and of the divisor, and 0."""
    dividends = range(low, low + more + 1)
    a, b = Value("a", low, low + more, False, True), Value(str(by), by, by, False, True)
    quotients = [math.trunc(x / by) for x in dividends]
    rests = [x - by * q for x, q in zip(dividends, quotients, strict=True)]
    product, quotient, rest = _times(a, b), _over(a, b), _modulo(a, b)
    assert (product.low, product.high) == (low * by, (low + more) * by)
    assert (quotient.low, quotient.high) == (quotients[0], quotients[-1])
    assert rest.low <= min(0, *rests) <= max(0, *rests) <= rest.high
    if 0 in dividends:
        assert (rest.low, rest.high) == (min(rests), max(rests))


@pytest.mark.parametrize("wide", [False, True])
def test_the_last_number_that_fits(wide: bool) -> None:
    most = (1 << 63 if wide else 1 << 31) - 1
    for low, high, fits in ((-most - 1, most, True), (-most - 2, 0, False), (0, most + 1, False)):
        assert _computed("x", (low, high), wide=wide).fits == fits


def test_what_64_bits_do_not_hold_is_a_bug() -> None:
    grid = Grid((Axis("a", np.array([0, INT])),))
    form = Split(Sum(0, (Term(INT, Coord("a")),)), INT, Sum(0))
    with pytest.raises(InternalError, match="64 bits"):
        code(form, grid, lambda _: "t")


def test_a_parameter_is_an_int() -> None:
    grid = Grid((Axis("i", np.arange(2)),))
    with pytest.raises(InternalError, match="does not fit an int"):
        fit(np.array([0, INT + 1]), grid, ())


def test_a_table_keeps_to_ints_where_the_constant_does_not() -> None:
    """The constant of a sum over high ranks is large; the table that it would go into is not."""
    grid = Grid((Axis("rank", np.array([60_000, 60_001])), Axis("i", np.arange(5))))
    rank, i = grid.coordinate("rank"), np.array([0, 7, 1, 9, 30])
    v = (rank - 60_000) * 1_000_000_000 + i
    form = fit(v, grid, ())
    expression, tables = printed(form, grid)
    assert all(fits_int(t.table) for t in tables.values())
    assert computed(expression, tables, grid) == v.ravel().tolist()


@pytest.mark.slow
@given(st.data())
def test_fitted_numbers_as_large_as_ints(data: st.DataObject) -> None:
    near = st.sets(st.integers(0, 6), min_size=1, max_size=4)  # tables have no room for gaps
    ranks, tbs = (
        np.array(sorted(data.draw(near))) + data.draw(st.sampled_from([0, 9, top]))
        for top in (1 << 16, 1 << 20)
    )
    turns = data.draw(st.sampled_from([1, 2, 5, 60]))
    grid = Grid((Axis("rank", ranks), Axis("tb", tbs), Axis("i", np.arange(turns))))
    modulus = data.draw(st.integers(2, INT))
    factors = data.draw(st.tuples(*[st.integers(-modulus // 2, modulus // 2)] * 3))
    v = np.zeros(grid.shape, np.int64)
    for factor, axis in zip(factors, grid.axes, strict=True):
        v = (v + factor * grid.coordinate(axis.name)) % modulus
    if data.draw(st.booleans()):
        v[..., -1] = data.draw(st.integers(0, INT))  # no form but a table
    form = fit(v, grid, (modulus, data.draw(st.integers(2, INT))))
    expression, tables = printed(form, grid)
    assert all(fits_int(t.table) for t in tables.values())
    assert computed(expression, tables, grid) == v.ravel().tolist()
