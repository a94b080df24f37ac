"""The entries in the lists of a cluster file: links, what is shared, what is below a switch."""

from __future__ import annotations

from collections.abc import Iterator

from hccc.lang.cluster.shapes import Speed, arrow, ids, sides, speed, unwrapped
from hccc.lang.cluster.text import Arrow, Group, Num, Range, Value
from hccc.lang.mistakes import Mistake

PAIR = "((0,1), (2,3) >-> (16,1))"
Made = tuple[list[int], list[int], Speed]  # the GPUs at both sides (or all, and none); how fast


def one_id(value: Value, what: str, bound: int, node: int) -> int:
    thing = {"nic": "NIC", "switch": "switch entry"}.get(what, "GPU")
    found = ids(value, thing, bound, of=f"node{node + 1}")
    if len(found) != 1:
        raise Mistake("E035", f"name one {thing} here", value.at)
    return found[0]


def parts(value: Value) -> list[Value]:
    inner = unwrapped(value)
    return list(inner.items) if isinstance(inner, Group) else [inner]


def is_ids(value: Value) -> bool:
    match value:
        case Num() | Range(first=Num()):
            return True
        case Group(items=items):
            return all(map(is_ids, items))
    return False


def uplinks_of(entry: Value) -> tuple[Value, Speed | None]:
    """What is below a switch, and the uplinks it has."""
    if not isinstance(entry, Arrow):
        return entry, None
    return entry.left, speed(arrow(entry, "->", "(node1, node2) -> (25, 8)").right)


def joint(entry: Value, key: str, left: int, right: int) -> Made:
    """`(u,v) -> rate`, or `(A),(B) >-> rate`; u and A below `left`, v and B below `right`."""
    if key == "direct":
        found = arrow(entry, "->", "(0,1) -> (25,2)")
        u, v = sides(found.left, "a direct link joins two GPUs `(0,1)`")
        a, b = ids(u, "GPU", left, of="the node"), ids(v, "GPU", right, of="the node")
        if len(a) > 1 or len(b) > 1:
            help = "`(A),(B) >-> rate` is what groups share, `mesh` links all of a group"
            raise Mistake("E035", "a direct link joins one GPU to one", found.left.at, help)
        return a, b, speed(found.right)
    found = arrow(entry, ">->", PAIR)
    u, v = sides(found.left, "a switch joins two groups of GPUs `(0,1), (2,3)`")
    a, b = ids(u, "GPU", left, of="the node"), ids(v, "GPU", right, of="the node")
    return a, b, speed(found.right)


def alike(entry: Value, size: int) -> Made:
    """`(ids) -> rate`."""
    found = arrow(entry, "->", "(0..7) -> (300, 1)")
    return ids(found.left, "GPU", size, of="the node"), [], speed(found.right)


def refuse_repetition(key: str, made: list[Made]) -> None:
    """Within a node: nothing joins a GPU with itself, and no link is there twice."""
    for twice, s in _repetitions(key, made):
        raise Mistake("E134", twice, s.at)


def _repetitions(key: str, made: list[Made]) -> Iterator[tuple[str, Speed]]:
    seen: set[tuple[int, ...]] = set()
    for a, b, s in made:
        if both := set(a) & set(b):
            yield f"GPU {min(both)} is on both sides", s
        if key == "mesh" and len(a) < 2:
            yield "a mesh links two GPUs or more", s
        names = {(*a, *b)} if key == "direct" else {(x,) for x in a} if key != "switch" else set()
        for pair in sorted(names & seen):
            who = f"the link {pair}" if key == "direct" else f"GPU {pair[0]}"
            yield f"{who} has two of these", s
        seen |= names
