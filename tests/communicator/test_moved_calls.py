"""Long calls whose bytes only move, as messages: results, places, and where it is not done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from hccc.runtime.communicator import Communicator
from tests.communicator.conftest import Library
from tests.communicator.test_calls import pattern, performs, placed, plan_of
from tests.communicator.world import loaded, start

pytestmark = pytest.mark.slow  # standard libraries are made
LEAST = (8 << 20) // 4  # int32 of the largest buffer
N, ROOT = 3, 1
MADE = {"HCCC_STANDARD": "1", "HCCC_TIMEOUT": "300", "HCCC_PROGRESS": "off"}
BLOCKS = {"broadcast": 1, "scatter": N, "gather": N, "all_to_all": N}


def as_messages(folder: Path) -> int:
    """Counts the calls of ranks that wrote into a folder that went as messages."""
    return sum(log.read_text().count("blocks are sent as messages") for log in folder.iterdir())


def logged(folder: Path) -> dict[str, str]:
    log = {"HCCC_DEBUG_SUBSYS": "MEM", "HCCC_DEBUG_FILE": str(folder / "%p")}
    return {"HCCC_DEBUG": "INFO", **log, **MADE}


def of_lengths(communicator: Communicator, name: str, counts: list[int]) -> bool:
    return all(performs(communicator, name, ROOT, count) for count in counts)


@pytest.mark.parametrize("name", BLOCKS)
def test_results(name: str, tmp_path: Path) -> None:
    least = LEAST // BLOCKS[name]
    each = start(N, of_lengths, name, [least + 7, least - 7], environment=logged(tmp_path))
    assert each.outcomes(timeout=300) == dict.fromkeys(range(N), True)
    # Of the longer, in two of three ways: not where all memory is the heap's.
    assert as_messages(tmp_path) == 2 * N


def in_place(communicator: Communicator) -> bool:
    """Checks an Alltoall in place at some ranks, in memory that is not shared."""
    c, count = communicator, LEAST // N + 3
    blocks = [pattern(r, count, N).reshape(N, count) for r in range(N)]
    x = placed(c, blocks[c.rank].reshape(-1), False)
    into = x if c.rank else placed(c, x, False)
    c.all_to_all(x, into)
    return all((into[r * count :][:count] == blocks[r][c.rank]).all() for r in range(N))


def test_in_place(tmp_path: Path) -> None:
    found = start(N, in_place, environment=logged(tmp_path)).outcomes(timeout=300)
    assert found == dict.fromkeys(range(N), True)
    assert as_messages(tmp_path) == N


def test_ranks_that_may_not_read(tmp_path: Path) -> None:
    """All ranks copy then."""

    def of_rank(rank: int) -> Mapping[str, str]:
        return {"HCCC_PEER_READS": "0"} if rank == 2 else {}

    words = (of_lengths, "broadcast", [LEAST])
    found = start(N, *words, environment=logged(tmp_path), of_rank=of_rank).outcomes(timeout=300)
    assert found == dict.fromkeys(range(N), True) and as_messages(tmp_path) == 0


def with_library(communicator: Communicator, place: Path) -> bool:
    return performs(loaded(communicator, place), "broadcast", ROOT, LEAST)


def test_a_users_library_runs_as_it_was_written(library: Library, tmp_path: Path) -> None:
    place = library(plan_of("broadcast", N, ROOT))
    found = start(N, with_library, place, environment=logged(tmp_path)).outcomes(timeout=300)
    assert found == dict.fromkeys(range(N), True) and as_messages(tmp_path) == 0
