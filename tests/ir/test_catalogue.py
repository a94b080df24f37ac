"""Catalogues: every size has one range, and parts that do not fit together are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.base.diagnostics import InternalError, UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir.catalogue import MOST_BYTES, MOST_PLANS, Catalogue, Range, assembled, check, plan_name
from hccc.ir.choices import Accumulate
from hccc.ir.micro_batch import GRAIN
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from tests.emit import plans
from tests.emit.catalogues import BORDER, FIRST, both, made, only, pair

Kind = tuple[list[int], list[tuple[int, int, int]]]
PAIR = pair()
begins = st.lists(st.integers(1, MOST_BYTES), max_size=6, unique=True).map(lambda b: [0, *b])
settings_of = st.tuples(st.integers(0, 1), st.integers(0, 3), st.sampled_from([GRAIN, 2 * GRAIN]))


def _each_run_somehow(b: list[int]) -> st.SearchStrategy[Kind]:
    return st.tuples(st.just(b), st.lists(settings_of, min_size=len(b), max_size=len(b)))


kind = begins.flatmap(_each_run_somehow)
sizes = st.integers(0, 2 * MOST_BYTES)


def listed(kinds: dict[bool, Kind]) -> list[Range]:
    """Lists the ranges of each kind of call."""
    return [
        Range(in_place, begin, *how)
        for in_place, (starts, hows) in kinds.items()
        for begin, how in zip(starts, hows, strict=True)
    ]


@given(st.dictionaries(st.booleans(), kind, min_size=1), st.lists(sizes, max_size=8))
def test_every_size_of_a_kind_has_the_range_that_was_asked_for(
    kinds: dict[bool, Kind], asked: list[int]
) -> None:
    """Whatever is merged, left out and numbered anew."""
    ranges = listed(kinds)
    found = assembled("c", PAIR, ranges)
    assert found.alone == (len({one[2:] for one in ranges}) == 1)
    if found.alone:
        (plan,) = found.plans
        assert (plan.window, plan.grain, plan.name) == (*ranges[0][3:], "c")
        assert found.ranges == Catalogue.of(plan).ranges
        return
    assert found.modes == tuple(sorted(kinds))
    for in_place in kinds:
        for size in {*asked, *(one.begin for one in ranges), *(one.begin - 1 for one in ranges)}:
            if size < 0:
                continue
            wanted = max(o for o in ranges if o.in_place == in_place and o.begin <= size)
            range_, plan = found.pick(size, in_place), found.plan_of(found.pick(size, in_place))
            assert (plan.window, plan.grain) == wanted[3:]
            assert plan.source == PAIR[wanted.plan].source
            end = found.end(range_)
            assert range_.begin <= size and (end is None or size < end)
            holding = [
                one
                for one in found.ranges
                if one.in_place == in_place
                and one.begin <= size < (found.end(one) or 4 * MOST_BYTES)
            ]
            assert holding == [range_]


def test_what_is_alike_is_one_and_what_is_not_used_goes() -> None:
    ranges = [
        Range(True, 0, 2, 0, GRAIN),
        Range(False, 8, 1, 0, GRAIN),
        Range(False, 0, 1, 0, GRAIN),
    ]
    found = made("c", (*PAIR, PAIR[0]), ranges)
    assert found.ranges == (Range(False, 0, 0, 0, GRAIN), Range(True, 0, 1, 0, GRAIN))
    assert [plan.source for plan in found.plans] == ["ring.rccl", "mesh.rccl"]
    assert [plan.name for plan in found.plans] == ["c_1", "c_2"]
    assert found.keeps_input and found.n_ranks == 4


def test_packets_have_room_for_the_calls_that_they_get() -> None:
    options = Options(protocol="ll", tune="off")
    packets = driver.compile_program(plans.mesh_allreduce(4), options).plan
    of = (replace(packets, max_bytes=1 << 20), PAIR[0])

    def largest(*ends: int | None) -> int:
        """Returns the largest call, where those of each kind end as `ends` says."""
        later = [Range(bool(k), end, 1, 0, GRAIN) for k, end in enumerate(ends) if end]
        first = [Range(bool(k), 0, 0, 0, GRAIN) for k in range(len(ends))]
        return assembled("c", of, [*first, *later]).plans[0].max_bytes

    assert largest(FIRST, BORDER) == BORDER
    assert largest(8 << 20) == 1 << 20
    assert largest(FIRST, None) == 1 << 20


def test_a_plan_alone_gives_the_catalogue_all_that_it_has() -> None:
    plan = replace(only(PAIR[0], True), window=3)
    found = Catalogue.of(plan)
    check(found)
    assert found.alone and found.modes == (True,) and found.pick(9, True).window == 3
    assert found.largest.window == 3 and not both().alone
    with pytest.raises(UserError, match="not those of"):
        check(replace(found, ranges=both().ranges))


@pytest.mark.parametrize("catalogue", [both(), Catalogue.of(PAIR[0])], ids=["both", "one"])
def test_plans_are_called_as_their_library_is(catalogue: Catalogue) -> None:
    other = catalogue.renamed("other")
    check(other)
    assert other.name == "other" and other.alone == catalogue.alone
    assert [plan.name for plan in other.plans] == (
        ["other"] if other.alone else ["other_1", "other_2"]
    )


def test_the_largest_is_that_of_any_size_above() -> None:
    assert both().largest.name == "both_2"
    assert both().largest.window == 0
    assert both().last == Range(False, 4 * BORDER, 1, 0, GRAIN)


def test_a_kind_that_is_not_served_has_no_range() -> None:
    ranges = [Range(True, 0, 0, 0, GRAIN), Range(True, 9, 1, 0, GRAIN)]
    found = made("c", (only(PAIR[0], True), PAIR[1]), ranges)
    assert found.modes == (True,)
    for size, in_place in ((0, False), (-1, True)):
        with pytest.raises(InternalError):
            found.pick(size, in_place)


def test_names_of_plans_are_names_even_where_that_of_the_catalogue_is_long() -> None:
    found = made("c" * 63, PAIR, list(both().ranges))
    assert [len(plan.name) for plan in found.plans] == [59, 59]


@pytest.mark.parametrize("stem", range(50, 63))
def test_no_plan_is_called_as_its_catalogue(stem: int) -> None:
    """Their C functions would be the same."""
    for k in (0, 9, MOST_PLANS - 1):
        name = f"{'c' * stem}_{k + 1}"
        assert name not in {plan_name(name, k) for k in range(MOST_PLANS)}
        assert len(plan_name(name, k)) <= 64


def _ranges(change: Callable[[list[Range]], object]) -> Callable[[Catalogue], Catalogue]:
    def changed(catalogue: Catalogue) -> Catalogue:
        ranges = list(catalogue.ranges)
        change(ranges)
        return replace(catalogue, ranges=tuple(ranges))

    return changed


def _plan(k: int, plan: Plan) -> Callable[[Catalogue], Catalogue]:
    def changed(catalogue: Catalogue) -> Catalogue:
        plans = list(catalogue.plans)
        plans[k] = replace(plan, name=plans[k].name)
        return replace(catalogue, plans=tuple(plans))

    return changed


def _set(k: int, **fields: Any) -> Callable[[Catalogue], Catalogue]:
    return _ranges(lambda ranges: ranges.__setitem__(k, ranges[k]._replace(**fields)))


WRONG: dict[str, tuple[Callable[[Catalogue], Catalogue], str]] = {
    "no ranges": (_ranges(list.clear), "ranges: 0 of them"),
    "a gap at 0": (_set(0, begin=1), "ranges[0].begin: the first of its kind begins at 1"),
    "a gap at 0, in place": (_set(3, begin=1), "ranges[3].begin: the first of its kind"),
    "out of order": (_set(1, begin=4 * BORDER + 1), "ranges[2]: not after the one before"),
    "twice": (_set(1, begin=0), "ranges[1]: not after the one before"),
    "kinds mixed": (_ranges(list.reverse), "ranges[0].begin: the first of its kind"),
    "negative": (_set(1, begin=-1), "ranges[1].begin: -1 is not in"),
    "no such plan": (_set(0, plan=2), "ranges[0].plan: there is no plan 2"),
    "no such plan below": (_set(0, plan=-1), "there is no plan -1"),
    "too wide": (_set(0, window=1 << 31), "ranges[0].window"),
    "too fine": (_set(0, grain=1), "ranges[0].grain: 1 is not in"),
    "a plan of another kind": (_plan(0, only(PAIR[0], True)), "both_1 serves no calls out of"),
    "a window too wide for queues": (_plan(1, replace(PAIR[1], max_window=1)), "2 is not in 0..1"),
    "a window of its own": (_plan(1, replace(PAIR[1], window=1)), "plans[1].window: 1"),
    "other ranks": (_plan(1, pair(5)[1]), "plans[1].collective: not that of both_1"),
    "another collective": (
        _plan(1, plans.compiled(plans.ring_allgather(4))),
        "plans[1].collective: not that of",
    ),
    "another root": (
        lambda _: replace(
            both(),
            plans=tuple(
                replace(plans.compiled(plans.broadcast(4, root)), name=f"both_{root}")
                for root in (1, 2)
            ),
        ),
        "plans[1].collective",
    ),
    "other nodes": (_plan(1, replace(PAIR[1], gpus_per_node=2)), "plans[1].gpus_per_node"),
    "other domains": (
        _plan(1, replace(PAIR[1], memory_domain=np.array([0, 0, 1, 1]))),
        "plans[1].memory_domain",
    ),
    "an idle plan": (
        lambda c: replace(c, ranges=(c.ranges[0], c.ranges[3])),
        "plans[1]: no range names both_2",
    ),
    "another name": (lambda c: replace(c, name="other"), "plans[0].name: both_1, not other_1"),
    "no name": (lambda c: replace(c, name="a b"), "name: not an identifier"),
    "hccc's name": (lambda c: replace(c, name="hccc"), "name: `hccc`"),
    "too many": (
        lambda c: replace(c, plans=c.plans * (MOST_PLANS // 2) + c.plans[:1]),
        "plans: 17 of them",
    ),
    "none": (lambda c: replace(c, plans=()), "plans: 0 of them"),
    "other sums": (
        lambda c: replace(
            c, plans=(c.plans[0], replace(c.plans[1], accumulate=Accumulate.FLOAT64))
        ),
        "plans[1].accumulate: not that of both_1",
    ),
    "one": (
        lambda c: replace(c, plans=c.plans[:1], ranges=(c.ranges[0], c.ranges[3])),
        "all run the same plan",
    ),
}


def test_ranges_are_limited() -> None:
    ranges = [Range(False, k, k % 2, 0, GRAIN) for k in range(512)]
    plans = tuple(only(plan, False) for plan in PAIR)
    found = made("c", plans, ranges)
    assert len(found.ranges) == 512
    check(found)
    more = (*found.ranges, Range(False, 512, 0, 0, GRAIN))
    with pytest.raises(UserError, match="ranges: 513 of them, there may be 1 to 512"):
        check(replace(found, ranges=more))


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_together(name: str) -> None:
    change, said = WRONG[name]
    check(both())
    with pytest.raises(UserError) as caught:
        check(change(both()))
    assert caught.value.problem.code == "E319"
    assert said in caught.value.problem.message


def test_chunks_and_transport_are_a_plans_own() -> None:
    staged = plans.compiled(plans.mesh_allreduce(4, chunks=4), transport=Transport.STAGED)
    ranges = [Range(False, 0, 0, 0, GRAIN), Range(False, FIRST, 1, 0, GRAIN)]
    halved = plans.compiled(plans.ring_allreduce(4))
    assert made("c", (staged, halved), ranges).plans[0].transport is Transport.STAGED
