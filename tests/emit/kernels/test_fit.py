"""Fitted expressions equal the numbers they replace, computed by C and not only by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hccc.base.diagnostics import UserError
from hccc.emit.kernels.fit import fit
from hccc.emit.kernels.forms import Axis, Form, Grid, Lookup, cost
from hccc.emit.kernels.width import code, text
from hccc.ir.arrays import I8
from tests.emit import cints

MODULI = (2, 3, 4, 12)


def grid(nodes: int, gpus: int, tbs: int, turns: int) -> Grid:
    """Makes a grid of all ranks."""
    sizes = {"node": nodes, "local": gpus, "tb": tbs, "i": turns}
    return Grid(tuple(Axis(name, np.arange(n)) for name, n in sizes.items()), gpus)


def evaluated(form: Form, g: Grid) -> I8:
    """Evaluates the form's code at every point, by C's rules."""
    tables: dict[str, Lookup] = {}

    def name(lookup: Lookup) -> str:
        tables[f"t{len(tables)}"] = lookup
        return f"t{len(tables) - 1}"

    expression = code(form, g, name)
    names = {n: lookup.table for n, lookup in tables.items()}
    out = np.empty(g.shape, np.int64)
    for point in np.ndindex(g.shape):
        here = {a.name: int(a.values[k]) for a, k in zip(g.axes, point, strict=True)}
        if g.gpus:
            here["rank"] = here["node"] * g.gpus + here["local"]
        out[point] = cints.evaluate(expression, {**names, **here})
    return out


def check(v: I8, g: Grid) -> Form:
    """Fits `v` and holds the text against it."""
    form = fit(v, g, MODULI)
    assert np.array_equal(evaluated(form, g), v), text(form, lambda _: "table")
    return form


shapes = st.tuples(*[st.integers(1, 4)] * 4)


@pytest.mark.slow
@given(shapes.flatmap(lambda s: arrays(np.int64, s, elements=st.integers(0, 40))))
def test_any_numbers(v: I8) -> None:
    check(v, grid(*v.shape))


@given(
    shapes,
    st.tuples(*[st.integers(-5, 5)] * 4),
    st.integers(-20, 20),
    st.sampled_from([None, *MODULI]),
)
def test_linear_numbers_need_no_table(
    shape: tuple[int, ...], factors: tuple[int, ...], constant: int, modulus: int | None
) -> None:
    g = grid(*shape)
    v = np.full(shape, constant)
    for factor, axis in zip(factors, g.axes, strict=True):
        v = v + factor * g.coordinate(axis.name)
    v = v % modulus if modulus else v
    assert cost(check(v, g))[0] == 0


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(1, 5), st.integers(0, 9), st.data())
def test_some_ranks(ranks: set[int], turns: int, add: int, data: st.DataObject) -> None:
    g = Grid((Axis("rank", np.array(sorted(ranks))), Axis("i", np.arange(turns))))
    v = (g.coordinate("rank") + add + g.coordinate("i")) % 12
    check(np.asarray(v), g)
    check(data.draw(arrays(np.int64, g.shape, elements=st.integers(-9, 9))), g)


N, G = 4, 4
R = N * G
FULL = grid(N, G, 2, 6)
NODE, LOCAL, TB, TURN = (FULL.coordinate(a.name) for a in FULL.axes)
RANK = NODE * G + LOCAL


@pytest.mark.parametrize(
    ("v", "wanted"),
    [
        (7 + 0 * TURN, "7"),
        (TURN, "i"),
        ((RANK + 1) % R, "(rank + 1) % 16"),
        ((RANK - TURN) % R, "(rank + 16 - i) % 16"),
        (NODE * G + (LOCAL + 1 + TURN) % G, "node * 4 + (rank + i + 1) % 4"),
        (((NODE + 1) % N) * G + LOCAL, "(rank + 4) % 16"),
        (TURN // 3 * 7 + TURN % 3 + TB, "tb + (i / 3) * 7 + i % 3"),
        (TURN // 2 * 7 + TURN % 2 + TB, "tb + (i / 2) * 7 + i % 2"),
        ((RANK + TURN // 2 * 7 + TURN % 2) % R, "(rank + (i / 2) * 7 + i % 2) % 16"),
        ((RANK - TURN // 3 * 5 - TURN % 3) % R, "(rank + 16 - (i / 3) * 5 - i % 3) % 16"),
        ((RANK + np.array([0, 5, 3, 11, 2, 8])[TURN]) % R, "(rank + table[i]) % 16"),
        (np.arange(R).reshape(N, G, 1, 1) ** 2 % 13, "table[node][local]"),
    ],
)
def test_reads_as_a_person_would_write(v: I8, wanted: str) -> None:
    v = np.broadcast_to(v, FULL.shape)
    form = fit(v, FULL, (2, G, R))
    assert text(form, lambda _: "table") == wanted
    assert np.array_equal(evaluated(form, FULL), v)


def test_a_table_of_holes_is_refused() -> None:
    """Two ranks far apart, with nothing regular between their blocks and loop turns."""
    ranks = Axis("rank", np.array([0, (1 << 16) - 1]))
    far = Grid((ranks, Axis("tb", np.arange(64)), Axis("i", np.arange(64))))
    noise = np.random.default_rng(1).integers(0, 1 << 20, far.shape)
    with pytest.raises(UserError, match="8,192 of them used") as caught:
        fit(noise, far, MODULI)
    assert caught.value.problem.code == "E317"
