"""Making trials and evaluating them."""

from __future__ import annotations

import pytest

from hccc.base.diagnostics import UserError, fail
from hccc.predict.trials import Trial, evaluate


def _refused() -> float:
    raise fail("E410", "not this one")


def test_those_that_cannot_be_made_are_left_out_with_a_reason() -> None:
    told: list[str] = []
    tried = [
        Trial("two", lambda: 2.0),
        Trial("none", _refused),
        Trial("one", lambda: 1.0),
    ]
    evaluated, refused = evaluate(tried, lambda x: 10 * x, told.append)
    assert [(e.name, e.result, e.value) for e in evaluated] == [("two", 2, 20), ("one", 1, 10)]
    assert refused == {"none": "not this one"}
    assert told == ["two", "none", "one"]


def test_a_required_one_raises() -> None:
    with pytest.raises(UserError):
        evaluate([Trial("none", _refused, required=True)], lambda x: x)
