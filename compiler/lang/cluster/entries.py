"""entries: the entries in the lists of a cluster file: links, shared groups, switches."""

from __future__ import annotations

from collections.abc import Iterator

from hccc.lang.cluster.shapes import WrittenRate, arrow, ids, sides, unwrapped, written_rate
from hccc.lang.cluster.text import Arrow, Group, IdRange, Num, Value
from hccc.lang.mistakes import Mistake

PAIR = "((0,1), (2,3) >-> (16,1))"
# The GPUs at side a and at side b (b is empty for a mesh, ports and NICs), and the rate.
WrittenEntry = tuple[list[int], list[int], WrittenRate]


def one_id(value: Value, kind: str, bound: int, node: int) -> int:
    noun = {"nic": "NIC", "switch": "switch entry"}.get(kind, "GPU")
    found = ids(value, noun, bound, of=f"node{node + 1}")
    if len(found) != 1:
        raise Mistake("E035", f"name one {noun} here", value.at)
    return found[0]


def parts(value: Value) -> list[Value]:
    inner = unwrapped(value)
    return list(inner.items) if isinstance(inner, Group) else [inner]


def is_ids(value: Value) -> bool:
    match value:
        case Num() | IdRange(first=Num()):
            return True
        case Group(items=items):
            return all(map(is_ids, items))
    return False


def uplinks_of(entry: Value) -> tuple[Value, WrittenRate | None]:
    """Splits a switch's entry into the list below it, and its uplinks if it has any."""
    if not isinstance(entry, Arrow):
        return entry, None
    return entry.left, written_rate(arrow(entry, "->", "(node1, node2) -> (25, 8)").right)


def two_sided(entry: Value, key: str, left: int, right: int) -> WrittenEntry:
    """Reads `(u,v) -> rate`, or `(A),(B) >-> rate`; u and A below `left`, v and B below `right`."""
    if key == "direct":
        found = arrow(entry, "->", "(0,1) -> (25,2)")
        u, v = sides(found.left, "a direct link joins two GPUs `(0,1)`")
        a, b = ids(u, "GPU", left, of="the node"), ids(v, "GPU", right, of="the node")
        if len(a) > 1 or len(b) > 1:
            help = "`(A),(B) >-> rate` is what groups share, `mesh` links all of a group"
            raise Mistake("E035", "a direct link joins one GPU to one", found.left.at, help)
        return a, b, written_rate(found.right)
    found = arrow(entry, ">->", PAIR)
    u, v = sides(found.left, "a switch joins two groups of GPUs `(0,1), (2,3)`")
    a, b = ids(u, "GPU", left, of="the node"), ids(v, "GPU", right, of="the node")
    return a, b, written_rate(found.right)


def one_sided(entry: Value, size: int) -> WrittenEntry:
    """Reads `(ids) -> rate`."""
    found = arrow(entry, "->", "(0..7) -> (300, 1)")
    return ids(found.left, "GPU", size, of="the node"), [], written_rate(found.right)


def refuse_repetition(key: str, entries: list[WrittenEntry]) -> None:
    """Raises E134 if a GPU is joined with itself, or a link is there twice."""
    for twice, s in _repetitions(key, entries):
        raise Mistake("E134", twice, s.at)


def _repetitions(key: str, entries: list[WrittenEntry]) -> Iterator[tuple[str, WrittenRate]]:
    seen: set[tuple[int, ...]] = set()
    for a, b, s in entries:
        if both := set(a) & set(b):
            yield f"GPU {min(both)} is on both sides", s
        if key == "mesh" and len(a) < 2:
            yield "a mesh links two GPUs or more", s
        names = {(*a, *b)} if key == "direct" else {(x,) for x in a} if key != "switch" else set()
        for pair in sorted(names & seen):
            who = f"the link {pair}" if key == "direct" else f"GPU {pair[0]}"
            yield f"{who} has two of these", s
        seen |= names
