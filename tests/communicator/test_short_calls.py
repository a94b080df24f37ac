"""Short calls, which each rank does for all: the bits of long ones, and their errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.runtime.communicator import Communicator, CommunicatorError
from tests.communicator.conftest import Library
from tests.communicator.test_calls import SLOW, performs, plan_of
from tests.communicator.world import loaded, run
from tests.emit import plans
from tests.marks import slow

MOST = 1024  # float32 that fit
LONG = {"HCCC_SHORT_BYTES": "0"}


def logged(folder: Path) -> dict[str, str]:
    return {
        "HCCC_DEBUG": "INFO",
        "HCCC_DEBUG_SUBSYS": "COLL",
        "HCCC_DEBUG_FILE": str(folder / "%p"),
        "HCCC_SHORT_BYTES": str(4 * MOST),  # also where each rank has a core
    }


def short_calls(folder: Path) -> int:
    """Counts the short calls of the ranks that wrote into a folder."""
    return sum(log.read_text().count("each rank does it for all") for log in folder.iterdir())


def bits(communicator: Communicator, place: Path) -> list[bytes]:
    """Returns sums whose bits depend on the order of adding, and the bytes behind each."""
    c = communicator
    c.load(place, ["float32"])
    found = []
    for count in (0, 1, 7, MOST, MOST + 1):
        values = np.random.default_rng(c.rank).standard_normal(count).astype(np.float32)
        into = np.full(count + 3, 8, np.float32)
        c.all_reduce(values, into[:count])
        found.append(into.tobytes())
        c.all_reduce(values)
        assert values.tobytes() == into[:count].tobytes()
        into[:count] = np.random.default_rng(c.rank).standard_normal(count)
        if c.rank == 1:  # in place, and the others out of place
            c.all_reduce(into[:count])
        else:
            c.all_reduce(into[:count], values)
            into[:count] = values
        found.append(into.tobytes())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("staged", [False, slow(True)])
def test_bits_are_those_of_a_long_call(
    sums: Path, library: Library, tmp_path: Path, staged: bool
) -> None:
    place = library(plans.compiled(plans.ring_allreduce(3))) if staged else sums
    short = run(3, bits, place, environment=logged(tmp_path))
    assert short_calls(tmp_path) == 3 * 3 * 3  # of 1, 7 and MOST elements, at each rank
    for one in tmp_path.iterdir():
        one.unlink()
    assert run(3, bits, place, environment=logged(tmp_path) | LONG) == short
    assert short_calls(tmp_path) == 0


def small(communicator: Communicator, place: Path, name: str, root: int) -> bool:
    c = loaded(communicator, place)
    return all(performs(c, name, root, count) for count in (1, 5, 300, 1000))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["broadcast", *map(slow, SLOW)])
def test_every_collective(library: Library, name: str) -> None:
    assert run(3, small, library(plan_of(name, 3, 1)), name, 1) == [True] * 3


def by_turns(communicator: Communicator, place: Path) -> bool:
    """Checks that short and long calls, and refused ones, do not disturb each other."""
    c, n = loaded(communicator, place), communicator.n_ranks
    for k in range(60):
        count = (3, 5000, 1, MOST)[k % 4]
        if k % 5 == 0:
            with pytest.raises(CommunicatorError, match=r"rank \d calls"):
                c.all_reduce(np.ones(count + c.rank, np.int32))
        x = np.full(count, c.rank + k, np.int32)
        c.all_reduce(x)
        assert (x == n * k + n * (n - 1) // 2).all(), k
    return True


@pytest.mark.slow
def test_long_and_refused_ones_by_turns(sums: Path) -> None:
    assert run(3, by_turns, sums) == [True] * 3


def alike_but_for_one_thing(communicator: Communicator, sums: Path, ring: Path) -> bool:
    """Makes each call twice, then one that differs from it in one thing; looks at each result."""
    c, n = communicator, communicator.n_ranks
    c.load(sums, ["int32", "uint32"], ["sum", "max"])
    calls = [  # elements, type, reduction, in place, in memory that peers reach
        (5, "int32", "sum", True, True),
        (6, "int32", "sum", True, True),
        (6, "int32", "max", True, True),
        (6, "int32", "max", False, True),
        (6, "int32", "max", False, False),
        (6, "uint32", "max", False, False),
        (9000, "uint32", "max", False, False),
        (9000, "uint32", "max", False, True),
        (9000, "uint32", "max", True, True),
    ]
    for k, (count, dtype, op, in_place, shared) in enumerate(calls * 3):
        if k == len(calls):
            c.load(
                ring, ["int32", "uint32"], ["sum", "max"]
            )  # of two libraries the last one makes calls
        for turn in range(2):
            values = np.stack([np.arange(count) * (r + 1) + k + turn for r in range(n)]).astype(
                dtype
            )
            x = c.empty(count, dtype) if shared else np.empty(count, dtype)
            x[:] = values[c.rank]
            into = x if in_place else np.zeros(count, dtype)
            c.all_reduce(x, into, op=op)
            wanted = values.sum(axis=0, dtype=dtype) if op == "sum" else values.max(axis=0)
            assert np.array_equal(into, wanted), (k, turn)
    return True


@pytest.mark.slow
def test_calls_alike_but_for_one_thing(sums: Path, library: Library) -> None:
    ring = library(plans.compiled(plans.ring_allreduce(3)))
    assert run(3, alike_but_for_one_thing, sums, ring) == [True] * 3


@pytest.mark.slow
def test_ranks_whose_environments_differ(sums: Path, tmp_path: Path) -> None:
    """The call is long then, at all ranks."""
    found: list[Any] = run(
        3,
        by_turns,
        sums,
        environment=logged(tmp_path),
        of_rank=lambda rank: LONG if rank == 1 else {},
    )
    assert found == [True] * 3 and short_calls(tmp_path) == 0
