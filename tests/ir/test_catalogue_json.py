"""Catalogues as JSON: exact round trips, and no damaged file gets through."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import fastjsonschema
import pytest

from hccc.base.diagnostics import UserError
from hccc.ir import catalogue_json, plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.provenance import Cluster, Provenance
from hccc.ir.schema import schema_of
from tests.emit.catalogues import both, pair

MADE = Provenance("0.1", {"tune": "fast", "slots": 2}, "hpds", Cluster("x.cluster", "define\n"))


@cache
def _text() -> str:
    return catalogue_json.dumps(both())


def data_of() -> Any:
    return json.loads(_text())


def refused(data: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        catalogue_json.loads(data if isinstance(data, str) else json.dumps(data), "x.json")
    return caught.value


@pytest.mark.parametrize("made", [None, MADE])
def test_round_trip(made: Provenance | None) -> None:
    text = catalogue_json.dumps(replace(both(), provenance=made))
    found = catalogue_json.loads(text)
    assert not found.alone
    assert (found.name, found.ranges, found.provenance) == ("both", both().ranges, made)
    assert catalogue_json.dumps(found) == text


def test_each_plan_is_as_its_own_file_has_it() -> None:
    for plan, text in zip(both().plans, data_of()["plans"], strict=True):
        assert plan_json.dumps(plan_json.loads(json.dumps(text))) == plan_json.dumps(plan)


def test_a_plan_alone_is_printed_as_that_plan() -> None:
    plan = replace(pair()[0], window=2, provenance=MADE)
    text = catalogue_json.dumps(Catalogue.of(plan))
    assert text == plan_json.dumps(plan)
    found = catalogue_json.loads(text)
    assert found.alone and (found.name, found.provenance) == (plan.name, MADE)
    assert {(one.window, one.grain) for one in found.ranges} == {(2, plan.grain)}
    assert catalogue_json.dumps(found) == text


def test_a_plan_alone_is_written_by_itself() -> None:
    """A file of a catalogue has several plans or ways to run one."""
    data = data_of()
    data["plans"], data["ranges"] = data["plans"][:1], [data["ranges"][k] for k in (0, 3)]
    assert "all run the same plan" in refused(data).problem.message
    data["name"] = data["plans"][0]["name"]
    assert "plans[0].name: both_1, not both_1_1" in refused(data).problem.message


def test_the_whole_schema_accepts_it_and_describes_every_field() -> None:
    whole = fastjsonschema.compile(
        schema_of("catalogue"), handlers={"https": lambda _: schema_of("plan")}
    )
    whole(data_of())
    whole(json.loads(catalogue_json.dumps(replace(both(), provenance=MADE))))
    assert set(schema_of("catalogue")["properties"]) == {*data_of(), "provenance"}
    fields = schema_of("catalogue")["definitions"]["range"]
    assert set(fields["properties"]) == set(fields["required"]) == set(data_of()["ranges"][0])


def _at(*path: str | int) -> Callable[[Any, Any], None]:
    def put(data: Any, value: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return put


WRONG: dict[str, tuple[tuple[str | int, ...], Any, str, str]] = {
    "version": (("hccc_catalogue",), 2, "E407", "a catalogue of version 2"),
    "version as text": (("hccc_catalogue",), "1", "E407", "hccc_catalogue"),
    "version as a float": (("hccc_catalogue",), 1.0, "E407", "hccc_catalogue: 1.0 is not"),
    "name": (("name",), "a/../b", "E407", "name"),
    "ranges": (("ranges",), {}, "E407", "ranges"),
    "too many ranges": (("ranges",), [{}] * 513, "E407", "ranges"),
    "no plans": (("plans",), [], "E407", "plans"),
    "a plan that is none": (("plans", 1), 7, "E407", "plans[1]"),
    "a plan's field": (("plans", 1, "warps"), 0, "E407", "plans[1]: warps"),
    "a plan's column": (("plans", 0, "chunk", 0), 99, "E311", "plans[0]"),
    "a catalogue in a catalogue": (("plans", 0), {"hccc_catalogue": 1}, "E407", "plans[0]"),
    "begin as a float": (("ranges", 1, "begin"), 40000.0, "E407", "begin: 40000.0 is not an"),
    "begin as a bool": (("ranges", 0, "begin"), False, "E407", "ranges.0.begin: must be integer"),
    "a huge begin": (("ranges", 1, "begin"), 10**30, "E407", "begin"),
    "in_place as a number": (("ranges", 0, "in_place"), 0, "E407", "in_place"),
    "another member": (("ranges", 0, "more"), 1, "E407", "ranges"),
    "another field": (("more",), 1, "E407", "more"),
    "a gap": (("ranges", 0, "begin"), 1, "E319", "ranges[0].begin"),
    "no such plan": (("ranges", 0, "plan"), 5, "E319", "ranges[0].plan"),
    "another name": (("name",), "other", "E319", "plans[0].name"),
    "provenance": (("provenance",), {"hccc": 1}, "E407", "provenance"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_damaged_file_is_refused(name: str) -> None:
    path, value, code, said = WRONG[name]
    data = copy.deepcopy(data_of())
    _at(*path)(data, value)
    problem = refused(data).problem
    assert problem.code == code
    assert problem.message.startswith("x.json: ") and said in problem.message


@pytest.mark.parametrize("field", ["name", "ranges", "plans"])
def test_a_missing_field_is_named(field: str) -> None:
    data = data_of()
    del data[field]
    problem = refused(data).problem
    assert problem.code == "E407" and field in problem.message


def test_what_is_no_json() -> None:
    assert refused(_text()[:-3]).problem.code == "E406"
    wrong = refused("x" + _text()).problem
    assert (
        wrong.code == "E406" and wrong.span and wrong.span.caret().splitlines()[-1].count("^") == 1
    )
    twice = _text().replace('"name": "both"', '"name": "both",\n"name": "both"', 1)
    assert refused(twice).problem.code == "E406"
    assert refused("[" * 100_000).problem.code == "E406"
