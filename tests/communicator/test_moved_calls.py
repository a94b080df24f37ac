"""Long calls whose bytes only move, as messages: results, places, and where it is not done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from hccc.runtime.communicator import Communicator
from tests.communicator.conftest import Library
from tests.communicator.test_calls import pattern, performs, placed, plan_of
from tests.communicator.world import loaded, run

LEAST = (8 << 20) // 4  # int32 of the largest buffer
N, ROOT = 3, 1


def as_messages(folder: Path) -> int:
    """Counts the calls of ranks that wrote into a folder that went as messages."""
    return sum(log.read_text().count("blocks are sent as messages") for log in folder.iterdir())


def logged(folder: Path) -> dict[str, str]:
    return {
        "HCCC_DEBUG": "INFO",
        "HCCC_DEBUG_SUBSYS": "MEM",
        "HCCC_DEBUG_FILE": str(folder / "%p"),
    }


def of_length(communicator: Communicator, place: Path, name: str, count: int) -> bool:
    return performs(loaded(communicator, place), name, ROOT, count)


BLOCKS = {"broadcast": 1, "scatter": N, "gather": N, "all_to_all": N}


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_results(library: Library, name: str, tmp_path: Path) -> None:
    place, environment = library(plan_of(name, N, ROOT)), logged(tmp_path)
    count = LEAST // BLOCKS[name]
    assert run(N, of_length, place, name, count + 7, environment=environment) == [True] * N
    assert as_messages(tmp_path) == 2 * N  # not where all memory is the heap's
    for one in tmp_path.iterdir():
        one.unlink()
    assert run(N, of_length, place, name, count - 7, environment=environment) == [True] * N
    assert as_messages(tmp_path) == 0


def in_place(communicator: Communicator, place: Path) -> bool:
    """Checks an Alltoall in place at some ranks, in memory that is not shared."""
    c, count = loaded(communicator, place), LEAST // N + 3
    blocks = [pattern(r, count, N).reshape(N, count) for r in range(N)]
    x = placed(c, blocks[c.rank].reshape(-1), False)
    into = x if c.rank else placed(c, x, False)
    c.all_to_all(x, into)
    return all((into[r * count :][:count] == blocks[r][c.rank]).all() for r in range(N))


@pytest.mark.slow
def test_in_place(library: Library, tmp_path: Path) -> None:
    place = library(plan_of("all_to_all", N, ROOT))
    assert run(N, in_place, place, environment=logged(tmp_path)) == [True] * N
    assert as_messages(tmp_path) == N


@pytest.mark.slow
def test_ranks_that_may_not_read(library: Library, tmp_path: Path) -> None:
    """All ranks copy then."""

    def of_rank(rank: int) -> Mapping[str, str]:
        return {"HCCC_PEER_READS": "0"} if rank == 2 else {}

    words = (library(plan_of("broadcast", N, ROOT)), "broadcast", LEAST)
    found = run(N, of_length, *words, environment=logged(tmp_path), of_rank=of_rank)
    assert found == [True] * N and as_messages(tmp_path) == 0
