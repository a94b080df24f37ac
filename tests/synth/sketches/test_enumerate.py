"""Enumeration: each sketch is right, none is there twice, and each pruning only leaves out."""

from __future__ import annotations

from dataclasses import fields
from itertools import islice, permutations

import numpy as np
import pytest
from hypothesis import given, settings

from hccc.base.diagnostics import UserError
from hccc.cli.synth import PRUNINGS
from hccc.ir.sketch import Sketch, check
from hccc.ir.topology import Topology
from hccc.network.dimensions import Dimension, dimensions
from hccc.synth.sketches.enumerate import Prunings, prunings_without, sketches
from hccc.synth.sketches.symmetry import symmetry
from tests.health_checks import EVERY_CHECK
from tests.synth.sketches.clusters import alike, clos, rails

SOME = 30


def found(t: Topology, prunings: Prunings | None = None, most: int = 10_000) -> list[Sketch]:
    return list(islice(sketches(symmetry(t, dimensions(t)), prunings or Prunings()), most))


def renamings(dims: tuple[Dimension, ...]) -> list[np.ndarray]:
    """Returns all renamings of ranks that keep rank 0 and the groups of each dimension."""
    n = len(dims[0].group)
    same = [d.group[:, None] == d.group for d in dims]
    names = (np.array((0, *rest)) for rest in permutations(range(1, n)))
    return [p for p in names if all((s[p][:, p] == s).all() for s in same)]


def shape(s: Sketch, name: np.ndarray) -> tuple[tuple[tuple[object, ...], ...], ...]:
    """Returns a sketch with its ranks renamed, in an order of its own."""
    return tuple(
        tuple(
            sorted(
                (
                    d.dimension,
                    *(tuple(sorted(name[list(of)].tolist())) for of in (d.sources, d.targets)),
                )
                for d in stage
            )
        )
        for stage in s.stages
    )


@pytest.mark.slow
@given(alike())
@settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=5)
def test_sketches_are_right(t: Topology) -> None:
    groups = {d.name: d.group for d in dimensions(t)}
    some = found(t, most=SOME)
    assert some and not [fault for one in some for fault in check(one, groups)]


@pytest.mark.parametrize("name", ["isomorphic", "inconsistent", "relays"])
@pytest.mark.parametrize("t", [rails(2, 3), clos(1, 2, 2), clos(2, 2, 1)])
def test_each_pruning_leaves_out(t: Topology, name: str) -> None:
    groups = {d.name: d.group for d in dimensions(t)}
    more = found(t, Prunings(**{name: False}), 500)
    assert len(more) > len(found(t)) or len(more) == 500
    assert not [fault for one in more for fault in check(one, groups)]


@pytest.mark.parametrize(
    "t", [rails(3, 2), rails(2, 3), clos(1, 2, 2), clos(2, 2, 1), clos(1, 3, 2)]
)
def test_of_sketches_that_are_the_same_one_is_kept(t: Topology) -> None:
    """Of few ranks the classes of sketches, by trying all renamings, are those that are kept."""
    names = renamings(dimensions(t))

    def kind(s: Sketch) -> object:
        return min(shape(s, name) for name in names)

    kept = [kind(s) for s in found(t)]
    assert len(set(kept)) == len(kept)
    every = {kind(s) for s in found(t, Prunings(isomorphic=False))}
    assert set(kept) <= every and len(kept) >= len(every) - 1  # a shape has one placing


def test_pruned_sketches_are_consistent_and_cross_each_dimension_once() -> None:
    t = clos(2, 2, 1)
    several = 0
    for s in found(t):
        assert len(s.stages) <= len(dimensions(t))
        for stage in s.stages:
            for name in {d.dimension for d in stage}:
                ratios = {len(d.targets) / len(d.sources) for d in stage if d.dimension == name}
                assert len(ratios) == 1
                several += sum(d.dimension == name for d in stage) > 1
    assert several


def test_the_hierarchical_sketches_are_among_them() -> None:
    """SyCCL §2: over one dimension, then from all that have it at once over the other."""
    of = found(rails(4, 4))
    whole = {s.stages[0][0].dimension: s for s in of if len(s.stages[0]) == 1}
    assert whole["node"].stages[0][0].targets == (1, 2, 3)
    assert [(d.dimension, len(d.targets)) for d in whole["node"].stages[1]] == [("rail", 3)] * 4
    assert whole["rail"].stages[0][0].targets == (4, 8, 12)
    assert [(d.dimension, len(d.targets)) for d in whole["rail"].stages[1]] == [("node", 3)] * 4


def test_a_pruning_is_known_by_its_name() -> None:
    assert prunings_without(["relays"]) == Prunings(relays=False)
    assert set(PRUNINGS) == {field.name for field in fields(Prunings)}
    with pytest.raises(UserError, match="no pruning 'all'"):
        prunings_without(["all"])
