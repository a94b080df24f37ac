"""Ids and splits of communicators over hosts that reach each other by their addresses alone."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import benchmarks.namespaces as namespaces
from hccc.runtime.communicator import Communicator
from hccc.runtime.communicator.errors import check
from hccc.runtime.communicator.rank import unique_id
from hccc.runtime.communicator.runtime_library import build, library

RANKS = 4


def rank() -> None:
    """Splits by parity, last rank first, and each part again by host; prints the ranks of both."""
    with Communicator.from_environment() as c:
        across = c.split(c.rank % 2, -c.rank)
        near = c.split(c.rank // 2)
        assert across and near
        print([_members(one, c.rank) for one in (across, near)], flush=True)
        near.destroy()
        across.destroy()


def rank_of_id() -> None:
    """Joins by the id that rank 0 leaves in a file; prints all ranks."""
    place, r = Path(os.environ["HCCC_TEST_ID"]), int(os.environ["OMPI_COMM_WORLD_RANK"])
    if r == 0:
        left = place.with_suffix(".new")
        left.write_bytes(unique_id())
        left.rename(place)
    while not place.exists():
        time.sleep(0.01)
    with Communicator.join(place.read_bytes(), RANKS, r) as c:
        print(_members(c, r), flush=True)


def _members(c: Communicator, value: int) -> list[int]:
    """Returns the values of all ranks of a communicator."""
    each = np.zeros(c.n_ranks, np.int64)
    each[c.rank] = value
    check(library().call("CommGatherBytes", c.handle, each.ctypes.data, each.itemsize))
    return [int(x) for x in each]


@pytest.mark.slow
def test_parts_meet_across_hosts() -> None:
    """Nothing says which interface."""
    if why := namespaces.missing():
        pytest.skip(why)
    build()
    command = [sys.executable, "-c", f"from {__name__} import rank; rank()"]
    with namespaces.hosts(2, "1gbit") as hosts:
        job = namespaces.job_on(hosts, RANKS // 2) | {"HCCC_TIMEOUT": "20"}
        said = [job | {"HCCC_RANK": str(r)} for r in range(RANKS)]
        with namespaces.ranks_on(hosts, RANKS // 2, command, said.__getitem__) as ranks:
            found = [one.communicate(timeout=60) for one in ranks]
    for r, (out, err) in enumerate(found):
        across, near = [r % 2 + 2, r % 2], [r // 2 * 2, r // 2 * 2 + 1]
        assert out == f"[{across}, {near}]\n", f"rank {r}: {out}{err}"


@pytest.mark.slow
def test_ranks_of_an_id_meet_across_hosts(tmp_path: Path) -> None:
    """A launcher's variables say that there are several, and nothing else."""
    if why := namespaces.missing():
        pytest.skip(why)
    build()
    command = [sys.executable, "-c", f"from {__name__} import rank_of_id; rank_of_id()"]
    said = {
        "OMPI_COMM_WORLD_SIZE": str(RANKS),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(RANKS // 2),
        "HCCC_TEST_ID": str(tmp_path / "id"),
        "HCCC_TIMEOUT": "20",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with namespaces.hosts(2, "1gbit") as hosts:
        each = [said | {"OMPI_COMM_WORLD_RANK": str(r)} for r in range(RANKS)]
        with namespaces.ranks_on(hosts, RANKS // 2, command, each.__getitem__) as ranks:
            found = [one.communicate(timeout=60) for one in ranks]
    for r, (out, err) in enumerate(found):
        assert out == f"{list(range(RANKS))}\n", f"rank {r}: {out}{err}"
