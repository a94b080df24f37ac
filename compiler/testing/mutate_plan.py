"""mutate_plan: small changes to a plan's JSON, over every field of its schema.

In a test, a mutant is refused, or running it (`stepwise.launch`) gives the right data all the same.
A mutant changes one entry of one field, or several that belong together: a primitive's chunk and
its slots, a wait and the end of its row, the border of two thread blocks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hccc.ir.choices import Accumulate
from hccc.ir.schema import schema_of

Path = tuple[str, ...]
PlanData = dict[str, Any]  # what `plan_json.dumps` writes
Choose = Callable[[int], int]  # a number of 0..n

_NUMBERS = (0, 1, 2, 3, 7, 8, 61, 1 << 10, (1 << 31) - 1)
_TEXTS = {
    "name": ("other", "hccc", "Ring_2"),
    "source": ("x.rccl", "?"),
    "accumulate": ("float64", Accumulate.FLOAT64.stated, Accumulate.SAME.stated),
    "hccc": ("9.9", ""),
    "scheduler": ("round-robin", "?"),
}
_REDUCTIONS: tuple[list[str], ...] = (  # of one's own; the last two are none
    [],
    ["odds: a + b + a * b"],
    ["odds: a + b + a * b", "least: min(a, b)"],
    ["odds: a + b +"],
    ["sum: a + b"],
)
_DEMANDS = (  # some are none of few ranks, or no demands
    "0,1 -> 2; sum 0-3 -> 0",
    "0 -> 2; sum 0-3 -> 0,3",
    "0,1 -> 2; sum 0-2 -> 0,3",
    "0,1 -> 2; 0-3 -> 0,3",
    "sum 0-3 -> 0,3; 0,1 -> 2",
    "0 -> 1",
    "1 -> 0; 0 -> 1; sum 0-1 -> 0-1",
    "0 -> 9",
    "",
)
_OBJECTS: tuple[Any, ...] = (None, {}, {"name": "x", "text": "y"}, {"fuse": "none", "slots": 2})


def leaves() -> list[Path]:
    """Lists every field of the schema that holds a value or a column of values."""
    schema = schema_of("plan")
    found: list[Path] = []
    for key, field in schema["properties"].items():
        kind = _resolved(field)
        if kind["type"] == "object":
            found += [(key, inner) for inner in kind["properties"]]
        else:
            found.append((key,))
    return found


def _resolved(field: Any) -> Any:
    """Returns a field's own description: the one it refers to, or with a type if it has none."""
    if "$ref" in field:
        return schema_of("plan")["definitions"][field["$ref"].rsplit("/", 1)[-1]]
    return {"type": "value", **field}


def choices(path: Path) -> list[str]:
    """Lists the values that the schema allows for a field; none if it gives a range."""
    properties = schema_of("plan")["properties"]
    field = properties[path[0]]
    if len(path) > 1:
        field = _resolved(field)["properties"][path[1]]
    return list(field.get("enum", ()))


def at(data: PlanData, path: Path) -> Any:
    """Returns the value at a path."""
    for key in path:
        data = data[key]
    return data


def with_value(data: PlanData, path: Path, value: Any) -> PlanData:
    """Returns `data` with another value at a path; everything else is shared."""
    name, *rest = path
    inner = with_value(data[name], tuple(rest), value) if rest else value
    return {**data, name: inner}


_UNSAID: PlanData = {
    "protocol": "simple",
    "max_bytes": 0,
    "greets": False,
    "multicast": "none",
}  # what files need not say


def mutate_field(data: PlanData, path: Path, choose: Choose) -> PlanData | None:
    """Changes `data` once at `path`; returns None if there is nothing to change."""
    if path == ("reductions",):
        lists = [one for one in _REDUCTIONS if one != data.get("reductions", [])]
        return {**data, "reductions": lists[choose(len(lists) - 1)]}
    if path == ("collective", "demand"):
        texts = [one for one in _DEMANDS if one != data["collective"].get("demand")]
        return with_value(data, path, texts[choose(len(texts) - 1)])
    data = {**_UNSAID, **data} if path[0] in _UNSAID else data
    old = at(data, path)
    if isinstance(old, list):
        return _in_column(data, path, old, choose)
    if isinstance(old, bool):
        return with_value(data, path, not old)
    if old is None or isinstance(old, dict):
        objects = [x for x in _OBJECTS if x != old]
        return with_value(data, path, objects[choose(len(objects) - 1)])
    if isinstance(old, str):
        others = [x for x in (*choices(path), *_TEXTS.get(path[-1], ())) if x != old]
        return with_value(data, path, others[choose(len(others) - 1)]) if others else None
    return with_value(data, path, _number(old, [], choose))


def _number(old: int, column: list[int], choose: Choose) -> int:
    """Returns another number than `old`: a near one, one of the column's, or an odd one."""
    kind = choose(5)
    if kind == 0:
        new = old - 1 if old else 1
    elif kind <= 2:
        new = old + 1
    elif kind == 3 and column:
        new = column[choose(len(column) - 1)]
    elif kind == 4:
        new = old * 2
    else:
        new = _NUMBERS[choose(len(_NUMBERS) - 1)]
    return new if new != old else old + 1


def _in_column(data: PlanData, path: Path, old: list[int], choose: Choose) -> PlanData | None:
    column = list(old)
    kind = choose(9)
    if not column or kind == 0:
        column.insert(choose(len(column)), choose(3))
    elif kind == 1:
        del column[choose(len(column) - 1)]
    elif kind <= 3:
        i, j = choose(len(column) - 1), choose(len(column) - 1)
        column[i], column[j] = column[j], column[i]
    else:
        i = choose(len(column) - 1)
        column[i] = _number(column[i], column, choose)
    return with_value(data, path, column) if column != old else None


def _moved_chunk(data: PlanData, choose: Choose) -> PlanData | None:
    """Labels one primitive with another chunk; sometimes its operands' slots follow."""
    i, shift = choose(len(data["chunk"]) - 1), 1 + choose(3)
    chunk = list(data["chunk"])
    chunk[i] = (chunk[i] + shift) % data["collective"]["n_chunks"]
    data = with_value(data, ("chunk",), chunk)
    for side in ("src", "dst") if choose(1) else ():
        slot = list(data[side]["slot"])
        for k in range(data[side]["ptr"][i], data[side]["ptr"][i + 1]):
            slot[k] += shift
        data = with_value(data, (side, "slot"), slot)
    return data


def _parked(data: PlanData, choose: Choose) -> PlanData | None:
    """Moves every access to one slot of a rank's buffer to another slot, perhaps of another
    buffer."""
    side = data[("src", "dst")[choose(1)]]
    k = choose(len(side["slot"]) - 1)
    old = side["rank"][k], side["buffer"][k], side["slot"][k]
    new = (old[1] if choose(1) else choose(3), max(0, old[2] + 1 - 2 * choose(1)))
    for name in ("src", "dst"):
        buffer, slot = list(data[name]["buffer"]), list(data[name]["slot"])
        for j, place in enumerate(zip(data[name]["rank"], buffer, slot, strict=True)):
            if place == old:
                buffer[j], slot[j] = new
        data = with_value(with_value(data, (name, "buffer"), buffer), (name, "slot"), slot)
    return data


def _without_wait(data: PlanData, choose: Choose) -> PlanData | None:
    index, ptr = list(data["waits"]["index"]), list(data["waits"]["ptr"])
    if not index:
        return None
    k = choose(len(index) - 1)
    del index[k]
    ptr = [p - (p > k) for p in ptr]
    return with_value(with_value(data, ("waits", "index"), index), ("waits", "ptr"), ptr)


def _moved_wait(data: PlanData, choose: Choose) -> PlanData | None:
    """Moves a wait to the primitive before or after."""
    ptr = list(data["waits"]["ptr"])
    i = 1 + choose(len(ptr) - 3) if len(ptr) > 2 else 0
    by = 1 - 2 * choose(1)
    if not i or not ptr[i - 1] <= ptr[i] + by <= ptr[i + 1]:
        return None
    ptr[i] += by
    return with_value(data, ("waits", "ptr"), ptr)


def _moved_border(data: PlanData, choose: Choose) -> PlanData | None:
    """Moves the border of two neighbouring thread blocks by one primitive."""
    ptr = list(data["tb_ptr"])
    if len(ptr) < 3:
        return None
    i = 1 + choose(len(ptr) - 3)
    ptr[i] += 1 - 2 * choose(1)
    return with_value(data, ("tb_ptr",), ptr) if ptr[i - 1] < ptr[i] < ptr[i + 1] else None


def _joined_blocks(data: PlanData, choose: Choose) -> PlanData | None:
    """Joins two neighbouring thread blocks of a rank."""
    n_tb = list(data["n_tb"])
    r = choose(len(n_tb) - 1)
    if n_tb[r] < 2:
        return None
    ptr = list(data["tb_ptr"])
    del ptr[sum(n_tb[:r]) + 1 + choose(n_tb[r] - 2)]
    n_tb[r] -= 1
    return with_value(with_value(data, ("tb_ptr",), ptr), ("n_tb",), n_tb)


_PER_PRIMITIVE = ("chunk", "sub", "line", "final", "guard")
_PER_ROW = {
    "src": ("rank", "buffer", "slot"),
    "dst": ("rank", "buffer", "slot"),
    "waits": ("index",),
    "posts": ("rank", "flag"),
}


def _swapped_primitives(data: PlanData, choose: Choose) -> PlanData | None:
    """Exchanges two primitives, with all their fields."""
    n = len(data["chunk"])
    i, j = choose(n - 1), choose(n - 1)
    order = list(range(n))
    order[i], order[j] = j, i
    for key in _PER_PRIMITIVE:
        data = with_value(data, (key,), [data[key][k] for k in order])
    for table, columns in _PER_ROW.items():
        ptr = data[table]["ptr"]
        pick = [e for k in order for e in range(ptr[k], ptr[k + 1])]
        ends = [0]
        for k in order:
            ends.append(ends[-1] + ptr[k + 1] - ptr[k])
        data = with_value(data, (table, "ptr"), ends)
        for column in columns:
            data = with_value(data, (table, column), [data[table][column][e] for e in pick])
    return data if i != j else None


TOGETHER: dict[str, Callable[[PlanData, Choose], PlanData | None]] = {
    "moved chunk": _moved_chunk,
    "parked": _parked,
    "without wait": _without_wait,
    "moved wait": _moved_wait,
    "moved border": _moved_border,
    "joined blocks": _joined_blocks,
    "swapped primitives": _swapped_primitives,
}


def mutate_plan(data: PlanData, choose: Choose) -> tuple[PlanData, str]:
    """Changes `data` once or twice; also returns where: a field's path, or a key of `TOGETHER`."""
    what: list[str] = []
    fields, together = leaves(), list(TOGETHER)
    for k in range(1 + (choose(4) == 0)):
        if k == 0 and choose(3) == 0:  # on whole columns only
            name = together[choose(len(together) - 1)]
            new = TOGETHER[name](data, choose)
        else:
            path = fields[choose(len(fields) - 1)]
            name, new = ".".join(path), mutate_field(data, path, choose)
        if new is not None:
            data = new
            what.append(name)
    return data, " and ".join(what) or "nothing"


def text(data: PlanData) -> str:
    """Writes a plan file."""
    return json.dumps(data)
