"""enumerate: the sketches of one root, with SyCCL's three prunings, each of which can be left out.

A stage chooses for each dimension a *shape*: how many nodes each group reaches, and how many ranks
in each; 0 for a dimension that it does not use. SyCCL §4.1 prunes

1. *isomorphic* sketches: those that a renaming of ranks makes equal are kept once. Beyond the
   paper, a shape has one placing, the next nodes and ranks in order, instead of all: of few ranks
   that leaves out next to none that are unlike;
2. *inconsistent* ones: all groups of a dimension that reach anybody reach as many ranks for each
   source;
3. *relays*: a chunk has at most as many relays as there are dimensions but one, and crosses each
   dimension at most once.

Without the third there are as many stages as MOST_STAGES. Without any of them there are more
sketches than can be listed: in each stage the search ends after MOST_CHOICES choices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import combinations, islice, product

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import B1, I8
from hccc.ir.sketch import Sketch, Stage, SubDemand
from hccc.network.dimensions import Dimension
from hccc.synth.sketches.symmetry import Symmetry

MOST_STAGES = 5  # without the third pruning
EVERY = {1: 8, 2: 8}  # dimensions: nodes, or ranks, up to which every number is a shape's
FEW = 2  # the same of more dimensions; above, powers of 2 and all
ROUNDS = 3  # of colour refinement
ODD = np.array(
    [0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3], np.uint64
)
MOST_PLACINGS = 1 << 10  # of one group
MOST_PARTIAL = 1 << 9  # sketches of so many stages to go on from
MOST_CHOICES = 1 << 14  # of what dimensions do in a stage, shared among these; about a second


@dataclass(frozen=True, slots=True)
class Prunings:
    """The prunings to use, all by default."""

    isomorphic: bool = True
    inconsistent: bool = True
    relays: bool = True


ALL_PRUNINGS = Prunings()


def prunings_without(names: Collection[str]) -> Prunings:
    """Returns all prunings but those named. Raises UserError E451 where there is none of a name."""
    have = [field.name for field in fields(Prunings)]
    for name in names:
        if name not in have:
            message = f"sketches have no pruning {name!r}"
            raise fail("E451", message, help=f"there are {', '.join(have)}")
    return replace(ALL_PRUNINGS, **dict.fromkeys(names, False))


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """A sketch so far. have: b1[n] ranks with the chunk; crossed: i8[n], bit d set where the
    chunk's way to a rank crossed dimension d; key: u8[n] a colour of each rank, equal where a
    renaming of ranks makes their ways equal."""

    stages: tuple[Stage, ...]
    have: B1
    crossed: I8
    key: np.ndarray


@dataclass(slots=True, eq=False)
class _Budget:
    """The choices that are left."""

    left: int

    def of(self, choices: Iterable[Stage]) -> Iterator[Stage]:
        """Yields choices while any are left."""
        for choice in choices:
            if self.left <= 0:
                return
            self.left -= 1
            yield choice


def sketches(s: Symmetry, prunings: Prunings = ALL_PRUNINGS, root: int = 0) -> Iterator[Sketch]:
    """Yields the sketches of a root, those of few stages first."""
    n, crossed = len(s), np.zeros(len(s), np.int64)
    have = np.arange(n) == root
    states = [_State((), have, crossed, have.astype(np.uint64))]
    seen = set[bytes]()
    most = len(s.dimensions) if prunings.relays else MOST_STAGES
    for number in range(1, most + 1):
        later = list[_State]()
        for state in states:
            budget = _Budget(max(1, MOST_CHOICES // len(states)))
            for after in _extended(s, state, prunings, budget, last=number == most):
                if prunings.isomorphic:
                    colours = _colours(s, after)
                    key = np.sort(colours).tobytes()
                    if key in seen:
                        continue
                    seen.add(key)
                if after.have.all():
                    yield Sketch(after.stages)
                else:
                    later.append(after)
        states = later[:MOST_PARTIAL]


def _extended(
    s: Symmetry, state: _State, prunings: Prunings, budget: _Budget, *, last: bool
) -> Iterator[_State]:
    """Yields the sketches with one more stage. last: with it all ranks are reached."""

    def chosen(number: int, reached: B1) -> Iterator[Stage]:
        if number == len(s.dimensions):
            if not last or reached.all():
                yield ()
            return
        for first in budget.of(_choices(s, number, state, reached, prunings)):
            taken = reached.copy()
            for demand in first:
                taken[list(demand.targets)] = True
            for rest in chosen(number + 1, taken):
                yield (*first, *rest)

    for stage in chosen(0, state.have):
        if stage:
            yield _after(s, state, stage)


def _after(s: Symmetry, state: _State, stage: Stage) -> _State:
    """Returns the sketch with `stage`."""
    have, crossed, key = state.have.copy(), state.crossed.copy(), state.key.copy()
    names = [d.name for d in s.dimensions]
    for demand in stage:
        number = names.index(demand.dimension)
        sources, targets = np.array(demand.sources), np.array(demand.targets)
        have[targets] = True
        ways = np.bitwise_or.reduce(state.crossed[sources]) | 1 << number
        crossed[targets] = ways
        place = 1 + number + len(names) * (1 + len(state.stages))
        key[targets] = _mixed(state.key[sources].sum(keepdims=True, dtype=np.uint64)) + np.uint64(
            place
        )
    return _State((*state.stages, stage), have, crossed, key)


def _choices(
    s: Symmetry, number: int, state: _State, reached: B1, prunings: Prunings
) -> Iterator[Stage]:
    """Yields the sub-demands that a stage may have of one dimension, none of them first."""
    yield ()
    d = s.dimensions[number]
    parts = _open_groups(s, d, number, state, reached, prunings)
    if not parts:
        return
    if prunings.inconsistent:
        yield from _consistent(s, d, parts, prunings)
        return
    each = [[None, *islice(_placings(s, d, part, prunings), MOST_PLACINGS)] for part in parts]
    for choice in product(*each):
        if stage := tuple(demand for demand in choice if demand is not None):
            yield stage


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """A group with sources, i8, and the ranks that these may reach, by node: the fullest first."""

    group: int
    sources: I8
    ranks: tuple[I8, ...]


def _open_groups(
    s: Symmetry, d: Dimension, number: int, state: _State, reached: B1, prunings: Prunings
) -> list[_Open]:
    """Returns the groups of a dimension that can reach more ranks."""
    able = state.have & ((state.crossed >> number & 1) == 0 if prunings.relays else True)
    found = list[_Open]()
    left = ~reached
    nodes, gpus = int(s.node.max()) + 1, int(s.local.max()) + 1
    for group in np.unique(d.group[able]).tolist():
        inside = d.group == group
        sources, ranks = np.flatnonzero(inside & able), np.flatnonzero(inside & left)
        joined = np.zeros((len(sources), len(ranks)), np.bool_)
        for lower in s.dimensions[:number]:
            joined |= lower.group[sources][:, None] == lower.group[ranks]
        ranks = ranks[~joined.all(0)]
        if not len(ranks):
            continue
        away = (s.node[ranks] - s.node[sources[0]]) % nodes * gpus
        away += (s.local[ranks] - s.local[sources[0]]) % gpus
        ranks = ranks[np.argsort(away, kind="stable")]
        of = s.node[ranks]
        order = list(dict.fromkeys(of.tolist()))
        by_node = [ranks[of == x] for x in order]
        found.append(_Open(group, sources, tuple(sorted(by_node, key=len, reverse=True))))
    return found


def _consistent(
    s: Symmetry, d: Dimension, parts: list[_Open], prunings: Prunings
) -> Iterator[Stage]:
    """Yields sub-demands with as many targets for each source in all groups that have any: of one
    shape, or all that are left."""
    every = EVERY.get(len(s.dimensions), FEW)
    shapes = sorted({shape for part in parts for shape in _shapes(part, every)})
    whole = [_demand(d, part, np.concatenate(part.ranks)) for part in parts]
    if len(_ratios(whole)) == 1:
        yield tuple(whole)
    for nodes, ranks in shapes:
        able = [part for part in parts if sum(len(r) >= ranks for r in part.ranks) >= nodes]
        placed = [
            list(islice(_placed(d, part, nodes, ranks, prunings), MOST_PLACINGS)) for part in able
        ]
        for choice in product(*placed):
            if len(_ratios(choice)) == 1 and list(choice) != whole:
                yield choice


def _ratios(demands: tuple[SubDemand, ...] | list[SubDemand]) -> set[float]:
    """Returns the targets for each source of sub-demands: SyCCL's ρ."""
    return {len(demand.targets) / len(demand.sources) for demand in demands}


def _placings(s: Symmetry, d: Dimension, part: _Open, prunings: Prunings) -> Iterator[SubDemand]:
    """Yields the sub-demands that a group may have."""
    for nodes, ranks in _shapes(part, EVERY.get(len(s.dimensions), FEW)):
        yield from _placed(d, part, nodes, ranks, prunings)


def _shapes(part: _Open, every: int) -> Iterator[tuple[int, int]]:
    """Yields the shapes that a group has room for: numbers of nodes, and of ranks in each."""
    for ranks in reversed(_numbers(len(part.ranks[0]), every)):
        for nodes in reversed(_numbers(sum(len(r) >= ranks for r in part.ranks), every)):
            yield nodes, ranks


def _numbers(most: int, every: int) -> list[int]:
    """Returns the numbers up to `most` that shapes have: all up to `every`."""
    if most <= every:
        return list(range(1, most + 1))
    return [*(1 << k for k in range((most - 1).bit_length())), most]


def _placed(
    d: Dimension, part: _Open, nodes: int, ranks: int, prunings: Prunings
) -> Iterator[SubDemand]:
    """Yields the placings of a shape: the first, or all."""
    able = [r for r in part.ranks if len(r) >= ranks]
    if prunings.isomorphic:
        yield _demand(d, part, np.concatenate([r[:ranks] for r in able[:nodes]]))
        return
    for some in combinations(able, nodes):
        for each in product(*(combinations(r.tolist(), ranks) for r in some)):
            yield _demand(d, part, np.concatenate([np.array(one) for one in each]))


def _demand(d: Dimension, part: _Open, targets: I8) -> SubDemand:
    return SubDemand(
        d.name, part.group, tuple(part.sources.tolist()), tuple(sorted(targets.tolist()))
    )


def _colours(s: Symmetry, state: _State) -> np.ndarray:
    """Returns the colour of each rank among its groups: the same where renaming ranks makes two
    sketches the same, by colour refinement."""
    colours = state.key
    for _ in range(ROUNDS):
        mixed = _mixed(colours)
        colours = mixed
        for d, odd in zip(s.dimensions, ODD, strict=False):
            total = np.zeros(len(s), np.uint64)
            np.add.at(total, d.group, mixed)
            colours = colours + total[d.group] * odd
    return _mixed(colours)


def _mixed(value: np.ndarray | np.uint64) -> np.ndarray:
    """Mixes the bits of u8 (splitmix64), so that sums of them tell sets apart."""
    z = np.asarray(value, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
