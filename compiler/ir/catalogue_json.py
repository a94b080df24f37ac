"""catalogue_json: a Catalogue as versioned JSON, and back.

    {"hccc_catalogue": 1, "name": …, "ranges": [{"in_place": …, "begin": …, …}, …],
     "plans": [the JSON of a plan, …], "provenance": …}

Plans are as `plan_json` prints them; `catalogue.schema.json` beside this file describes the rest. A
catalogue of one plan alone (`Catalogue.alone`) is that plan's JSON. Such a file is untrusted:
`loads` checks it against the schema, every plan as `plan_json.loads` does, and all together by
`catalogue.check_several`. `loads(dumps(catalogue))` is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from hccc.base.diagnostics import fail
from hccc.ir import plan_json
from hccc.ir.catalogue import CATALOGUE_VERSION, Catalogue, Range, check_several
from hccc.ir.schema import check_data, compiled, schema_of

_VERSION_KEY = "hccc_catalogue"
_HELP = "`hccc ALGO --emit=plan` prints one; hccc/ir/catalogue.schema.json describes it"


def dumps(catalogue: Catalogue) -> str:
    """Prints a catalogue as JSON: a line for each range, and for each column of a plan."""
    if catalogue.alone:
        return plan_json.dumps(catalogue.plans[0])
    ranges = ",\n".join(f"  {json.dumps(entry._asdict())}" for entry in catalogue.ranges)
    plans = ",\n".join(plan_json.dumps(plan).removesuffix("\n") for plan in catalogue.plans)
    fields = [
        f'"{_VERSION_KEY}": {CATALOGUE_VERSION}',
        f'"name": {json.dumps(catalogue.name)}',
        f'"ranges": [\n{ranges}\n]',
        f'"plans": [\n{plans}\n]',
    ]
    if (made := catalogue.provenance) is not None:
        fields.insert(2, f'"provenance": {json.dumps(plan_json.provenance_fields(made))}')
    return "{\n" + ",\n".join(fields) + "\n}\n"


def loads(text: str, name: str = "plan") -> Catalogue:
    """Reads a catalogue's JSON, or a plan's; `name` is how messages call it.

    Raises:
        UserError: E404, E406, E407, E31x as `plan_json.loads`, of a catalogue's plans too; E407 not
        as the schema requires; E319 its plans and ranges do not fit together. The message names the
        field.
    """
    data = plan_json.parsed(text, name)
    if not isinstance(data, dict) or _VERSION_KEY not in data:
        return Catalogue.of(plan_json.loaded(data, name))
    _validate(data, name)
    plans = [
        plan_json.loaded(entry, f"{name}: plans[{k}]") for k, entry in enumerate(data["plans"])
    ]
    made = data.get("provenance")
    catalogue = Catalogue(
        data["name"],
        tuple(plans),
        tuple(Range(**entry) for entry in data["ranges"]),
        None if made is None else plan_json.provenance_of(made),
    )
    with plan_json.named_problems(name):
        check_several(catalogue)
    return catalogue


@cache
def _validator() -> Callable[[object], object]:
    """Compiles the schema to a function, without the plans, which have a schema of their own."""
    shallow = json.loads(json.dumps(schema_of("catalogue")))
    del shallow["properties"]["plans"]["items"]
    return compiled(shallow, https=lambda _: schema_of("plan"))


def _validate(data: dict[str, Any], name: str) -> None:
    version = data[_VERSION_KEY]
    if type(version) is int and version != CATALOGUE_VERSION:
        message = f"a catalogue of version {str(version)[:40]}; this hccc reads {CATALOGUE_VERSION}"
        raise fail("E407", f"{name}: {message}", help="compile it again from its sources")
    check_data(_validator(), data, name, "catalogue", _HELP)
    _integers(data, name)


def _integers(data: dict[str, Any], name: str) -> None:
    """Raises E407 where an integer is written `2.0`, `1e0` or `true`, which JSON Schema allows."""
    wanted = schema_of("catalogue")["definitions"]["range"]["properties"]
    whole = [key for key, kind in wanted.items() if kind["type"] == "integer"]
    numbers = {_VERSION_KEY: data[_VERSION_KEY]}
    for k, entry in enumerate(data["ranges"]):
        numbers |= {f"ranges[{k}].{key}": entry[key] for key in whole}
    for field, value in numbers.items():
        if type(value) is not int:
            message = f"{field}: {json.dumps(value)[:40]} is not an integer"
            raise fail("E407", f"{name}: {message}", help=_HELP)
