"""Many calls of random kind, size and plan: no call is lost, and memory does not grow."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest

from hccc.runtime.communicator import Communicator
from tests.communicator.conftest import Library
from tests.communicator.world import loaded, start
from tests.emit import plans
from tests.marks import LONG

pytestmark = pytest.mark.usefixtures("flags_of_users")
RANKS, MOST, CALLS = 4, 1 << 14, 5_000 * LONG
SECONDS = 600 * LONG  # where others have the cores
SLACK = 4 << 20  # bytes that a process's own memory may grow by


def part(rank: int, call: int, count: int) -> Any:
    return (np.arange(count, dtype=np.int32) * 3 + rank * 1009 + call) % 65_537


class Soak:
    """One rank's calls. Buffers are of both kinds of memory."""

    def __init__(self, communicator: Communicator, places: tuple[Path, ...]) -> None:
        self.c = loaded(communicator, *places)
        self.shared = [communicator.empty(RANKS * MOST, "int32") for _ in range(2)]
        self.plain = [np.zeros(RANKS * MOST, np.int32) for _ in range(2)]

    def buffers(self, shared: bool) -> list[Any]:
        return self.shared if shared else self.plain

    def one(self, call: int, kind: str, count: int, shared: bool) -> None:
        c, me = self.c, self.c.rank
        send, receive = self.buffers(shared)
        every = [part(r, call, count) for r in range(RANKS)]
        x, y = send[:count], receive[:count]
        if kind in ("mesh", "ring"):
            x[:] = every[me]
            c.run(kind, x, y, count)
            assert np.array_equal(y, sum(every))
        elif kind == "ring_allgather":
            x[:], whole = every[me], receive[: RANKS * count]
            c.all_gather(x, whole)
            assert np.array_equal(whole, np.concatenate(every))
        elif kind == "star":
            y[:] = every[me]
            c.broadcast(y, 1)
            assert np.array_equal(y, every[1])
        else:
            blocks, whole = send[: RANKS * count], receive[: RANKS * count]
            for r in range(RANKS):
                blocks[r * count : (r + 1) * count] = every[me] + r
            c.all_to_all(blocks, whole)
            assert np.array_equal(whole, np.concatenate([e + me for e in every]))


def soak(communicator: Communicator, *places: Path) -> int:
    """Makes the same random calls at all ranks; returns the own memory's growth in bytes."""
    ours, chance, process = Soak(communicator, places), random.Random(7), psutil.Process()

    def own() -> int:
        found = process.memory_info()
        return int(found.rss - found.shared)

    before = 0
    for call in range(CALLS):
        kind = chance.choice(["mesh", "ring", "ring_allgather", "star", "a2a"])
        count = int(2 ** chance.uniform(0, 14))
        ours.one(call, kind, count, chance.random() < 0.5)
        if call == CALLS // 5:
            before = own()
    return own() - before


PLANS: tuple[Callable[[], Any], ...] = (
    lambda: plans.mesh_allreduce(RANKS),
    lambda: plans.ring_allreduce(RANKS),
    lambda: plans.ring_allgather(RANKS),
    lambda: plans.broadcast(RANKS, 1),
    lambda: plans.alltoall(RANKS),
)


@pytest.mark.slow
def test_soak(library: Library) -> None:
    places = [library(plans.compiled(program())) for program in PLANS]
    world = start(RANKS, soak, *places, environment={"HCCC_TIMEOUT": "60"})
    grown = world.outcomes(timeout=SECONDS)
    assert all(isinstance(one, int) and one < SLACK for one in grown.values()), grown
