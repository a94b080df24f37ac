"""Making candidates, evaluating them, picking one."""

from __future__ import annotations

import pytest

from hccc.base.diagnostics import UserError, fail
from hccc.predict.candidates import Candidate, Evaluated, evaluate, pick


def _refused() -> float:
    raise fail("E410", "not this one")


def test_those_that_cannot_be_made_are_left_out_with_a_reason() -> None:
    told: list[str] = []
    tried = [
        Candidate("two", lambda: 2.0),
        Candidate("none", _refused),
        Candidate("one", lambda: 1.0),
    ]
    evaluated, refused = evaluate(tried, lambda x: 10 * x, told.append)
    assert [(e.name, e.candidate, e.value) for e in evaluated] == [("two", 2, 20), ("one", 1, 10)]
    assert refused == {"none": "not this one"}
    assert told == ["two", "none", "one"]


def test_a_required_one_raises() -> None:
    with pytest.raises(UserError):
        evaluate([Candidate("none", _refused, required=True)], lambda x: x)


@pytest.mark.parametrize(("margin", "picked"), [(0.0, "c"), (0.5, "c"), (1.0, "a"), (9.0, "a")])
def test_the_first_within_the_margin_is_picked(margin: float, picked: str) -> None:
    values = {"a": 3.0, "b": 4.0, "c": 2.0, "d": 2.0}
    assert pick([Evaluated(n, n, v) for n, v in values.items()], margin).name == picked
