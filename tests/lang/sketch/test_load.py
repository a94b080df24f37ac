"""Sketches as text: what is printed is read back, and each mistake is told at its place."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.ir.sketch import Allotment, check
from hccc.ir.topology import Topology
from hccc.lang.sketch.load import parse
from hccc.lang.sketch.printer import text
from hccc.network.dimensions import dimensions
from tests.health_checks import EVERY_CHECK
from tests.synth.sketches.clusters import alike, rails, sketches_of

GOOD = """\
sketch 3/4:  # over rails first
    stage:
        rail 0: 0 -> 4
    stage:
        node 0: 0 -> 1-3
        node 1: 4 -> 5-7
sketch 1/4:
    stage:
        node 0: 0 -> 1, 2, 3
    stage:
        rail 0: 0 -> 4
        rail 1: 1 -> 5
        rail 2: 2 -> 6
        rail 3: 3 -> 7
"""


def read(given: str, t: Topology | None = None) -> Allotment:
    site = t if t is not None else rails(2, 4)
    return parse(Source("my.sketch", given), {d.name: d.group for d in dimensions(site)})


def test_a_text_is_an_allotment() -> None:
    found = read(GOOD)
    assert found.shares == (Fraction(3, 4), Fraction(1, 4))
    first, second = found.sketches
    assert [len(stage) for stage in first.stages] == [1, 2]
    assert second.stages[0][0].targets == (1, 2, 3)
    assert read(text(found)) == found


def test_without_shares_all_have_the_same() -> None:
    assert read(GOOD.replace("3/4", "").replace("1/4", "")).shares == (Fraction(1, 2),) * 2


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=10)
def test_what_is_printed_is_read_back(data: st.DataObject) -> None:
    t = data.draw(alike())
    groups = {d.name: d.group for d in dimensions(t)}
    first = data.draw(sketches_of(t))
    assert not list(check(first, groups))
    for count in (1, 3):
        made = Allotment((first,) * count, (Fraction(1, count),) * count)
        assert read(text(made), t) == made


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=10)
def test_a_sketch_without_one_of_its_parts_is_refused(data: st.DataObject) -> None:
    t = data.draw(alike())
    lines = text(Allotment((data.draw(sketches_of(t)),), (Fraction(1),))).splitlines()
    demands = [k for k, line in enumerate(lines) if "->" in line]
    del lines[data.draw(st.sampled_from(demands))]
    with pytest.raises(UserError) as error:
        read("\n".join(lines), t)
    assert error.value.problem.code in ("E018", "E019")


@pytest.mark.parametrize(
    ("old", "new", "code", "place", "message"),
    [
        ("sketch 3/4:", "sketch 3/4", "E018", (2, 5), "expected `:`, found `stage`"),
        ("-> 4", "4", "E018", (3, 19), "expected `->`, `,` or `-`, found `4`"),
        ("0 -> 4", "0 -> 4;", "E018", (3, 23), "`;` is nothing of a sketch"),
        ("3/4", "3/0", "E018", (1, 8), "a share is not over 0"),
        ("3/4", "1/2", "E019", (7, 8), "the shares of all sketches add up to 3/4"),
        ("3/4", "", "E019", (1, 1), "this sketch has no share"),
        ("rail 0: 0 -> 4", "rial 0: 0 -> 4", "E019", (3, 9), "there is no dimension rial"),
        ("rail 0: 0 -> 4", "rail 7: 0 -> 4", "E019", (3, 9), "rail has no group 7"),
        ("0 -> 4", "0 -> 5", "E019", (3, 22), "rank 5 is not in rail 0"),
        ("5-7", "5-8", "E019", (6, 22), "there is no rank 8"),
        ("5-7", "7-5", "E019", (6, 22), "7-5 is empty"),
        ("5-7", "5-6", "E019", (1, 8), "rank 7 is never reached"),
        ("5-7", "4-7", "E019", (6, 22), "rank 4 is named twice"),
        ("4 -> 5-7", "5 -> 6,7", "E019", (6, 17), "rank 5 does not have the chunk yet"),
        ("0 -> 1-3", "0 -> 1-3\n node 0: 0 -> 3", "E019", (6, 15), "rank 3 has been reached"),
        ("0 -> 4", "0,4 -> 4", "E019", (3, 9), "more than one source"),
    ],
)
def test_mistakes_are_told_at_their_place(
    old: str, new: str, code: str, place: tuple[int, int], message: str
) -> None:
    with pytest.raises(UserError) as error:
        read(GOOD.replace(old, new, 1))
    problem = error.value.problem
    assert problem.code == code and message in problem.message, problem.render()
    assert problem.span and (problem.span.line, problem.span.column) == place, problem.render()


def test_sketches_of_two_roots_are_refused() -> None:
    other = GOOD.split("sketch 1/4:")[0]
    moved = "sketch 1/4: stage: node 1: 4 -> 5-7 stage: rail 0: 4 -> 0 rail 1: 5 -> 1 "
    with pytest.raises(UserError, match="begins at rank 4"):
        read(other + moved + "rail 2: 6 -> 2 rail 3: 7 -> 3")
