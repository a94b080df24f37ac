"""shapes: checks values of a cluster file: ids, names, rates, entries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hccc.lang.cluster.text import (
    RATES,
    SIZES,
    TIMES,
    Arrow,
    Group,
    IdRange,
    List,
    Map,
    Measure,
    Num,
    Times,
    Value,
    Word,
)
from hccc.lang.mistakes import At, Mistake, clip, did_you_mean

MAX_RATE = 1e6  # GB/s
MAX_ALPHA = 1e6  # µs
MAX_PARALLEL = 4096
MAX_CHUNK = 1 << 40
NUMBERED = re.compile(r"(node|leaf|spine)([1-9][0-9]{0,8})")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}")
OF_LAUNCHES = ("base", "entry", "wake", "small")
A_RATE = "write `(GB/s, links)` or `(GB/s, links, µs)`"


@dataclass(frozen=True, slots=True)
class WrittenRate:
    """A rate as written; `alpha` is None if it is left to the kind of link."""

    bandwidth: float
    parallel: int
    alpha: float | None
    at: At


def shape(value: Value) -> str:
    """Describes a value for messages."""
    match value:
        case Num(value=number, whole=whole):
            return f"the number {number:g}" if not whole else f"{int(number)}"
        case Word(text=text):
            return f"`{clip(text)}`"
        case IdRange():
            return "a range"
        case Measure() | Times() | Arrow() | Group() | List() | Map():
            return f"a {type(value).__name__.lower()}"


def integer(value: Value, noun: str, low: int, high: int) -> int:
    """Reads a whole number from `low` to `high`. noun: the value's name in messages."""
    if not (isinstance(value, Num) and value.whole):
        raise Mistake("E035", f"{noun} is a whole number, not {shape(value)}", value.at)
    if not low <= value.value <= high:
        raise Mistake("E132", f"{noun} is {shape(value)}, not {low:,} to {high:,}", value.at)
    return int(value.value)


def rate(value: Value, noun: str) -> float:
    """Reads a rate in GB/s: `50`, `50 GB/s`, `400Gbps`."""
    return _number(_in(value, noun, RATES), noun, MAX_RATE)


def latency(value: Value, noun: str = "a latency") -> float:
    """Reads a latency in µs, perhaps 0: `0.7`, `0.7us`, `700 ns`."""
    return _number(_in(value, noun, TIMES), noun, MAX_ALPHA, zero=True)


def _in(value: Value, noun: str, units: Mapping[str, Fraction]) -> Value:
    """Converts a number with a unit to a plain number; returns anything else as it is."""
    if not isinstance(value, Measure):
        return value
    if value.unit not in units:
        message = f"`{clip(value.unit)}` is no unit of {noun.removeprefix('a ')}"
        raise Mistake("E138", message, value.at, f"units are {', '.join(units)}")
    return Num(float(Fraction(value.value) * units[value.unit]), False, value.at)


def _number(value: Value, noun: str, high: float, *, zero: bool = False) -> float:
    """Reads a number up to `high`, more than zero or (`zero`) at least zero."""
    if not isinstance(value, Num):
        raise Mistake("E035", f"{noun} is a number, not {shape(value)}", value.at)
    if value.value == 0 and not zero:
        help = "leave out what is not there; say what failed with `define failed`"
        raise Mistake("E133", f"{noun} is zero", value.at, help)
    if value.value > high:
        raise Mistake("E132", f"{noun} is {value.value:g}, more than {high:,.0f}", value.at)
    return value.value


def size(value: Value) -> int:
    """Reads a number of bytes: `1048576`, `1 MiB`, `1.5 MB`."""
    if isinstance(value, Num):
        return integer(value, "a size in bytes", 1, MAX_CHUNK)
    if not isinstance(value, Measure):
        raise Mistake("E035", f"a size is a number of bytes, not {shape(value)}", value.at)
    unit = SIZES.get(value.unit)
    if unit is None:
        message = f"`{clip(value.unit)}` is no unit of size"
        raise Mistake("E138", message, value.at, f"units are {', '.join(SIZES)}")
    count = value.value * unit
    if count < 1 or count > MAX_CHUNK or count != int(count):
        raise Mistake("E132", "this is no whole number of bytes from 1 to 2**40", value.at)
    return int(count)


def launch_times(value: Value) -> dict[str, float]:
    """Reads `43`, the µs of any launch, or `{base => 43, entry => 0.1, wake => 90}`, and bytes
    `small => 4 MiB`."""
    if isinstance(value, Num | Measure):
        return {"base": latency(value, "a launch")}
    given = mapping(value, OF_LAUNCHES, "launch")
    return {k: size(x) if k == "small" else latency(x, f"`{k}`") for k, x in given.items()}


def name(value: Value, noun: str) -> str:
    """Reads a vendor's or device's name: letters, digits, space and `._+-`, at most 64."""
    if not isinstance(value, Word):
        raise Mistake("E035", f"{noun} is a name, not {shape(value)}", value.at)
    if not NAME.fullmatch(value.text):
        help = "letters, digits, spaces and `. _ + -`, at most 64"
        raise Mistake("E036", f"{noun} cannot be {shape(value)}", value.at, help)
    return value.text


def ids(value: Value, noun: str, bound: int, *, of: str) -> list[int]:
    """Reads `3`, `0..7`, `(0, 1, 4..7)`: ascending, each less than `bound`, none twice."""
    spans = (i for item in _flat(value) for i in _span(item, noun, bound, of))
    found = _distinct(spans, lambda i: f"{noun} {i}", value.at)
    if not found:
        raise Mistake("E035", f"no {noun} is named here", value.at)
    return sorted(found)


def _distinct(values: Iterable[int], text: Callable[[int], str], at: At) -> dict[int, None]:
    """Collects the values in order. Raises E134 at the first repetition, so it never holds more
    than all ids."""
    seen: dict[int, None] = {}
    for value in values:
        if value in seen:
            raise Mistake("E134", f"{text(value)} is named twice", at)
        seen[value] = None
    return seen


def _flat(value: Value) -> list[Value]:
    return [x for item in value.items for x in _flat(item)] if isinstance(value, Group) else [value]


def _span(value: Value, noun: str, bound: int, of: str) -> Iterable[int]:
    if not isinstance(value, IdRange):
        return [_id(value, noun, bound, of)]
    first, last = _id(value.first, noun, bound, of), _id(value.last, noun, bound, of)
    if last < first:
        raise Mistake("E132", f"{first}..{last} runs backwards", value.at)
    return range(first, last + 1)


def _id(value: Value, noun: str, bound: int, of: str) -> int:
    if not (isinstance(value, Num) and value.whole):
        raise Mistake("E035", f"{noun} ids are whole numbers, not {shape(value)}", value.at)
    if value.value >= bound:
        least = f"{noun}s 0 to {bound - 1}" if bound else f"no {noun}"
        raise Mistake("E132", f"there is no {noun} {int(value.value)}: {of} has {least}", value.at)
    return int(value.value)


def numbered(value: Value, kind: str, bound: int) -> list[int]:
    """Reads `node1`, `node1..node4`, `(node1, node3)` as numbers from 0, none twice."""
    names = (i for item in _flat(value) for i in _names(item, kind, bound))
    found = list(_distinct(names, lambda i: f"{kind}{i + 1}", value.at))
    if not found:
        raise Mistake("E035", f"no {kind} is named here", value.at)
    return found


def _names(value: Value, kind: str, bound: int) -> Iterable[int]:
    if not isinstance(value, IdRange):
        return [number_in_name(value, kind, bound)]
    first, last = number_in_name(value.first, kind, bound), number_in_name(value.last, kind, bound)
    if last < first:
        raise Mistake("E132", "this range runs backwards", value.at)
    return range(first, last + 1)


def number_in_name(value: Value, kind: str, bound: int) -> int:
    """Reads `node3` as 2."""
    match = NUMBERED.fullmatch(value.text) if isinstance(value, Word) else None
    if match is None or match[1] != kind:
        raise Mistake("E138", f"{shape(value)} is no {kind}", value.at, f"write `{kind}1`")
    if int(match[2]) > bound:
        have = f"there are {bound}" if bound else f"no {kind} is defined before"
        raise Mistake("E138", f"there is no {match[0]}: {have}", value.at)
    return int(match[2]) - 1


def written_rate(value: Value) -> WrittenRate:
    """Reads `(25, 2)`, `(25, 2, 0.7)` or `25`: GB/s of one link, links, latency in µs."""
    items = value.items if isinstance(value, Group) else [value]
    if not 1 <= len(items) <= 3:
        raise Mistake(
            "E035", f"a rate has up to 3 numbers, this has {len(items)}", value.at, A_RATE
        )
    try:
        bandwidth = rate(items[0], "a bandwidth")
    except Mistake as mistake:
        mistake.help = mistake.help or A_RATE
        raise
    parallel = integer(items[1], "the number of links", 1, MAX_PARALLEL) if len(items) > 1 else 1
    alpha = latency(items[2]) if len(items) > 2 else None
    return WrittenRate(bandwidth, parallel, alpha, value.at)


def unwrapped(value: Value) -> Value:
    """Removes parentheses around a single value."""
    while isinstance(value, Group) and len(value.items) == 1:
        value = value.items[0]
    return value


def entries(value: Value) -> list[Value]:
    """Returns the entries of a list; `A, B >-> rate` without its own parenthesis is one entry."""
    if not isinstance(value, List):
        raise Mistake("E035", f"expected a list `[...]`, not {shape(value)}", value.at)
    found: list[Value] = []
    for item in map(unwrapped, value.items):
        if isinstance(item, Arrow) and item.shared and not _two(item.left) and found:
            side = found.pop()
            if not isinstance(side, Arrow):
                left = Group((side, item.left), side.at.to(item.left.at))
                item = Arrow(left, item.right, True, side.at.to(item.at))
            else:
                found.append(side)
        found.append(item)
    return found


def _two(value: Value) -> bool:
    inner = unwrapped(value)
    return isinstance(inner, Group) and all(isinstance(i, Group) for i in inner.items)


def arrow(value: Value, sign: str, example: str) -> Arrow:
    """Returns the entry if it has the arrow `sign`. Raises E035 otherwise."""
    if not isinstance(value, Arrow):
        raise Mistake("E035", f"expected `{example}`, not {shape(value)}", value.at)
    if value.shared != (sign == ">->"):
        other = ">->" if value.shared else "->"
        raise Mistake("E035", f"`{other}` cannot stand here", value.at, f"write `{example}`")
    return value


def sides(value: Value, noun: str) -> tuple[Value, Value]:
    """Returns the two values left of an arrow."""
    inner = unwrapped(value)
    if not isinstance(inner, Group) or len(inner.items) != 2:
        raise Mistake("E035", f"{noun}, not {shape(inner)}", value.at)
    return inner.items[0], inner.items[1]


def mapping(value: Value, keys: Sequence[str], noun: str) -> dict[str, Value]:
    """Reads `{key => value, …}` with known keys, each once."""
    if not isinstance(value, Map):
        message = f"{noun} is `{{{keys[0]} => ...}}`, not {shape(value)}"
        raise Mistake("E035", message, value.at)
    found: dict[str, Value] = {}
    for key, item in value.pairs:
        if key.text not in keys:
            near = did_you_mean(key.text, keys)
            help = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(keys)}"
            raise Mistake("E138", f"{noun} has no `{clip(key.text)}`", key.at, help)
        if key.text in found:
            raise Mistake("E134", f"`{key.text}` is there twice", key.at)
        found[key.text] = item
    return found
