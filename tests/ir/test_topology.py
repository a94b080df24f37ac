"""Topologies that break an invariant are told; sound ones are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hccc.ir.arrays import Csr
from hccc.ir.topology import Level, Rate, Rates, Topology, check, rates, uniform

LINK = rates([Rate(1.0)])


def changed(table: np.ndarray, at: Any, value: float) -> np.ndarray:
    """Returns a copy with one value changed."""
    table = table.copy()
    table[at] = value
    return table


def spoiled(r: Rates, field: str, value: float) -> Rates:
    """Returns the rates with the last of a kind changed."""
    fields: dict[str, Any] = {field: changed(getattr(r, field), -1, value)}
    return replace(r, **fields)


@pytest.mark.parametrize("shape", [(2, 1, 1), (4, 2, 1), (4, 4, 4), (6, 2, 2)])
def test_nodes_of_any_size_are_sound(shape: tuple[int, int, int]) -> None:
    t = uniform(*shape)
    assert check(t) == []
    assert check(replace(t, memory_domain=np.zeros(len(t), np.int32))) == []


def links(*pairs: tuple[int, int]) -> dict[str, Any]:
    """Returns the fields of links between these ranks."""
    src, dst = (np.array([p[k] for p in pairs], np.int32) for k in (0, 1))
    return {"link_src": src, "link_dst": dst, "links": rates([Rate(1.0)] * len(pairs))}


T = uniform(4, 2, 2)
SWITCH = np.append(T.level, np.uint8(Level.SWITCH))
SHARED = Rates(*(np.append(getattr(T.shared, k), 1) for k in ("bandwidth", "parallel", "alpha")))


def switch(a: list[list[int]], b: list[list[int]]) -> dict[str, Any]:
    """Returns the fields of one switch group between the ranks `a` and `b`."""
    sides = [
        Csr(np.cumsum([0, *map(len, s)]), np.array([r for side in s for r in side], np.int32))
        for s in (a, b)
    ]
    return {"level": SWITCH, "shared": SHARED, "side_a": sides[0], "side_b": sides[1]}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"node": np.array([0, 1, 0, 1])}, "not numbered node by node"),
    ({"local": np.array([0, 0, 0, 1])}, "not numbered node by node"),
    (links((1, 0), (0, 1)), "links are not sorted"),
    (links((0, 1), (0, 1)), "links are not sorted"),
    (links((0, 0)), "impossible rank"),
    (links((0, 4)), "impossible rank"),
    (links((-1, 0)), "impossible rank"),
    ({"meshes": spoiled(T.meshes, "bandwidth", 0.0)}, "a mesh has no bandwidth"),
    ({"meshes": spoiled(T.meshes, "bandwidth", np.inf)}, "a mesh has no bandwidth"),
    ({"shared": spoiled(T.shared, "parallel", 0)}, "a group has no links"),
    ({"shared": spoiled(T.shared, "alpha", -1.0)}, "negative latency"),
    ({"network": T.network[:-1]}, "networks are not one"),
    ({"network": np.array([0, 1])}, "networks are not one"),
    ({"cores": np.array([1, -1])}, "cores are not one count"),
    ({"cores": T.cores[:-1]}, "cores are not one count"),
    ({"launch": T.launch[:-1]}, "launches are not"),
    ({"launch": changed(T.launch, (1, 3), -1.0)}, "launches are not"),
    ({"launch": changed(T.launch, (0, 0), np.nan)}, "launches are not"),
    ({"mesh": np.array([0, 0, 1, 2])}, "not there"),
    ({"device": np.array([0, 0, 0, 1])}, "not there"),
    ({"memory_domain": np.array([0, 0, 2, 2])}, "memory domain"),
    ({"memory_domain": np.array([1, 1, 1, 1])}, "memory domain"),
    ({"memory_domain": np.array([0, 0, 0, 1])}, "memory domain"),
    ({"memory_domain": np.array([0, 0, 1, 0])}, "memory domain"),
    ({"port": changed(T.port, (Level.NIC, 3), len(T.shared))}, "a NIC port is"),
    ({"port": changed(T.port, (Level.LEAF, 3), 0)}, "a LEAF port is"),
    (switch([[0]], [[]]), "side of a switch group is empty"),
    (switch([[0]], [[1, 2]]), "lies in several nodes"),
    (switch([[0, 1]], [[1]]), "both sides"),
    (switch([[0]], [[1]]) | {"level": np.append(T.level, np.uint8(Level.NIC))}, "do not come last"),
]


@pytest.mark.parametrize(("change", "word"), WRONG, ids=[word for _, word in WRONG])
def test_one_wrong_field_is_told(change: dict[str, Any], word: str) -> None:
    t: Topology = replace(T, **change)
    assert any(word in problem for problem in check(t))


def test_a_switch_group_between_ranks_of_a_node_is_sound() -> None:
    assert check(replace(T, **switch([[0]], [[1]]))) == []
