"""schema: the JSON schemas beside this file, and the check of data of unknown origin by them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

from hccc.base.diagnostics import fail


@cache
def schema_of(kind: str) -> dict[str, Any]:
    """Returns the JSON schema (draft-07) of a kind of file: plan, catalogue or job."""
    text = (files("hccc.ir") / f"{kind}.schema.json").read_text(encoding="utf-8")
    keywords: dict[str, Any] = json.loads(text)
    return keywords


def compiled(schema: dict[str, Any], **others: Callable[[str], Any]) -> Callable[[object], object]:
    """Compiles a schema to a function for `check_data`. others: what reads the schemas that it
    refers to, by the beginning of their addresses."""
    import fastjsonschema

    made: Callable[[object], object] = fastjsonschema.compile(schema, handlers=others)
    return made


def check_data(
    validate: Callable[[object], object], data: object, name: str, noun: str, help: str
) -> None:
    """Raises UserError E407 where data are not as a schema requires. name: of the file; noun: what
    it should be."""
    from fastjsonschema import JsonSchemaValueException

    try:
        validate(data)
    except JsonSchemaValueException as error:
        field = ".".join(str(part) for part in error.path[1:])
        message = error.message.removeprefix(error.name or "data").strip()
        text = f"{field}: {message}" if field else f"not a {noun}: it {message}"
        raise fail("E407", f"{name}: {text}"[:400], help=help) from None
